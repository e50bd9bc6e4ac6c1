// Worker threads for the blocks of host launches and the tasks of CPU kernels.
//
// The caller works on its own job and waits only for workers that joined it. So a job never waits
// for a free worker, a nested call cannot deadlock, and a core that is busy elsewhere delays
// nothing. Several concurrent callers are the normal case. Workers start on demand, spin briefly
// and then sleep, are detached, and are leaked at exit. A forked child starts without workers.
#pragma once

#include <cstdint>

namespace fuser::host {

// Threads of another runtime. Calls run(context, i) for all i < count, each on a thread of its own
// if the runtime has as many, and returns when all calls have returned.
using Team = void (*)(int count, void (*run)(void* context, int index), void* context);

// Calls run(context, begin, end) on disjoint ranges that cover [0, count). Uses at most `threads`
// threads including the caller, and returns when all calls have returned. `run` must not throw.
// team: threads that run the calls instead of workers of the pool, or nullptr
void parallel_for(uint64_t count, int threads,
                  void (*run)(void* context, uint64_t begin, uint64_t end), void* context,
                  Team team = nullptr);

}  // namespace fuser::host
