// The threads of a group of blocks as fibers that meet at barriers: one block, the blocks of a
// cluster, or the whole grid of a cooperative launch. A group lives on one operating-system thread,
// so meeting costs no atomics.
#pragma once

#include <cstdint>

#include "device/host_abi.h"

namespace fuser {

// The functions of HostRuntime.
void run_fibers(const HostLaunch* launch,
                void (*thread_main)(const HostLaunch*, const HostPosition*));
void sync_scope(void* fiber, uint32_t scope);
uint64_t shuffle_lanes(void* fiber, uint64_t bits, uint32_t mode, int32_t operand);
uint32_t ballot_lanes(void* fiber, uint32_t predicate);
int32_t cluster_rank(void* fiber);
char* map_shared(void* fiber, char* address, int32_t rank);

// Shared memory that a fiber may touch: that of its cluster, `blocks` pieces shared_pitch() apart.
struct SharedSpan {
  char* base;
  int32_t blocks;
};
SharedSpan cluster_shared(void* fiber);

}  // namespace fuser
