#include "torch/script/layout.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <tuple>

#include "torch/script/torchscript.h"

namespace fuser::script {

using torch::jit::Node;
using torch::jit::Value;

bool row_major(at::IntArrayRef sizes, at::IntArrayRef strides) {
  int64_t outer = std::numeric_limits<int64_t>::max();
  bool of_one = false;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (strides[d] == 0) continue;
    if (strides[d] > outer || (strides[d] == outer && of_one && sizes[d] != 1)) return false;
    outer = strides[d];
    of_one = sizes[d] == 1;
  }
  return true;
}

Places places(at::IntArrayRef sizes, at::IntArrayRef strides) {
  const int64_t rank = static_cast<int64_t>(sizes.size());
  std::vector<int64_t> outer_first(rank);
  std::iota(outer_first.begin(), outer_first.end(), 0);
  const auto expanded = [&](int64_t d) { return sizes[d] != 1 && strides[d] == 0; };
  const auto key = [&](int64_t d) {
    return std::make_tuple(!expanded(d), -strides[d], sizes[d] == 1);
  };
  if (!row_major(sizes, strides) || std::none_of(outer_first.begin(), outer_first.end(), expanded))
    std::stable_sort(outer_first.begin(), outer_first.end(),
                     [&](int64_t a, int64_t b) { return key(a) < key(b); });
  Places out(rank);
  for (int64_t i = 0; i < rank; ++i) out[outer_first[i]] = rank - 1 - i;
  return out;
}

Arrangement arrangement(at::IntArrayRef sizes, at::IntArrayRef strides) {
  Arrangement out;
  for (size_t d = 0; d < sizes.size(); ++d) {
    out.ones |= int64_t{sizes[d] == 1} << d;
    out.expanded |= int64_t{sizes[d] != 1 && strides[d] == 0} << d;
  }
  if (row_major(sizes, strides)) return out;
  for (int64_t place : places(sizes, strides)) out.order = out.order << 4 | place;
  return out;
}

bool hides_order(at::IntArrayRef sizes) {
  return sizes.size() > 1 && std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
}

std::optional<std::pair<std::vector<int64_t>, std::vector<int64_t>>> profiled(const Value* v) {
  const auto type = v->type()->cast<c10::TensorType>();
  const auto sizes = type ? type->sizes().concrete_sizes() : std::nullopt;
  const auto strides = type ? type->strides().concrete_sizes() : std::nullopt;
  if (!sizes || !strides) return std::nullopt;
  return std::make_pair(*sizes, *strides);
}

bool moves(const torch::jit::Block& block) {
  for (const Node* n : block.nodes()) {
    if (n->kind() == script_symbols().region && moves(*n->g(script_symbols().body)->block()))
      return true;
    for (const torch::jit::Block* inner : n->blocks())
      if (moves(*inner)) return true;
    for (const Value* v : n->outputs())
      if (const auto layout = profiled(v);
          layout && (hides_order(layout->first) || !row_major(layout->first, layout->second)))
        return true;
  }
  return false;
}

namespace {

// Returns the number of sizes of a dim that may decide whether a slice of it has one element; 0 if
// the op takes no slices.
int64_t deciding_sizes(const Node* n) {
  if (n->kind() == c10::prim::ConstantChunk) {
    const int64_t chunks = n->i(torch::jit::attr::chunks);  // the last chunk may be smaller
    return std::min(chunks * chunks, most_deciding_sizes);
  }
  if (n->kind() == c10::aten::slice) {
    int64_t ends = 1;  // bounds that exceed the dim count from its end
    for (size_t i = 2; i < n->inputs().size(); ++i) {
      const auto end = torch::jit::toIValue(n->input(i));
      if (!end || (!end->isNone() && !end->isInt())) return most_deciding_sizes;
      if (end->isInt() && end->toInt() < most_deciding_sizes) ends += std::abs(end->toInt());
    }
    return std::min(ends, most_deciding_sizes);
  }
  const std::array<c10::Symbol, 6> others{
      c10::aten::view,      c10::aten::reshape,          c10::aten::flatten,
      c10::aten::unflatten, script_symbols().chunk_part, script_symbols().split_part};
  const bool cuts = std::find(others.begin(), others.end(), n->kind()) != others.end();
  return cuts ? most_deciding_sizes : 0;
}

}  // namespace

int64_t deciding_sizes(const torch::jit::Block& block) {
  int64_t most = 0;
  for (const Node* n : block.nodes()) {
    most = std::max(most, deciding_sizes(n));
    if (n->kind() == script_symbols().region)
      most = std::max(most, deciding_sizes(*n->g(script_symbols().body)->block()));
    for (const torch::jit::Block* inner : n->blocks())
      most = std::max(most, deciding_sizes(*inner));
  }
  return most;
}

}  // namespace fuser::script
