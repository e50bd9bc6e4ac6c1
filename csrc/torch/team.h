// Torch's threads for launches on the CPU.
//
// Threads of a second pool compete for the cores with torch's OpenMP threads, which spin for
// milliseconds after each op.
#pragma once

#include "host/pool.h"

namespace fuser::bridge {

// Returns a function that runs on torch's threads. Returns nullptr in a forked child, because the
// parent's OpenMP threads do not exist there, and if this build cannot use OpenMP.
host::Team team();

}  // namespace fuser::bridge
