// Launches kernels that the system C++ compiler built, as a driver launches cubins: grid blocks in
// parallel over cores, the threads of a block as a loop or, where the kernel has collectives, as
// fibers.
//
// A kernel built with FUSER_DEBUG runs on one thread, blocks and threads in an order drawn from
// HostOptions::seed, every access checked against HostOptions::ranges. The first violation abandons
// the launch and is raised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "device/host_abi.h"
#include "host/module.h"

namespace fuser {

// Memory a kernel may touch: [begin, end).
struct HostRange {
  std::string name;
  char* begin;
  char* end;
  bool writable;
  bool scratch;  // filled with kPoisonByte before a debug launch: its contents mean nothing
};

// What a function of a kernel may keep on the stack of its fiber, where the register arrays live:
// the C++ compiler is told to refuse more (fuser/runtime/host.py). The other half of a stack is for
// what the function calls. Generated kernels take a few KB.
constexpr size_t kFrameBytes = 64 << 10;

struct HostOptions {
  int32_t cluster[3] = {1, 1, 1};
  bool cooperative = false;              // all blocks alive at once, for sync_grid
  size_t stack_bytes = 2 * kFrameBytes;  // of a fiber
  int threads = 0;                       // processors to use; 0 = all of this process
  uint64_t seed = 0;                     // debug: order of blocks and threads
  // Debug: what the kernel may touch, and what its indices are of.
  std::span<const HostRange> ranges = {};
  std::span<const std::string> checked = {};
};

// All ones is a NaN in every floating type, and as an index it lies outside everything.
constexpr unsigned char kPoisonByte = 0xFF;

// args: addresses of the argument values, in order, with the types of the kernel's parameters.
// Raises Launch "host-launch" for a grid that no device takes, Internal "debug-bounds",
// "debug-readonly", "debug-align" and User "index-range-1" (debug builds only), Internal
// "debug-converge" (any build that would otherwise wait forever).
void launch(const HostKernel& kernel, const uint32_t grid[3], const uint32_t block[3],
            size_t shared_bytes, void* const* args, const HostOptions& options);

// What HostLaunch::state points to.
struct LaunchState {
  const HostEntry* entry;
  const HostOptions* options;
};

inline const LaunchState& state_of(const HostLaunch& launch) {
  return *static_cast<const LaunchState*>(launch.state);
}

// Bytes from one block's shared memory to the next one's, in a group of blocks.
inline size_t shared_pitch(const HostLaunch& launch) {
  return (launch.shared_bytes + 127) & ~size_t{127};
}

// 128-byte aligned memory for the shared memory of `blocks` blocks.
struct SharedMemory {
  SharedMemory(const HostLaunch& launch, size_t blocks);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  void poison();

  char* base = nullptr;
  size_t bytes = 0;
};

}  // namespace fuser
