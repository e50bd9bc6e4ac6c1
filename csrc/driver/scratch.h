// Memory of a launch besides its tensors: workspaces, whose contents are not kept between launches,
// and the counters by which a grid finds its last block.
//
// Counters are 0 before and after every launch: they wrap around, and so return to 0 by themselves.
// Launches on one stream run in sequence and share counters: one slab per stream, zeroed at its
// creation and never freed. A kernel of a CUDA graph runs on any stream that the graph is launched
// on. So a capture takes new counters from the graph's memory, which a node of the graph zeroes.
#pragma once

#include <cstdint>

#include "driver/cuda/cuda_api.h"

namespace fuser::driver {

// Allocator of the call's device and stream.
struct ScratchSource {
  void* context = nullptr;
  // Returns memory aligned to at least 16 bytes. It stays valid for work queued on the stream until
  // the caller of run_launch() frees it. If `keep`, it is never freed and comes from no pool that
  // may be destroyed.
  char* (*allocate)(void* context, int64_t bytes, bool keep) = nullptr;
};

inline constexpr int64_t counter_bytes = 4;

// Returns `count` counters that are 0 when the next launch on `stream` starts. The stream must not
// be capturing. The device's context must be current (enter_device). Thread-safe; `source` is
// called without a lock held.
char* stream_counters(int device, CuStream stream, int64_t count, const ScratchSource& source);
// Invalidates the stream's counters after a failed launch, which may have left any value. They are
// zeroed again before the next launch.
void invalidate_counters(int device, CuStream stream) noexcept;

// Queues zeros into `count` counters.
void zero_counters(char* counters, int64_t count, CuStream stream);

}  // namespace fuser::driver
