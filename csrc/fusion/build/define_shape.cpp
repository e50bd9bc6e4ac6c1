// Shape rules of ops that change sizes or move elements: slice, flip, pad, cat.
#include <algorithm>

#include "base/error.h"
#include "fusion/build/define.h"
#include "fusion/build/rules.h"

namespace fuser {

using rules::append;
using rules::where;

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

void check_count(const std::string& what, const char* rule, const Tensor& arg, size_t count,
                 const char* of) {
  FUSER_CHECK(static_cast<int>(count) == arg.rank(), Shape, rule, what, ": expected ", arg.rank(),
              " ", of, " (the rank of the operand), got ", count, "\n  ", where(arg));
}

Expr integer(Fusion& fusion, const std::string& what, const char* rule, Expr e) {
  FUSER_CHECK(kind_of(e->dtype) == Kind::Int, DType, rule, what, ": expected an integer, got ",
              to_string(e), " of type ", row(e->dtype).torch);
  return fusion.exprs.cast(DType::Int64, e);
}

}  // namespace

const Tensor* slice(Fusion& fusion, const Tensor* arg, std::span<const Expr> starts,
                    std::span<const Expr> ends, std::span<const int64_t> steps,
                    std::string location) {
  const std::string what = text("slice(t", arg->id, ", ...)");
  check_count(what, "slice-1", *arg, starts.size(), "start_indices");
  check_count(what, "slice-1", *arg, ends.size(), "end_indices");
  check_count(what, "slice-1", *arg, steps.size(), "strides");
  Exprs& exprs = fusion.exprs;
  Slice s{.arg = arg, .starts = {}, .ends = {}, .steps = {steps.begin(), steps.end()}, .first = {}};
  std::vector<Expr> shape;
  for (int d = 0; d < arg->rank(); ++d) {
    FUSER_CHECK(steps[d] >= 1, Shape, "slice-2", what, ": expected strides of at least 1, got ",
                steps[d], " in axis ", d, "\n  ", where(*arg), "\n  hint: flip reverses a dim");
    const Expr size = arg->shape[d];
    s.starts.push_back(integer(fusion, what, "slice-3", starts[d]));
    s.ends.push_back(integer(fusion, what, "slice-3", ends[d]));
    s.first.push_back(clamped(exprs, s.starts[d], size));
    const Expr end = clamped(exprs, s.ends[d], size);
    shape.push_back(steps_between(exprs, s.first[d], end, size, steps[d]));
  }
  return append(fusion, arg->dtype, std::move(shape), std::move(s), std::move(location));
}

const Tensor* flip(Fusion& fusion, const Tensor* arg, std::span<const int64_t> dims,
                   std::string location) {
  const std::string what = text("flip(t", arg->id, ", [", joined(dims), "])");
  std::vector<int64_t> sorted;
  for (int64_t d : dims) sorted.push_back(rules::dim_of(what, "flip-1", *arg, d));
  std::sort(sorted.begin(), sorted.end());
  FUSER_CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(), Shape, "flip-2",
              what, ": a dim is given twice\n  ", where(*arg));
  return append(fusion, arg->dtype, arg->shape, Flip{.arg = arg, .dims = std::move(sorted)},
                std::move(location));
}

const Tensor* pad(Fusion& fusion, const Tensor* arg, std::span<const Expr> before,
                  std::span<const Expr> after, Expr value, std::string location) {
  const std::string what = text("pad(t", arg->id, ", ...)");
  check_count(what, "pad-1", *arg, before.size(), "pairs of widths");
  check_count(what, "pad-1", *arg, after.size(), "pairs of widths");
  rules::check_value(fusion, what, value, arg->dtype);
  Pad p{.arg = arg, .before = {}, .after = {}, .value = value};
  std::vector<Expr> shape;
  for (int d = 0; d < arg->rank(); ++d) {
    p.before.push_back(integer(fusion, what, "pad-2", before[d]));
    p.after.push_back(integer(fusion, what, "pad-2", after[d]));
    Exprs& exprs = fusion.exprs;
    shape.push_back(exprs.add(exprs.add(arg->shape[d], p.before[d]), p.after[d]));
    FUSER_CHECK(!shape[d]->is_constant() || shape[d]->value.integer >= 0, Shape, "pad-3", what,
                ": axis ", d, " has a computed size of ", to_string(shape[d]),
                "; expected at least 0\n  ", where(*arg),
                "\n  hint: negative widths remove at most all elements");
  }
  return append(fusion, arg->dtype, std::move(shape), std::move(p), std::move(location));
}

const Tensor* cat(Fusion& fusion, std::span<const Tensor* const> args, int64_t dim,
                  std::string location) {
  FUSER_CHECK(!args.empty(), Shape, "cat-1", "cat([]): expected at least one tensor");
  std::vector<Operand> operands;
  for (const Tensor* t : args) operands.push_back({.tensor = t});
  const std::string what = rules::call("cat", operands);
  const Tensor* first = args[0];
  dim = rules::dim_of(what, "cat-2", *first, dim);
  std::vector<Expr> shape = first->shape;
  std::vector<const Tensor*> owner(shape.size(), first);
  std::vector<Constraint> constraints;
  for (const Tensor* t : args.subspan(1)) {
    FUSER_CHECK(t->rank() == first->rank(), Shape, "cat-3", what,
                ": expected operands of equal rank", rules::lines(operands));
    FUSER_CHECK(t->dtype == first->dtype, DType, "cat-4", what, ": expected operands of one type",
                rules::lines(operands), "\n  hint: cast them first");
    for (int d = 0; d < t->rank(); ++d) {
      const Expr mine = t->shape[d];
      if (d == dim) {
        shape[d] = fusion.exprs.add(shape[d], mine);
        continue;
      }
      if (mine == shape[d]) continue;
      FUSER_CHECK(!(mine->is_constant() && shape[d]->is_constant()), Shape, "cat-5", what,
                  ": axis ", d, " has sizes ", to_string(shape[d]), " and ", to_string(mine),
                  "; expected equal sizes except in axis ", dim, rules::lines(operands));
      constraints.push_back(
          {.left = shape[d],
           .right = mine,
           .op = what,
           .axis = d,
           .left_tensor = owner[d],
           .right_tensor = t,
           .law = {.rule = "cat-5",
                   .broken = "sizes differ in another dim than the concatenated one",
                   .expected = "equal sizes"}});
      if (mine->is_constant()) {  // the better name for both
        shape[d] = mine;
        owner[d] = t;
      }
    }
  }
  for (Constraint& c : constraints) rules::require(fusion, std::move(c));
  return append(fusion, first->dtype, std::move(shape),
                Cat{.args = {args.begin(), args.end()}, .dim = dim}, std::move(location));
}

}  // namespace fuser
