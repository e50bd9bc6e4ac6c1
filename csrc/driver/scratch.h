// Memory of a launch beside its tensors: workspaces, which mean nothing between launches, and the
// counters by which a grid finds its last block.
//
// Counters are 0 before and after every launch: they count with wrap-around and so come back to 0
// by themselves. Launches on one stream run one after another and share them: one slab per stream,
// zeroed when it is made and kept for good. A kernel of a CUDA graph runs on whatever stream the
// graph is launched, so a capture takes fresh counters from the graph's memory, zeroed by a node of
// the graph.
#pragma once

#include <cstdint>

#include "driver/cuda_api.h"

namespace fuser {

// Where memory comes from: the allocator of the call's device and stream.
struct ScratchSource {
  void* context = nullptr;
  // Aligned to 16 bytes at least. Belongs to what is queued on the stream until the caller of
  // run_launch() takes it back; or for good if `keep`, and then from no pool that may end.
  char* (*allocate)(void* context, int64_t bytes, bool keep) = nullptr;
};

inline constexpr int64_t counter_bytes = 4;

// `count` counters that are 0 when the launch queued next on `stream`, which is not capturing,
// starts. The device's context must be current (enter_device). Thread-safe; `source` is called
// without a lock held.
char* stream_counters(int device, CuStream stream, int64_t count, const ScratchSource& source);
// A launch with counters of this stream failed, and may have left them at any value: they are
// zeroed again before the next one.
void distrust_counters(int device, CuStream stream) noexcept;

// Queues zeros into `count` counters.
void zero_counters(char* counters, int64_t count, CuStream stream);

}  // namespace fuser
