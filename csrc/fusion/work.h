// What values take to compute, as the cost model counts it.
#pragma once

#include <cstdint>
#include <span>

#include "fusion/access.h"

namespace fuser {

// Issue slots of one thread's instructions for one element of the value: what the rows of the
// tables say of its op, a slot for each conversion and access. Addresses and loops, which depend on
// the plan, are not counted.
int slots(const Value& value);

// The same for all elements of a kernel. extents: by axis.
double issue_slots(const Refined& refined, std::span<const int64_t> extents);

// Issue slots that pass while a byte moves, where decisions must hold on any machine: 5 on an H200,
// 8 on an H100, 10 on an A100, more on those with narrow memory.
inline constexpr double slots_per_byte = 6.0;

// How long a kernel takes for each element, in issue slots: its bytes or its instructions.
inline double time_of(double bytes, double slots) {
  return slots > bytes * slots_per_byte ? slots : bytes * slots_per_byte;
}

}  // namespace fuser
