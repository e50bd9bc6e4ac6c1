// flip: dims in reverse.
#include <algorithm>

#include "base/error.h"
#include "fusion/build/rules.h"
#include "fusion/movement/movement_rules.h"

namespace fuser::fusion {

using namespace ir;

namespace {

// Returns last - one, with the sum expanded and cancelling terms removed. Two flips cancel, so that
// coordinates do not grow with the number of flips.
Expr reflected(Exprs& exprs, Expr one, Expr last) {
  Expr sum = exprs.constant(0);
  bool cancelled = false;
  const auto subtract = [&](Expr term) {
    if (term == last && !cancelled)
      cancelled = true;
    else
      sum = exprs.add(sum, exprs.mul(term, exprs.constant(-1)));
  };
  for (; one->kind == ExprNode::Kind::Apply && one->op == Op::add; one = one->args[0])
    subtract(one->args[1]);
  subtract(one);
  return cancelled ? sum : exprs.add(sum, last);
}

}  // namespace

template <>
std::vector<Expr> MovementRules<Flip>::shape(Fusion&, Flip& op, const std::string&) {
  const std::string what = text("flip(t", op.arg->id, ", [", joined(op.dims), "])");
  for (int64_t& d : op.dims) d = rules::dim_of(what, "flip-1", *op.arg, d);
  std::sort(op.dims.begin(), op.dims.end());
  FUSER_CHECK(std::adjacent_find(op.dims.begin(), op.dims.end()) == op.dims.end(), Shape, "flip-2",
              what, ": a dim is given twice\n  ", rules::where(*op.arg));
  return op.arg->shape;
}

template <>
std::vector<Expr> MovementRules<Flip>::operand_at(Coordinates& coordinates, const Flip& op,
                                                  const Tensor&, const std::vector<Expr>& at) {
  Exprs& exprs = coordinates.exprs;
  std::vector<Expr> out = at;
  for (int64_t i : op.dims) {
    const Expr last = exprs.sub(coordinates.import(op.arg->shape[i]), exprs.constant(1));
    out[i] = coordinates.derived(at[i], reflected(exprs, at[i], last));
  }
  return out;
}

template <>
std::vector<int> MovementRules<Flip>::dims_of(const Flip& op, const Tensor&) {
  std::vector<int> image = same_dims(op.arg->rank());
  for (int64_t i : op.dims) image[i] = -1;
  return image;
}

template <>
Ranks MovementRules<Flip>::layout(const Flip&, const Tensor& t, const Ranks& of) {
  return elementwise_ranks(t, {of});
}

// A view has no negative strides.
template <>
bool MovementRules<Flip>::view(Exprs&, const Flip&, const Tensor&, View&) {
  return false;
}

}  // namespace fuser::fusion
