// Outputs that no kernel needs to store: all their elements lie in an input already, or in what a
// library call made.
#pragma once

#include <optional>
#include <vector>

#include "fusion/facts.h"
#include "ir/fusion.h"

namespace fuser {

struct View {
  const Tensor* base = nullptr;  // an input, or a result of a library call
  std::vector<Expr> strides;     // by dim, in elements
  Expr offset = nullptr;         // of its first element from that of the base
};

// What the tensor would be a view of: the input or library result at the end of the ops that move
// its elements; nullptr where one computes them.
const Tensor* base_of(const Tensor& tensor);
// The tensor as a view of its base, inputs having these layouts, as torch's slices, permutes and
// reshapes are. Nothing where it has none, dims are merged that lie apart, or dims run backwards;
// stride_order() and set() ask for memory of their own.
std::optional<View> view_of(Fusion& fusion, const Tensor& tensor,
                            const std::vector<LayoutClass>& layouts);

}  // namespace fuser
