// What a kernel has to compute, as the cost model counts it.
#pragma once

#include <cstdint>
#include <span>

#include "fusion/access.h"

namespace fuser {

// Issue slots of one thread's instructions for all values of a kernel: what the rows of the tables
// say of each op, a slot for each conversion and access, times the elements. Addresses and loops,
// which depend on the plan, are not counted. extents: by axis.
double issue_slots(const Refined& refined, std::span<const int64_t> extents);

}  // namespace fuser
