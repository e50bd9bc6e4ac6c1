#include "driver/scratch.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

namespace fuser::driver {
namespace {

constexpr int64_t smallest_slab = 1024;  // counters: one page, more than most kernels need

struct Slab {
  char* memory = nullptr;
  int64_t count = 0;
  bool zero = false;  // zeros are queued before the next launch
};

struct Slabs {
  std::mutex mutex;
  std::map<std::pair<int, uint64_t>, Slab> by_stream;  // by device and stream id
};

// Returns the slabs. They and their memory are never freed: kernels may run until the process ends.
Slabs& slabs() {
  static auto* s = new Slabs;
  return *s;
}

}  // namespace

void zero_counters(char* counters, int64_t count, CuStream stream) {
  check_cuda(cuda_api().cuMemsetD32Async(reinterpret_cast<uint64_t>(counters), 0,
                                         static_cast<size_t>(count), stream),
             "cuda-launch", "zeroing ", count, " counters");
}

char* stream_counters(int device, CuStream stream, int64_t count, const ScratchSource& source) {
  Slabs& s = slabs();
  const std::pair<int, uint64_t> key{device, stream_id(stream)};
  int64_t wanted = std::max(count, smallest_slab);
  {
    const std::lock_guard lock(s.mutex);
    Slab& slab = s.by_stream[key];
    if (slab.count >= count) {
      // Under the lock: a thread that finds `zero` set launches after these zeros.
      if (!slab.zero) zero_counters(slab.memory, slab.count, stream);
      slab.zero = true;
      return slab.memory;
    }
    wanted = std::max(wanted, 2 * slab.count);
  }
  char* const memory = source.allocate(source.context, wanted * counter_bytes, true);
  zero_counters(memory, wanted, stream);
  const std::lock_guard lock(s.mutex);
  // The smaller slab stays allocated, because another thread may be about to launch with it.
  // Doubling keeps the sum of all slabs below twice the last one.
  Slab& slab = s.by_stream[key];
  if (slab.count < wanted) slab = {.memory = memory, .count = wanted, .zero = true};
  return memory;
}

void invalidate_counters(int device, CuStream stream) noexcept {
  Slabs& s = slabs();
  unsigned long long id = 0;
  // After a device fault no further launch works, so counters do not matter.
  if (cuda_api().cuStreamGetId(stream, &id) != 0) return;
  const std::lock_guard lock(s.mutex);
  const auto slab = s.by_stream.find({device, id});
  if (slab != s.by_stream.end()) slab->second.zero = false;
}

}  // namespace fuser::driver
