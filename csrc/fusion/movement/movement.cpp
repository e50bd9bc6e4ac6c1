// Applies the rules of movement ops: the statement that adds one, and the step to its operand.
#include "base/error.h"
#include "fusion/build/define.h"
#include "fusion/build/rules.h"
#include "fusion/movement/movement_rules.h"

namespace fuser::fusion {

using namespace ir;

const Tensor* movement(Fusion& fusion, Movement op, std::string location) {
  return std::visit(
      [&]<class D>(D& d) {
        std::vector<Expr> shape = MovementRules<D>::shape(fusion, d, location);
        const DType dtype = d.arg->dtype;
        return rules::append(fusion, dtype, std::move(shape), std::move(d), std::move(location));
      },
      op);
}

bool is_movement(const Tensor& t) {
  return std::visit([]<class D>(const D&) { return MovementOp<D>; }, t.definition);
}

Point step(Coordinates& coordinates, const Point& p) {
  return std::visit(
      [&]<class D>(const D& d) -> Point {
        if constexpr (MovementOp<D>)
          return {d.arg, MovementRules<D>::operand_at(coordinates, d, *p.tensor, p.at)};
        FUSER_ASSERT(false, "t", p.tensor->id, " does not move elements");
      },
      p.tensor->definition);
}

std::vector<int> same_dims(int rank) { return row_major(rank); }

}  // namespace fuser::fusion
