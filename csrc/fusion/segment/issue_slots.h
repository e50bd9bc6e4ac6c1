// Issue slots of values and kernels, for the cost model (cost/model.h).
#pragma once

#include <cstdint>
#include <span>

#include "fusion/index/access.h"

namespace fuser::fusion {

// Returns the issue slots of one thread's instructions for one element of the value: the cost
// column of its op, and one slot for each conversion and access. Address arithmetic and loops are
// not counted, because they depend on the plan.
int slots(const Value& value);

// Returns the issue slots of all elements of a kernel. extents: by axis.
double issue_slots(const Refined& refined, std::span<const int64_t> extents);

}  // namespace fuser::fusion
