// Background thread for jobs that no call waits for.
//
// Jobs run in the order in which they were queued, one at a time. They may call the compilers,
// which are Python functions. Therefore the interpreter stops the thread before it ends
// (stop_background()), and a forked child starts with an empty queue and without the thread.
#pragma once

#include <functional>

namespace fuser::driver {

// Queues a job. Returns false if too many jobs are waiting or the process is ending. Blocks only
// for the queue's lock. A job must not throw.
bool run_in_background(std::function<void()> job);

// Returns when the queue is empty and no job runs. The caller must not hold the interpreter's lock.
void wait_for_background();

// Drops queued jobs, waits for the running job, and accepts no more. The caller must not hold the
// interpreter's lock.
void stop_background();

}  // namespace fuser::driver
