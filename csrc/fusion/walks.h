// What the walks of a kernel with reductions are for: R is walked once for each reduction over it
// that waits for another, and once more for what waits for all of them.
#pragma once

#include <vector>

#include "fusion/facts.h"

namespace fuser {

struct Walks {
  std::vector<int> phase;  // by value: the reductions over R that it waits for, its own included
  std::vector<int> store;  // by access: the walk that stores it, where it is over R; reads: -1
  int phases = 0;          // number of reductions that wait for each other
};
Walks walks_of(const Problem& problem);

}  // namespace fuser
