// permute: the dims in another order.
#include "fusion/build/rules.h"
#include "fusion/movement/movement_rules.h"

namespace fuser::fusion {

using namespace ir;

template <>
std::vector<Expr> MovementRules<Permute>::shape(Fusion&, Permute& op, const std::string&) {
  op.dims = rules::permutation("permute", *op.arg, op.dims);
  std::vector<Expr> shape;
  for (int64_t d : op.dims) shape.push_back(op.arg->shape[d]);
  return shape;
}

template <>
std::vector<Expr> MovementRules<Permute>::operand_at(Coordinates&, const Permute& op, const Tensor&,
                                                     const std::vector<Expr>& at) {
  std::vector<Expr> out(op.dims.size());
  for (size_t i = 0; i < op.dims.size(); ++i) out[op.dims[i]] = at[i];
  return out;
}

template <>
std::vector<int> MovementRules<Permute>::dims_of(const Permute& op, const Tensor&) {
  std::vector<int> image(op.dims.size());
  for (size_t i = 0; i < op.dims.size(); ++i) image[op.dims[i]] = static_cast<int>(i);
  return image;
}

template <>
Ranks MovementRules<Permute>::layout(const Permute& op, const Tensor&, const Ranks& of) {
  Ranks out;
  for (int64_t from : op.dims) out.push_back(of[from]);
  return out;
}

template <>
bool MovementRules<Permute>::view(Exprs&, const Permute& op, const Tensor&, View& view) {
  const std::vector<Expr> given = view.strides;
  for (size_t i = 0; i < given.size(); ++i) view.strides[i] = given[op.dims[i]];
  return true;
}

}  // namespace fuser::fusion
