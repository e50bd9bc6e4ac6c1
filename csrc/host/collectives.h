// Threads of a group of blocks as fibers that meet at barriers. A group is one block, the blocks of
// a cluster, or the whole grid of a cooperative launch. It runs on one operating-system thread, so
// meetings need no atomics.
#pragma once

#include <cstdint>

#include "device/host_abi.h"

namespace fuser::host {

// Functions of HostRuntime.
void run_fibers(const HostLaunch* launch,
                void (*thread_main)(const HostLaunch*, const HostPosition*));
void sync_scope(void* fiber, uint32_t scope);
uint64_t shuffle_lanes(void* fiber, uint64_t bits, uint32_t mode, int32_t operand);
uint32_t ballot_lanes(void* fiber, uint32_t predicate);
int32_t cluster_rank(void* fiber);
char* map_shared(void* fiber, char* address, int32_t rank);

// Shared memory that a fiber may access: the memory of its cluster, `blocks` areas that are
// shared_pitch() bytes apart.
struct SharedSpan {
  char* base;
  int32_t blocks;
};
SharedSpan cluster_shared(void* fiber);

}  // namespace fuser::host
