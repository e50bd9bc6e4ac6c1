// broadcast: new dims of size 1.
#include <algorithm>

#include "base/error.h"
#include "fusion/build/rules.h"
#include "fusion/movement/movement_rules.h"

namespace fuser::fusion {

using namespace ir;

template <>
std::vector<Expr> MovementRules<Broadcast>::shape(Fusion& fusion, Broadcast& op,
                                                  const std::string&) {
  const Tensor* arg = op.arg;
  const int kept =
      static_cast<int>(std::count(op.is_broadcast.begin(), op.is_broadcast.end(), false));
  FUSER_CHECK(kept == arg->rank(), Shape, "broadcast-2", "broadcast(t", arg->id,
              ", ...): expected ", arg->rank(),
              " dims that are not broadcast (the rank of the operand), got ", kept, "\n  ",
              rules::where(*arg));
  std::vector<Expr> shape;
  int next = 0;
  for (bool b : op.is_broadcast) shape.push_back(b ? fusion.exprs.constant(1) : arg->shape[next++]);
  return shape;
}

template <>
std::vector<Expr> MovementRules<Broadcast>::operand_at(Coordinates&, const Broadcast& op,
                                                       const Tensor&, const std::vector<Expr>& at) {
  std::vector<Expr> out;
  for (size_t i = 0; i < op.is_broadcast.size(); ++i)
    if (!op.is_broadcast[i]) out.push_back(at[i]);
  return out;
}

template <>
std::vector<int> MovementRules<Broadcast>::dims_of(const Broadcast& op, const Tensor&) {
  std::vector<int> image;
  for (size_t i = 0; i < op.is_broadcast.size(); ++i)
    if (!op.is_broadcast[i]) image.push_back(static_cast<int>(i));
  return image;
}

template <>
Ranks MovementRules<Broadcast>::layout(const Broadcast& op, const Tensor&, const Ranks& of) {
  Ranks out;
  size_t next = 0;
  for (bool fresh : op.is_broadcast) out.push_back(fresh ? -1 : of[next++]);
  return out;
}

template <>
bool MovementRules<Broadcast>::view(Exprs& exprs, const Broadcast& op, const Tensor& t,
                                    View& view) {
  for (size_t i = 0; i < op.is_broadcast.size(); ++i)
    if (op.is_broadcast[i]) view.strides.insert(view.strides.begin() + i, nullptr);
  span_inside(exprs, t, op.is_broadcast, view.strides);
  return true;
}

}  // namespace fuser::fusion
