// Uncoalesced access of problems with reductions, and reads that L2 still holds.
#pragma once

#include <vector>

#include "schedulers/scheduler.h"

namespace fuser::schedulers {

// Returns whether the kernel reads a tensor that an earlier kernel of the definition stores. The
// earlier kernel has just traversed the large inputs, so L2 still holds their last elements.
bool reads_earlier(const fusion::Problem& problem);

// has_uncoalesced() returns whether an uncoalesced access is large enough that its sector per
// element dominates. can_transpose_operands() returns whether, in addition, kernels that transpose
// the operands are available.
bool has_uncoalesced(const fusion::Problem& problem, fusion::SizeHints& hints);
bool can_transpose_operands(const fusion::Problem& problem, fusion::SizeHints& hints);

}  // namespace fuser::schedulers
