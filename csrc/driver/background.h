// The one thread that does what no call waits for.
//
// It runs jobs one after another, in the order given. Jobs may call the compilers, which are
// Python's; therefore the interpreter stops it before it ends (stop_background()), and a forked
// child starts with an empty queue and no thread.
#pragma once

#include <functional>

namespace fuser {

// Queues a job; false when too many wait already or the process is ending. Never blocks for longer
// than a queue is locked. What a job throws is its own affair: it must not.
bool run_in_background(std::function<void()> job);

// Returns when nothing is queued and nothing runs. Without the interpreter's lock only.
void wait_for_background();

// Drops what is queued, waits for the job that runs, and takes no more. Without the interpreter's
// lock only.
void stop_background();

}  // namespace fuser
