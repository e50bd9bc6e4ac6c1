// slice: every step-th element between two bounds of each dim.
#include <algorithm>

#include "base/error.h"
#include "fusion/build/rules.h"
#include "fusion/movement/movement_rules.h"

namespace fuser::fusion {

using namespace ir;

namespace {

// Returns whether the structure of the expression shows that it is not negative.
bool is_natural_number(Expr e) {
  std::vector<Expr> open{e};
  while (!open.empty()) {
    const Expr x = open.back();
    open.pop_back();
    if (x->is_constant() ? x->value.integer >= 0
                         : x->is_symbol(Symbol::Size) || x->is_symbol(Symbol::Extent))
      continue;
    if (x->kind != ExprNode::Kind::Apply) return false;
    const bool closed = x->op == Op::add || x->op == Op::mul || x->op == Op::floor_divide ||
                        x->op == Op::div || x->op == Op::minimum || x->op == Op::ceil_div;
    if (!closed) return false;
    for (Expr a : x->operands()) open.push_back(a);
  }
  return true;
}

// Returns a slice bound with torch's rules applied: negative bounds count from the end, and the
// result is clamped to 0..size.
Expr clamped(Exprs& exprs, Expr bound, Expr size) {
  if (bound == size || bound->is_constant(0)) return bound;
  const Expr zero = exprs.constant(0);
  if (bound->is_constant()) {
    const int64_t b = bound->value.integer;
    if (size->is_constant()) {
      const int64_t n = size->value.integer;
      return exprs.constant(std::clamp<int64_t>(b < 0 ? b + n : b, 0, n));
    }
    if (b < 0) return exprs.apply(Op::maximum, {exprs.add(size, bound), zero});
  } else if (!is_natural_number(bound)) {
    // 1 if the bound is negative, else 0.
    Expr below = exprs.apply(Op::maximum, {exprs.sub(zero, bound), zero});
    below = exprs.apply(Op::minimum, {below, exprs.constant(1)});
    bound = exprs.add(bound, exprs.mul(below, size));
    bound = exprs.apply(Op::maximum, {bound, zero});
  }
  return exprs.apply(Op::minimum, {bound, size});
}

// Returns the number of steps from start to end, at least 0. A step longer than any dim takes one
// element.
Expr steps_between(Exprs& exprs, Expr start, Expr end, Expr size, int64_t step) {
  Expr length = exprs.sub(end, start);
  if (length->is_constant())
    length = exprs.constant(std::max<int64_t>(0, length->value.integer));
  else if (end != size && !start->is_constant(0))
    length = exprs.apply(Op::maximum, {length, exprs.constant(0)});
  constexpr int64_t longest = int64_t{1} << 62;  // sums of both do not wrap
  return step == 1 ? length : exprs.ceil_div(length, std::min(step, longest));
}

}  // namespace

template <>
std::vector<Expr> MovementRules<Slice>::shape(Fusion& fusion, Slice& op, const std::string&) {
  const Tensor* arg = op.arg;
  const std::string what = text("slice(t", arg->id, ", ...)");
  rules::check_count(what, "slice-1", *arg, op.starts.size(), "start_indices");
  rules::check_count(what, "slice-1", *arg, op.ends.size(), "end_indices");
  rules::check_count(what, "slice-1", *arg, op.steps.size(), "strides");
  Exprs& exprs = fusion.exprs;
  op.first.clear();
  std::vector<Expr> shape;
  for (int d = 0; d < arg->rank(); ++d) {
    FUSER_CHECK(op.steps[d] >= 1, Shape, "slice-2", what, ": expected strides of at least 1, got ",
                op.steps[d], " in axis ", d, "\n  ", rules::where(*arg),
                "\n  hint: flip reverses a dim");
    const Expr size = arg->shape[d];
    op.starts[d] = rules::integer(fusion, what, "slice-3", op.starts[d]);
    op.ends[d] = rules::integer(fusion, what, "slice-3", op.ends[d]);
    op.first.push_back(clamped(exprs, op.starts[d], size));
    const Expr end = clamped(exprs, op.ends[d], size);
    shape.push_back(steps_between(exprs, op.first[d], end, size, op.steps[d]));
  }
  return shape;
}

template <>
std::vector<Expr> MovementRules<Slice>::operand_at(Coordinates& coordinates, const Slice& op,
                                                   const Tensor&, const std::vector<Expr>& at) {
  Exprs& exprs = coordinates.exprs;
  std::vector<Expr> out;
  for (size_t i = 0; i < op.steps.size(); ++i)
    out.push_back(coordinates.derived(
        at[i],
        exprs.add(exprs.mul(at[i], exprs.constant(op.steps[i])), coordinates.import(op.first[i]))));
  return out;
}

template <>
std::vector<int> MovementRules<Slice>::dims_of(const Slice& op, const Tensor& t) {
  std::vector<int> image = same_dims(op.arg->rank());
  for (size_t i = 0; i < op.steps.size(); ++i)
    if (!op.first[i]->is_constant(0) || op.steps[i] != 1 || op.arg->shape[i] != t.shape[i])
      image[i] = -1;
  return image;
}

template <>
Ranks MovementRules<Slice>::layout(const Slice&, const Tensor&, const Ranks& of) {
  return of;
}

template <>
bool MovementRules<Slice>::view(Exprs& exprs, const Slice& op, const Tensor&, View& view) {
  for (size_t i = 0; i < view.strides.size(); ++i) {
    view.offset = exprs.add(view.offset, exprs.mul(op.first[i], view.strides[i]));
    view.strides[i] = exprs.mul(view.strides[i], exprs.constant(op.steps[i]));
  }
  return true;
}

}  // namespace fuser::fusion
