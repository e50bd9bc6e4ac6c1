// stride_order: equal values with a memory order for outputs.
#include "fusion/build/rules.h"
#include "fusion/movement/movement_rules.h"

namespace fuser::fusion {

using namespace ir;

template <>
std::vector<Expr> MovementRules<StrideOrder>::shape(Fusion&, StrideOrder& op, const std::string&) {
  op.order = rules::permutation("stride_order", *op.arg, op.order);
  return op.arg->shape;
}

template <>
std::vector<Expr> MovementRules<StrideOrder>::operand_at(Coordinates&, const StrideOrder&,
                                                         const Tensor&,
                                                         const std::vector<Expr>& at) {
  return at;
}

template <>
std::vector<int> MovementRules<StrideOrder>::dims_of(const StrideOrder& op, const Tensor&) {
  return same_dims(op.arg->rank());
}

template <>
Ranks MovementRules<StrideOrder>::layout(const StrideOrder& op, const Tensor&, const Ranks&) {
  return {op.order.begin(), op.order.end()};
}

// The op asks for memory of its own.
template <>
bool MovementRules<StrideOrder>::view(Exprs&, const StrideOrder&, const Tensor&, View&) {
  return false;
}

}  // namespace fuser::fusion
