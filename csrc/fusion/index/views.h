// Views: outputs that no kernel stores, because all their elements are already in an input or in
// the result of a library call.
#pragma once

#include <optional>
#include <vector>

#include "fusion/kernel/problem.h"
#include "ir/fusion.h"

namespace fuser::fusion {

struct View {
  const ir::Tensor* base = nullptr;  // an input, or a result of a library call
  std::vector<ir::Expr> strides;     // by dim, in elements
  // Elements from the first element of the base to the first of the view.
  ir::Expr offset = nullptr;
};

// Returns the input or library result at the end of the chain of movement ops that lead to
// `tensor`. nullptr if an op on the way computes elements.
const ir::Tensor* base_of(const ir::Tensor& tensor);
// Returns the tensor as a view of its base, for inputs of these layouts. nullopt if it has no base,
// if it merges dims that are not adjacent in memory, or if it flips dims. stride_order() and set()
// request memory of their own and are no views.
std::optional<View> view_of(ir::Fusion& fusion, const ir::Tensor& tensor,
                            const std::vector<LayoutClass>& layouts);

// Sets the strides of the dims in `which`, which have size 1, as torch does: to the extent of the
// dims inside. Their values do not matter.
void span_inside(ir::Exprs& exprs, const ir::Tensor& t, const std::vector<bool>& which,
                 std::vector<ir::Expr>& strides);

}  // namespace fuser::fusion
