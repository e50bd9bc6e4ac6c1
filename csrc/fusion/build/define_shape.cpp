// Shape rules of pad and cat.
#include "base/error.h"
#include "fusion/build/define.h"
#include "fusion/build/rules.h"

namespace fuser::fusion {

using namespace ir;

using rules::append;
using rules::check_count;
using rules::integer;
using rules::where;

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
                ": axis ", d, " has a computed size of ", ir::to_string(shape[d]),
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
                  ": axis ", d, " has sizes ", ir::to_string(shape[d]), " and ",
                  ir::to_string(mine), "; expected equal sizes except in axis ", dim,
                  rules::lines(operands));
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

}  // namespace fuser::fusion
