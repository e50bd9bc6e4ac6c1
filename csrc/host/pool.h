// Threads that share out the blocks of host launches.
//
// The caller always works on its own job, so a job never waits for a free worker, several callers
// at once are the normal case, and a nested call cannot deadlock. Workers are started when first
// needed, detached, and leaked at exit. A forked child starts with no workers.
#pragma once

#include <cstdint>

namespace fuser {

// Processors this process may run on.
int processor_count();

// Calls run(context, begin, end) on disjoint ranges of at most `grain` that cover [0, count), on at
// most `threads` threads with the caller's among them; returns when all have returned. `run` must
// not throw.
void parallel_for(uint64_t count, uint64_t grain, int threads,
                  void (*run)(void* context, uint64_t begin, uint64_t end), void* context);

}  // namespace fuser
