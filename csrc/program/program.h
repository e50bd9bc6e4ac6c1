// A definition as steps in order: kernels of groups of values, library calls, copies.
#pragma once

#include <variant>
#include <vector>

#include "fusion/index/access.h"

namespace fuser::program {

// Steps of a Program, in order.
struct KernelStep {
  int group = 0;
};
struct CopyStep {  // an in-place output that could not be stored directly: temporary -> input
  int output = 0;
};
using Step = std::variant<KernelStep, fusion::LibraryCall, CopyStep>;
struct Program {
  std::vector<Step> steps;
};

// The kernel of one group of values, and the kernels of its fission in order.
struct GroupKernels {
  fusion::Refined whole;
  std::vector<fusion::Refined> fission;
};

}  // namespace fuser::program
