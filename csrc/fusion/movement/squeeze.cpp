// squeeze: without dims of size 1, or without dims that were expanded.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "fusion/build/rules.h"
#include "fusion/movement/movement_rules.h"

namespace fuser::fusion {

using namespace ir;

template <>
std::vector<int> MovementRules<Squeeze>::dims_of(const Squeeze& op, const Tensor&) {
  std::vector<int> image(op.arg->rank(), -1);
  int next = 0;
  for (int i = 0; i < op.arg->rank(); ++i)
    if (!std::binary_search(op.dims.begin(), op.dims.end(), i)) image[i] = next++;
  return image;
}

namespace {

// Returns the index of dim `d` among the contiguity flags of an input, outermost dim first.
size_t place_in_memory(const Tensor& t, const Input& input, int64_t d) {
  return input.stride_order.empty() ? d : t.rank() - 1 - input.stride_order[d];
}

// A dim of a tensor.
using Dim = std::pair<const Tensor*, int64_t>;

// Adds the dims of the operands that index dim `d` of the tensor. Returns false if its elements
// differ along the dim.
bool add_dims_before(const Dim& dim, std::vector<Dim>& open) {
  const auto& [t, d] = dim;
  return std::visit(
      [&]<class D>(const D& op) {
        if constexpr (std::is_same_v<D, Input>) {
          return !op.contiguity.empty() && !op.contiguity[place_in_memory(*t, op, d)];
        } else if constexpr (std::is_same_v<D, Pointwise> || std::is_same_v<D, Cast>) {
          for (const Tensor* a : ir::operands(*t)) open.emplace_back(a, d);
          return true;
        } else if constexpr (MovementOp<D>) {
          const std::vector<int> image = MovementRules<D>::dims_of(op, *t);
          const auto before = std::find(image.begin(), image.end(), d);
          if (before == image.end()) return false;
          open.emplace_back(op.arg, before - image.begin());
          return true;
        } else {
          static_assert(std::is_same_v<D, Full> || std::is_same_v<D, Reduction> ||
                            std::is_same_v<D, Result> || std::is_same_v<D, Iota> ||
                            std::is_same_v<D, TakeAlongAxis> || std::is_same_v<D, Pad> ||
                            std::is_same_v<D, Cat> || std::is_same_v<D, Library> ||
                            std::is_same_v<D, std::monostate>,
                        "add_dims_before() misses an op");
          return false;
        }
      },
      t->definition);
}

// Returns whether expand() grew the dim, or an input was defined to repeat it, in all tensors that
// the tensor is computed from element by element.
bool is_expanded(const Tensor* tensor, int64_t dim) {
  std::set<Dim> met;
  std::vector<Dim> open{{tensor, dim}};
  while (!open.empty()) {
    const Dim next = open.back();
    open.pop_back();
    if (next.first->shape[next.second]->is_constant(1) || !met.insert(next).second) continue;
    if (!add_dims_before(next, open)) return false;
  }
  return true;
}

}  // namespace

template <>
std::vector<Expr> MovementRules<Squeeze>::shape(Fusion& fusion, Squeeze& op, const std::string&) {
  const Tensor* arg = op.arg;
  const std::string what = text("squeeze(t", arg->id, ", [", joined(op.dims), "])");
  for (int64_t& d : op.dims) d = rules::dim_of(what, "squeeze-1", *arg, d);
  std::sort(op.dims.begin(), op.dims.end());
  op.dims.erase(std::unique(op.dims.begin(), op.dims.end()), op.dims.end());
  bool drops_expanded = false;
  for (int64_t d : op.dims) {
    Expr extent = arg->shape[d];
    if (extent->is_constant(1)) continue;
    if (op.squeeze_expanded && is_expanded(arg, d)) {
      drops_expanded = true;
      continue;
    }
    FUSER_CHECK(!extent->is_constant(), Shape, "squeeze-2", what, ": axis ", d, " has size ",
                extent->value.integer, ", expected 1\n  ", rules::where(*arg));
    rules::require(
        fusion, what, arg, d, extent, fusion.exprs.constant(1),
        {.rule = "squeeze-2", .broken = "a squeezed dim has another size than 1", .expected = "1"});
  }
  op.squeeze_expanded = drops_expanded;
  std::vector<Expr> shape;
  for (int d = 0; d < arg->rank(); ++d)
    if (!std::binary_search(op.dims.begin(), op.dims.end(), d)) shape.push_back(arg->shape[d]);
  return shape;
}

template <>
std::vector<Expr> MovementRules<Squeeze>::operand_at(Coordinates& coordinates, const Squeeze& op,
                                                     const Tensor&, const std::vector<Expr>& at) {
  std::vector<Expr> out;
  size_t next = 0;
  for (int i = 0; i < op.arg->rank(); ++i)
    out.push_back(std::binary_search(op.dims.begin(), op.dims.end(), i)
                      ? coordinates.exprs.constant(0)
                      : at[next++]);
  return out;
}

template <>
Ranks MovementRules<Squeeze>::layout(const Squeeze& op, const Tensor&, const Ranks& of) {
  Ranks out = of;
  for (size_t i = op.dims.size(); i-- > 0;) out.erase(out.begin() + op.dims[i]);
  return out;
}

template <>
bool MovementRules<Squeeze>::view(Exprs&, const Squeeze& op, const Tensor&, View& view) {
  for (size_t i = op.dims.size(); i-- > 0;) view.strides.erase(view.strides.begin() + op.dims[i]);
  return true;
}

}  // namespace fuser::fusion
