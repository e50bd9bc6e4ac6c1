// What the two sides of the host executor agree upon: structs and function pointers, nothing else.
//
// One side is libfuser (csrc/host), the other a shared object that the system C++ compiler built
// from kernel text (host_cuda.h includes this file). Plain C++17 and plain data, so that the sides
// need not share a compiler or a standard library. Any change of layout or meaning raises kHostAbi.
#pragma once

#include <stdint.h>

namespace fuser {

constexpr uint32_t kHostAbi = 4;
constexpr int32_t kWarpSize = 32;

// Who takes part in a barrier. Collectives are convergent: every thread of the scope arrives, or it
// is an error.
enum HostScope : uint32_t { kScopeWarp, kScopeBlock, kScopeCluster, kScopeGrid };

// Where a lane's shuffled value comes from; a source outside the warp gives the lane's own value,
// as on the GPU.
enum HostShuffle : uint32_t { kShuffleIndex, kShuffleUp, kShuffleDown, kShuffleXor };

// One thread of one block.
struct HostPosition {
  int32_t thread[3];
  int32_t block[3];
  char* shared;  // dynamic shared memory of the block, 128-byte aligned; null when it has none
  void* fiber;   // the executor's handle for collectives; null in a plain kernel
};

struct HostLaunch;

struct HostRuntime {
  uint32_t abi;

  // Runs every thread of the launch's units through `thread_main`, as fibers.
  void (*run_fibers)(const HostLaunch* launch,
                     void (*thread_main)(const HostLaunch*, const HostPosition*));

  // Collectives of a fiber. shuffle moves 8 bytes; ballot gives one bit a lane.
  void (*sync)(void* fiber, uint32_t scope);
  uint64_t (*shuffle)(void* fiber, uint64_t bits, uint32_t mode, int32_t operand);
  uint32_t (*ballot)(void* fiber, uint32_t predicate);
  int32_t (*cluster_rank)(void* fiber);
  char* (*map_shared)(void* fiber, char* address, int32_t rank);

  // Debug builds only: return when the access is right, abandon the launch when it is not.
  void (*check_access)(const HostLaunch* launch, const HostPosition* position, const void* address,
                       int64_t bytes, int64_t align, uint32_t store);
  void (*check_index)(const HostLaunch* launch, const HostPosition* position, int64_t index,
                      int64_t size, int32_t number);
};

// A run of consecutive units of a grid: blocks, or clusters of a cluster launch, or the whole grid
// (one unit) of a cooperative launch. Units are numbered x fastest.
struct HostLaunch {
  const HostRuntime* runtime;
  void* state;        // the executor's own
  void* const* args;  // addresses of the argument values, as cuLaunchKernel takes them
  int32_t grid[3];
  int32_t block[3];
  int32_t cluster[3];
  uint32_t cooperative;
  uint64_t unit_begin;
  uint64_t unit_end;
  uint64_t shared_bytes;         // of one block
  char* shared;                  // of a plain kernel, whose blocks run one after another
  const uint32_t* thread_order;  // of a block; debug builds of plain kernels
};

// The first index of a launch that is out of range. Tasks of a CPU kernel set it, its launch raises.
struct IndexStatus {
  uint32_t failed;  // 1: the other fields are set
  int32_t number;   // of the check, as in HostRuntime::check_index
  int64_t index;
  int64_t size;
};

// What a built object exports for kernel i under the name fuser_entry_<i>.
struct HostEntry {
  uint32_t abi;
  uint32_t collectives;
  uint32_t debug;
  const char* name;
  void (*run)(const HostLaunch*);  // null in a CPU kernel
  // Runs tasks [begin, end) of a CPU kernel; null in a kernel of the host executor. One more
  // argument follows those of the kernel: the address of an IndexStatus.
  void (*run_tasks)(void* const* args, int64_t begin, int64_t end);
};

}  // namespace fuser
