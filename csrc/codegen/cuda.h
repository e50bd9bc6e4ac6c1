// Kernel IR printed as CUDA C. No decision is made here: every statement has one text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "ir/kernel.h"

namespace fuser {

struct KernelText {
  std::string name;  // of the function: the kernel's name and the start of the digest
  std::string text;  // device helpers it uses, then the kernel
  Digest digest{};   // of the text without the name: kernels of one digest are the same
  bool collectives = false;
  int threads = 256;          // per block
  int shared_bytes = 0;       // dynamic, per block
  bool shared_grows = false;  // a launch adds to them
  int cluster = 1;            // blocks of a cluster
  bool cooperative = false;   // all blocks must be resident at once
};

// The same kernel under another name of its function.
KernelText renamed(KernelText kernel, const std::string& name);

// By parameter: the value that stands in the text in its place; none, or past the end: it stays a
// parameter.
using Constants = std::vector<std::optional<Number>>;

// With constants the text differs in these declarations alone, so its arithmetic is the same.
KernelText print_cuda(const KernelIR& kernel, const Constants& constants = {});

// Several sets of arguments for one launch, which runs the blocks of one after those of another: a
// table of the first block of each, and behind it the arguments as a launch of one set takes them.
struct PartsLayout {
  int most = 0;  // sets in a table; fewer than 2: the kernel cannot be run so
  int part_bytes = 0, part_offset = 0;
};
PartsLayout parts_layout(const KernelIR& kernel);
// The kernel that takes such a table. Unused entries of it start at the last block there can be.
KernelText print_parts(const KernelIR& kernel);

}  // namespace fuser
