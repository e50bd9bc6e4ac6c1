// Outputs that no kernel needs to store: all their elements lie in an input already.
#pragma once

#include <optional>
#include <vector>

#include "fusion/facts.h"
#include "ir/fusion.h"

namespace fuser {

struct InputView {
  int input = 0;
  std::vector<Expr> strides;  // by dim, in elements
  Expr offset = nullptr;      // of its first element from that of the input
};

// The tensor as a view of an input of these layouts, as torch's slices, permutes and reshapes are.
// Nothing where an element is computed, dims are merged that lie apart, or dims run backwards;
// stride_order() and set() ask for memory of their own.
std::optional<InputView> input_view(Fusion& fusion, const Tensor& tensor,
                                    const std::vector<LayoutClass>& layouts);

}  // namespace fuser
