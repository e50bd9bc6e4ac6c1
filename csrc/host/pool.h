// Worker threads for the blocks of host launches.
//
// The caller works on its own job, so a job never waits for a free worker and a nested call cannot
// deadlock. Several concurrent callers are the normal case. Workers start on demand, are detached,
// and are leaked at exit. A forked child starts without workers.
#pragma once

#include <cstdint>

namespace fuser {

// Calls run(context, begin, end) on disjoint ranges of at most `grain` that cover [0, count). Uses
// at most `threads` threads including the caller, and returns when all calls have returned. `run`
// must not throw.
void parallel_for(uint64_t count, uint64_t grain, int threads,
                  void (*run)(void* context, uint64_t begin, uint64_t end), void* context);

}  // namespace fuser
