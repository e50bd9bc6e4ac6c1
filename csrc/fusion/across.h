// Tensors that lie across the rows of a kernel with reductions: neighbours in memory belong to
// different rows, while the lanes of its threads run along one (or the other way round).
//
// Read or stored there, each element takes a transaction of its own. A transposed copy moves the
// tensor twice more, but whole lines of it (schedulers/transpose.cpp).
#pragma once

#include <vector>

#include "fusion/facts.h"

namespace fuser {

// The accesses that lie across the lanes of a problem with reductions and may be copied: linear,
// and over whole tensors.
std::vector<size_t> accesses_across(Problem& problem, const std::vector<bool>& in_place);

// The same stores by kernels that transpose: what is read across the lanes is copied before, what
// is stored across them after. `main`: which of them is the problem's own. Empty where nothing lies
// across.
struct AlongLanes {
  std::vector<Refined> kernels;
  size_t main = 0;
};
AlongLanes along_lanes(Fusion& fusion, Problem& problem, const std::vector<bool>& in_place,
                       OutputOrders& orders);

}  // namespace fuser
