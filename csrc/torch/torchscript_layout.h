// How tensors of a script lie in memory, as profiled and as given.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/ir/ir.h>

#include <optional>
#include <utility>
#include <vector>

namespace fuser {

// How a tensor lies in memory: the place of each of its dims there, 0 the innermost.
using Places = std::vector<int64_t>;

// Of tensors that lie alike: which dims have one element, which are expanded, and the places of the
// dims; 0 where they are row-major.
struct Arrangement {
  int64_t ones = 0, expanded = 0, order = 0;
  bool operator==(const Arrangement&) const = default;
};

// Do the dims lie in their order? Those of one element too, whose strides eager's results take
// over: at equal strides they stand inside. A dim without a stride tells nothing.
bool row_major(at::IntArrayRef sizes, at::IntArrayRef strides);
// Strides of a tensor without elements do not tell how its dims lie; those of one dim need not.
bool hides_order(at::IntArrayRef sizes);

// By strides; at equal ones a dim of one element stands inside, where eager's results have it.
// Expanded dims stand outside of the others where it is not row-major.
Places places(at::IntArrayRef sizes, at::IntArrayRef strides);
Arrangement arrangement(at::IntArrayRef sizes, at::IntArrayRef strides);

// Sizes and strides; nothing where a value was not profiled, or differed.
std::optional<std::pair<std::vector<int64_t>, std::vector<int64_t>>> profiled(
    const torch::jit::Value* value);
// Did any value lie otherwise than row-major, or may it have?
bool moves(const torch::jit::Block& block);
// Whether parts of dims have one element, and so stand elsewhere in what is made of them, does not
// follow from which dims of the operands have one. Sizes up to this one decide it; 0 where no op
// takes parts.
constexpr int64_t most_deciding_sizes = 64;
int64_t deciding_sizes(const torch::jit::Block& block);

}  // namespace fuser
