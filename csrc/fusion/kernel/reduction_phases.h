// Reduction phases. A kernel with reductions has one loop over R for each reduction over R that
// depends on another one, and one more for stores that depend on all of them. A phase is the index
// of a loop: the number of dependent reductions over R that must be complete before it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "fusion/kernel/problem.h"

namespace fuser::fusion {

struct ReductionPhases {
  // By value: reductions over R in its longest dependence chain, including itself.
  std::vector<int> phase;
  std::vector<int> store;  // by access: the loop that stores it, if it varies over R; -1 for reads
  int count = 0;           // length of the longest chain of dependent reductions
};
ReductionPhases reduction_phases(const Problem& problem);
// Returns whether several tasks may reduce a row: one phase, whose result nothing over the reduced
// axes waits for.
bool may_split(const Problem& problem);

// Returns whether a loop computes the value for every element, rather than once between loops.
// `all`: the axes of its group.
bool is_per_element(const Value& value, AxisSet all);

AxisSet used_axes(const std::vector<Value>& values);

// A range of consecutive values of a group, seen as a kernel that reads the values before it.
struct ValueRange {
  const std::vector<Value>& values;  // all values of the group
  AxisSet all = 0;                   // used_axes() of the group
  size_t begin = 0, end = 0;
  std::function<bool(size_t)> stores;  // returns whether a value is stored
};

// The reduction loops that need each value of a range. Loops are numbered as by reduction_phases(),
// but before a Problem exists: for reductions over rows and columns alike. Loops from the last
// distinguished one on count as one.
inline constexpr int max_phases = 64;
struct PhaseUse {
  std::vector<int> first;        // by value from `begin`: first loop that can compute it
  std::vector<uint64_t> phases;  // by value from `begin`: bit set of the loops that compute it
};
PhaseUse phase_use(const ValueRange& range);

// Size of the code of a range. A value counts once per loop that computes it.
struct TextSize {
  int64_t statements = 0;
  int64_t slots = 0;  // issue slots per element (issue_slots.h)
};
TextSize text_size(const ValueRange& range);

}  // namespace fuser::fusion
