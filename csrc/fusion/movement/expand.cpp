// expand: dims of size 1 become larger, and new dims come first.
#include <algorithm>

#include "base/error.h"
#include "fusion/build/define.h"
#include "fusion/build/rules.h"
#include "fusion/movement/movement_rules.h"

namespace fuser::fusion {

using namespace ir;

template <>
std::vector<Expr> MovementRules<Expand>::shape(Fusion& fusion, Expand& op,
                                               const std::string& location) {
  const int more = static_cast<int>(op.shape.size()) - op.arg->rank();
  FUSER_CHECK(more >= 0, Shape, "expand-1", "expand(t", op.arg->id, ", shape): expected at least ",
              op.arg->rank(), " sizes, got ", op.shape.size(), "\n  ", rules::where(*op.arg));
  if (more > 0) {
    std::vector<bool> is_broadcast(op.shape.size(), false);
    std::fill_n(is_broadcast.begin(), more, true);
    op.arg = movement(fusion, Broadcast{.arg = op.arg, .is_broadcast = std::move(is_broadcast)},
                      location);
  }
  const Tensor* arg = op.arg;
  std::vector<Constraint> constraints;
  std::vector<Expr> extents;
  for (int d = 0; d < arg->rank(); ++d) {
    Expr& want = op.shape[d];
    if (!want || want->is_constant(-1)) {
      extents.push_back(arg->shape[d]);
      want = fusion.exprs.constant(-1);
      continue;
    }
    FUSER_CHECK(
        kind_of(want->dtype) == Kind::Int && !(want->is_constant() && want->value.integer < 0),
        Shape, "expand-3", "expand(t", arg->id,
        ", shape): expected a size of at least 0, or -1, in axis ", d, ", got ",
        rules::size_text(want), "\n  ", rules::where(*arg));
    FUSER_CHECK(!want->is_constant() || !arg->shape[d]->is_constant() ||
                    arg->shape[d]->is_constant(1) || want == arg->shape[d],
                Shape, "expand-2", "expand(t", arg->id, ", shape): axis ", d, " has size ",
                ir::to_string(arg->shape[d]), " and cannot be expanded to ", ir::to_string(want),
                "; expected size 1\n  ", rules::where(*arg));
    extents.push_back(want);
    if (!arg->shape[d]->is_constant(1) && arg->shape[d] != want)
      constraints.push_back({.left = arg->shape[d],
                             .right = want,
                             .op = text("expand(t", arg->id, ", shape)"),
                             .axis = d,
                             .left_tensor = arg,
                             .right_tensor = arg,
                             .left_dim = d,
                             .law = {.rule = "expand-2",
                                     .broken = "a dim cannot become another size",
                                     .expected = "equal sizes, or size 1"}});
  }
  for (Constraint& c : constraints) rules::require(fusion, std::move(c));
  return extents;
}

template <>
std::vector<Expr> MovementRules<Expand>::operand_at(Coordinates& coordinates, const Expand& op,
                                                    const Tensor&, const std::vector<Expr>& at) {
  std::vector<Expr> out;
  for (int i = 0; i < op.arg->rank(); ++i)
    out.push_back(op.arg->shape[i]->is_constant(1) ? coordinates.exprs.constant(0) : at[i]);
  return out;
}

template <>
std::vector<int> MovementRules<Expand>::dims_of(const Expand& op, const Tensor&) {
  return same_dims(op.arg->rank());
}

template <>
Ranks MovementRules<Expand>::layout(const Expand& op, const Tensor& t, const Ranks& of) {
  Ranks out = of;
  for (int i = 0; i < t.rank(); ++i)
    if (op.arg->shape[i]->is_constant(1)) out[i] = -1;
  return out;
}

template <>
bool MovementRules<Expand>::view(Exprs& exprs, const Expand& op, const Tensor& t, View& view) {
  for (int i = 0; i < t.rank(); ++i)
    if (op.arg->shape[i]->is_constant(1) && !t.shape[i]->is_constant(1))
      view.strides[i] = exprs.constant(0);
  return true;
}

}  // namespace fuser::fusion
