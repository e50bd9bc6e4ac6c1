// unfold: the windows of a dim. Windows may overlap; no element is copied.
#include "base/error.h"
#include "fusion/build/rules.h"
#include "fusion/movement/movement_rules.h"

namespace fuser::fusion {

using namespace ir;

template <>
std::vector<Expr> MovementRules<Unfold>::shape(Fusion& fusion, Unfold& op, const std::string&) {
  const Tensor* arg = op.arg;
  const std::string what =
      text("unfold(t", arg->id, ", ", op.dim, ", ", op.size, ", ", op.step, ")");
  op.dim = rules::dim_of(what, "unfold-1", *arg, op.dim);
  FUSER_CHECK(op.size >= 0 && op.step >= 1, Shape, "unfold-2", what,
              ": expected a size of at least 0 and a step of at least 1\n  ", rules::where(*arg));
  Exprs& exprs = fusion.exprs;
  const Expr extent = arg->shape[op.dim], size = exprs.constant(op.size);
  FUSER_CHECK(!extent->is_constant() || extent->value.integer >= op.size, Shape, "unfold-3", what,
              ": dim ", op.dim, " has size ", ir::to_string(extent),
              ", expected at least the size of a window\n  ", rules::where(*arg));
  if (!extent->is_constant())
    rules::require(fusion, what, arg, op.dim, exprs.apply(Op::minimum, {extent, size}), size,
                   {.rule = "unfold-3",
                    .broken = "the dim is shorter than a window",
                    .expected = "at least the size of a window"});
  const Expr starts = exprs.add(exprs.sub(extent, size), exprs.constant(1));
  std::vector<Expr> shape = arg->shape;
  shape[op.dim] = op.step == 1 ? starts : exprs.ceil_div(starts, op.step);
  shape.push_back(size);
  return shape;
}

template <>
std::vector<Expr> MovementRules<Unfold>::operand_at(Coordinates& coordinates, const Unfold& op,
                                                    const Tensor&, const std::vector<Expr>& at) {
  Exprs& exprs = coordinates.exprs;
  std::vector<Expr> out(at.begin(), at.end() - 1);
  const Expr first = exprs.mul(at[op.dim], exprs.constant(op.step));
  out[op.dim] = exprs.add(first, at.back());
  coordinates.derived(at[op.dim], out[op.dim]);
  coordinates.derived(at.back(), out[op.dim]);
  return out;
}

template <>
std::vector<int> MovementRules<Unfold>::dims_of(const Unfold& op, const Tensor&) {
  std::vector<int> image = same_dims(op.arg->rank());
  image[op.dim] = -1;
  return image;
}

// As torch's view: the elements of a window are next to each other inside of the windows.
template <>
Ranks MovementRules<Unfold>::layout(const Unfold& op, const Tensor&, const Ranks& of) {
  Ranks out = split_ranks(op.dim, of);
  const int inner = out[op.dim + 1];
  out.erase(out.begin() + op.dim + 1);
  out.push_back(inner);
  return out;
}

template <>
bool MovementRules<Unfold>::view(Exprs& exprs, const Unfold& op, const Tensor&, View& view) {
  const Expr stride = view.strides[op.dim];
  view.strides[op.dim] = exprs.mul(stride, exprs.constant(op.step));
  view.strides.push_back(stride);
  return true;
}

}  // namespace fuser::fusion
