// In-place outputs: analysis of the steps of a program before kernels are scheduled.
#pragma once

#include <vector>

#include "program/program.h"

namespace fuser::program {

// Moves kernels to the end of the program if they overwrite memory that later steps read, and if no
// later step reads their outputs. An optimizer's step counter, which all of its kernels read, is
// then incremented last.
void write_after_reads(Program& program, const ir::Fusion& fusion,
                       const std::vector<GroupKernels>& kernels);
// Returns, by output, whether it is stored straight into its alias input.
std::vector<bool> find_in_place(const Program& program, const ir::Fusion& fusion,
                                const std::vector<GroupKernels>& kernels,
                                const std::vector<bool>& overlapping);

}  // namespace fuser::program
