// Rules of the movement ops (ir/movement.h). NAME.cpp of this folder has the rules of one op; an op
// without one of them does not link. movement.cpp applies the rules.
#pragma once

#include <string>
#include <vector>

#include "fusion/index/kernel_builder.h"
#include "fusion/index/layouts.h"
#include "fusion/index/views.h"
#include "ir/fusion.h"

namespace fuser::fusion {

template <class D>
struct MovementRules {
  // Checks and normalizes the arguments, and returns the sizes of the result. Raises ShapeError or
  // DTypeError.
  static std::vector<ir::Expr> shape(ir::Fusion& fusion, D& op, const std::string& location);
  // Returns the coordinates at which the operand is read for coordinates `at` of the result `t`.
  static std::vector<ir::Expr> operand_at(Coordinates& coordinates, const D& op,
                                          const ir::Tensor& t, const std::vector<ir::Expr>& at);
  // Returns, for each dim of the operand, the dim of the result `t` that indexes it, or -1.
  static std::vector<int> dims_of(const D& op, const ir::Tensor& t);
  // Returns the layout of the result `t` for an operand of layout `of`, as torch has it.
  static Ranks layout(const D& op, const ir::Tensor& t, const Ranks& of);
  // Changes a view of the operand to a view of the result `t`. Returns false if there is none.
  static bool view(ir::Exprs& exprs, const D& op, const ir::Tensor& t, View& view);
};

// Returns dims 0 .. rank - 1, each at its own index.
std::vector<int> same_dims(int rank);

}  // namespace fuser::fusion
