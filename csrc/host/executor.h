// Launches of kernels that the system C++ compiler built. Grid blocks run in parallel on CPU cores.
// The threads of a block are a loop, or fibers if the kernel has collectives.
//
// A kernel built with FUSER_DEBUG runs on one thread. The order of its blocks and threads depends
// on HostOptions::seed, and every access is checked against HostOptions::ranges. The first
// violation aborts the launch and is raised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "device/host_abi.h"
#include "host/module.h"

namespace fuser::host {

// Memory that a kernel may access: [begin, end).
struct HostRange {
  std::string name;
  char* begin;
  char* end;
  bool writable;
  bool scratch;  // filled with kPoisonByte before a debug launch, because its contents are
                 // undefined
};

// Maximum bytes of a kernel function's frame on the stack of its fiber, which holds the register
// arrays. The C++ compiler rejects larger frames (fuser/runtime/host.py). The other half of a stack
// is for called functions. Generated kernels take a few KB.
constexpr size_t kFrameBytes = 64 << 10;

struct HostOptions {
  int32_t cluster[3] = {1, 1, 1};
  bool cooperative = false;              // all blocks are resident at once, for sync_grid
  size_t stack_bytes = 2 * kFrameBytes;  // bytes of a fiber's stack
  int threads = 0;    // CPU cores to use; 0 = all cores available to this process
  uint64_t seed = 0;  // debug: seed of the order of blocks and threads
  // Debug: accessible memory, and descriptions of the checked indices.
  std::span<const HostRange> ranges = {};
  std::span<const std::string> checked = {};
};

// A byte of ones: a NaN in every floating type, and an index outside any range.
constexpr unsigned char kPoisonByte = 0xFF;

// Runs the kernel. args: addresses of the argument values, in order, with the types of the kernel's
// parameters. Raises Launch "host-launch" for a grid that no device accepts. Debug builds raise
// Internal "debug-bounds", "debug-readonly", "debug-align" and User "index-range-1". Any build
// raises Internal "debug-converge" instead of a deadlock.
void launch(const HostKernel& kernel, const uint32_t grid[3], const uint32_t block[3],
            size_t shared_bytes, void* const* args, const HostOptions& options);

// Target of HostLaunch::state.
struct LaunchState {
  const HostEntry* entry;
  const HostOptions* options;
};

inline const LaunchState& state_of(const HostLaunch& launch) {
  return *static_cast<const LaunchState*>(launch.state);
}

// Returns the distance in bytes between the shared memory of neighbouring blocks of a group.
inline size_t shared_pitch(const HostLaunch& launch) {
  return (launch.shared_bytes + 127) & ~size_t{127};
}

// Memory for the shared memory of `blocks` blocks, aligned to 128 bytes.
struct SharedMemory {
  SharedMemory(const HostLaunch& launch, size_t blocks);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  void poison();

  char* base = nullptr;
  size_t bytes = 0;
};

}  // namespace fuser::host
