// Cost model: issue slots and memory time of values.
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

// Machine balance: issue slots that pass while one byte moves. One value for all machines, because
// decisions must not depend on the machine. It is at the low end of data center GPUs; GPUs with
// narrow memory have more slots per byte.
inline constexpr double machine_balance = 6.0;

// Returns the time per element in issue slots: of its bytes or its instructions, whichever is
// longer.
inline double time_of(double bytes, double slots) {
  return slots > bytes * machine_balance ? slots : bytes * machine_balance;
}

}  // namespace fuser::fusion
