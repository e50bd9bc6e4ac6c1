// Uncoalesced accesses of a kernel with reductions: neighbours in memory belong to different rows,
// while the threads of a warp run along one row, or the other way round.
//
// Each element of an uncoalesced access takes a memory transaction of its own. A transposed copy of
// the tensor moves it twice more, but in complete lines (schedulers/transpose.cpp).
#pragma once

#include <vector>

#include "fusion/kernel/problem.h"

namespace fuser::fusion {

// Returns the uncoalesced accesses of a problem with reductions that a copy can replace: accesses
// that are linear and cover complete tensors.
std::vector<size_t> uncoalesced_accesses(const Problem& problem, const std::vector<bool>& in_place);

// Computes the stores of the problem by kernels that transpose operands: uncoalesced reads are
// copied before the main kernel, uncoalesced stores after it. `main`: index of the kernel that
// computes the problem. Empty if there are no uncoalesced accesses.
struct TransposedOperands {
  std::vector<Refined> kernels;
  size_t main = 0;
};
TransposedOperands transpose_operands(ir::Fusion& fusion, Problem& problem,
                                      const std::vector<bool>& in_place, OutputOrders& orders);

}  // namespace fuser::fusion
