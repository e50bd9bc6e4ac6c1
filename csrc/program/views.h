// Outputs of a program that are views of inputs or of results of library calls.
#pragma once

#include <vector>

#include "fusion/kernel/problem.h"

namespace fuser::program {

struct ViewSlots {
  int input = -1, output = -1;  // whose view the output is; -1: of none
  int offset = 0;               // slot in `shapes`, as the strides are
  std::vector<int> strides;
};

// Marks the outputs that no kernel stores, and records their strides: views of inputs or of results
// of library calls, and results that are the memory of an input they are written into. Operands of
// library calls that are views of inputs become temporary outputs. An input that is overwritten, or
// that may overlap one, yields no other view, because a result must hold its old value.
// The slots of each output; offsets and strides are added to `shapes`.
std::vector<ViewSlots> find_views(ir::Fusion& fusion,
                                  const std::vector<fusion::LayoutClass>& layouts,
                                  const std::vector<bool>& overlapping, ir::IntProgram& shapes);

}  // namespace fuser::program
