// Memory layouts of tensors in a script, profiled and actual.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/ir/ir.h>

#include <optional>
#include <utility>
#include <vector>

namespace fuser::script {

// Position in memory by dim of a tensor, 0 the innermost.
using Places = std::vector<int64_t>;

// Layout of a tensor: bit sets of dims of size 1 and of expanded dims, and the positions of the
// dims. `order` is 0 if the tensor is row-major.
struct Arrangement {
  int64_t ones = 0, expanded = 0, order = 0;
  bool operator==(const Arrangement&) const = default;
};

// Returns whether the dims are in row-major order. Dims of size 1 count, because eager results copy
// their strides: at equal strides they are inner dims. A dim of stride 0 does not matter.
bool row_major(at::IntArrayRef sizes, at::IntArrayRef strides);
// Returns whether strides do not determine the order of dims: a tensor without elements and of at
// least two dims.
bool hides_order(at::IntArrayRef sizes);

// Return the positions by stride. At equal strides a dim of size 1 is an inner dim, as in eager
// results. If the tensor is not row-major, then expanded dims are outermost.
Places places(at::IntArrayRef sizes, at::IntArrayRef strides);
Arrangement arrangement(at::IntArrayRef sizes, at::IntArrayRef strides);

// Returns sizes and strides; nullopt if a value was not profiled or its profiles differed.
std::optional<std::pair<std::vector<int64_t>, std::vector<int64_t>>> profiled(
    const torch::jit::Value* value);
// Returns whether any value was, or may have been, not row-major.
bool moves(const torch::jit::Block& block);
// Returns the largest size that decides whether a slice of a dim has one element, or 0 if no op
// takes slices. A slice of size 1 changes the layout of results, and does not follow from the
// operands' dims of size 1.
constexpr int64_t most_deciding_sizes = 64;
int64_t deciding_sizes(const torch::jit::Block& block);

}  // namespace fuser::script
