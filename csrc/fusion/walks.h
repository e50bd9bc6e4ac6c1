// What the walks of a kernel with reductions are for: R is walked once for each reduction over it
// that waits for another, and once more for what waits for all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "fusion/facts.h"

namespace fuser {

struct Walks {
  std::vector<int> phase;  // by value: the reductions over R that it waits for, its own included
  std::vector<int> store;  // by access: the walk that stores it, where it is over R; reads: -1
  int phases = 0;          // number of reductions that wait for each other
};
Walks walks_of(const Problem& problem);

// Does a walk compute it for each element, rather than once between walks? `all`: the axes of its
// group.
bool is_walked(const Value& value, AxisSet all);

AxisSet used_axes(const std::vector<Value>& values);

// Values of a group that follow each other, as a kernel that reads those before them.
struct ValueRange {
  const std::vector<Value>& values;  // of the group
  AxisSet all = 0;                   // used_axes() of the group
  size_t begin = 0, end = 0;
  std::function<bool(size_t)> stores;  // by value
};

// The walks of such a kernel, numbered as by walks_of(), before there is a Problem: for reductions
// over rows and columns alike. Walks beyond the last that is told apart count as that one.
inline constexpr int most_walks = 64;
struct Needed {
  std::vector<int> walk;        // by value, from the first: the first that can compute it
  std::vector<uint64_t> walks;  // which of them compute it, as bits
};
Needed needed_by_walks(const ValueRange& range);

// How large it is: a value counts for each walk that computes it again.
struct TextSize {
  int64_t statements = 0;
  int64_t slots = 0;  // issue slots of an element (work.h)
};
TextSize text_size(const ValueRange& range);

}  // namespace fuser
