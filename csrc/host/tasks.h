// Launches of CPU kernels (docs/design/cpu.md).
#pragma once

#include <cstdint>

#include "host/module.h"
#include "host/pool.h"

namespace fuser::host {

// Runs the tasks [0, tasks) of a CPU kernel on at most `threads` threads. args: addresses of the
// argument values, in order, with the types of the kernel's parameters. team: as in parallel_for
void run_tasks(const HostKernel& kernel, int64_t tasks, void* const* args, int threads,
               Team team = nullptr);

}  // namespace fuser::host
