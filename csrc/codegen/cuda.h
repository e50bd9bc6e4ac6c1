// Printer of Kernel IR as CUDA C. It makes no decisions: every statement has one text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "ir/kernel.h"

namespace fuser::codegen {

struct KernelText {
  std::string name;  // name of the function: the kernel's name and the start of the digest
  std::string text;  // the device helpers that it uses, then the kernel
  Digest digest{};   // digest of the text without the name: equal for identical kernels
  bool collectives = false;
  int threads = 256;          // threads per block
  int shared_bytes = 0;       // bytes of dynamic shared memory per block
  bool shared_grows = false;  // a launch adds bytes of shared memory for its rows
  int cluster = 1;            // blocks of a cluster
  bool cooperative = false;   // all blocks must be resident at once
  bool for_cpu = false;       // CPU kernel (codegen/cpp.h); the fields from `threads` on are unused
};

// Returns the kernel with another function name.
KernelText renamed(KernelText kernel, const std::string& name);

// By parameter: the constant that replaces it in the text. nullopt, or past the end: it remains a
// parameter.
using Constants = std::vector<std::optional<ir::Number>>;

// Prints a kernel. With constants the text differs only in their declarations, so its arithmetic is
// unchanged.
KernelText print_cuda(const ir::KernelIR& kernel, const Constants& constants = {});

// Layout of the arguments of a horizontal fusion, which runs several sets of arguments in one
// launch. A table holds the first block of each set. Behind it are the sets, each laid out as the
// arguments of a single launch.
struct HorizontalLayout {
  int most = 0;  // maximum sets in a table; below 2, the kernel cannot be fused horizontally
  int part_bytes = 0, part_offset = 0;
};
HorizontalLayout horizontal_layout(const ir::KernelIR& kernel);
// Prints the kernel that takes these arguments. Unused table entries start behind the last possible
// block.
KernelText print_horizontal(const ir::KernelIR& kernel);

}  // namespace fuser::codegen
