// Reduction phases. A kernel with reductions has one loop over R for each reduction over R that
// depends on another one, and one more for stores that depend on all of them. A phase is the index
// of a loop: the number of dependent reductions over R that must be complete before it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "fusion/facts.h"

namespace fuser {

struct Walks {
  // By value: reductions over R in its longest dependence chain, including itself.
  std::vector<int> phase;
  std::vector<int> store;  // by access: the loop that stores it, if it varies over R; -1 for reads
  int phases = 0;          // length of the longest chain of dependent reductions
};
Walks walks_of(const Problem& problem);

// Returns whether a loop computes the value for every element, rather than once between loops.
// `all`: the axes of its group.
bool is_walked(const Value& value, AxisSet all);

AxisSet used_axes(const std::vector<Value>& values);

// A range of consecutive values of a group, seen as a kernel that reads the values before it.
struct ValueRange {
  const std::vector<Value>& values;  // all values of the group
  AxisSet all = 0;                   // used_axes() of the group
  size_t begin = 0, end = 0;
  std::function<bool(size_t)> stores;  // returns whether a value is stored
};

// The reduction loops that need each value of a range. Loops are numbered as by walks_of(), but
// before a Problem exists: for reductions over rows and columns alike. Loops from the last
// distinguished one on count as one.
inline constexpr int most_walks = 64;
struct Needed {
  std::vector<int> walk;        // by value from `begin`: first loop that can compute it
  std::vector<uint64_t> walks;  // by value from `begin`: bit set of the loops that compute it
};
Needed needed_by_walks(const ValueRange& range);

// Size of the code of a range. A value counts once per loop that computes it.
struct TextSize {
  int64_t statements = 0;
  int64_t slots = 0;  // issue slots per element (work.h)
};
TextSize text_size(const ValueRange& range);

}  // namespace fuser
