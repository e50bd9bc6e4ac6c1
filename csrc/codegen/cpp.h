// Printer of CPU kernels as C++. It makes no decisions: every statement has one text.
#pragma once

#include "codegen/cuda.h"

namespace fuser::codegen {

// Prints the Kernel IR of lower_cpu(): the blocks of csrc/device/cpu that it uses, then
//   static void NAME(ARGUMENTS..., int64_t begin, int64_t end)
// which runs the tasks [begin, end) of KernelIR::blocks. The arguments are those of a GPU kernel:
// buffers, then parameters; with an AssertIndex also the status that its lanes set (host_abi.h).
// Sets KernelText::for_cpu. With constants the text differs only in the declarations of these
// parameters.
KernelText print_cpp(const ir::KernelIR& kernel, const Constants& constants = {});

}  // namespace fuser::codegen
