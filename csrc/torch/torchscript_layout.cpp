#include "torch/torchscript_layout.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <tuple>

#include "torch/torchscript.h"

namespace fuser {

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

bool cuts(const torch::jit::Block& block) {
  const std::array<c10::Symbol, 9> cutting{c10::prim::ConstantChunk,   c10::aten::slice,
                                           c10::aten::narrow,          c10::aten::view,
                                           c10::aten::reshape,         c10::aten::flatten,
                                           c10::aten::unflatten,       script_symbols().chunk_part,
                                           script_symbols().split_part};
  return std::any_of(block.nodes().begin(), block.nodes().end(), [&](const Node* n) {
    if (std::find(cutting.begin(), cutting.end(), n->kind()) != cutting.end()) return true;
    if (n->kind() == script_symbols().region && cuts(*n->g(script_symbols().body)->block()))
      return true;
    return std::any_of(n->blocks().begin(), n->blocks().end(),
                       [](const torch::jit::Block* inner) { return cuts(*inner); });
  });
}

}  // namespace fuser
