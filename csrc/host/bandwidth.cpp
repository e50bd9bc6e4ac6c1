#include "host/bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>

#include "base/processor.h"
#include "host/pool.h"

namespace fuser::host {
namespace {

constexpr int64_t kChunk = 64 << 10;  // bytes of a task
constexpr std::chrono::milliseconds kLongest{20};
constexpr int kFewest = 3;

struct Copy {
  char* to;
  const char* from;
  int64_t bytes;
};

void copy_chunks(void* context, uint64_t begin, uint64_t end) {
  const Copy& copy = *static_cast<const Copy*>(context);
  const int64_t first = static_cast<int64_t>(begin) * kChunk;
  const int64_t last = std::min(copy.bytes, static_cast<int64_t>(end) * kChunk);
  std::memcpy(copy.to + first, copy.from + first, static_cast<size_t>(last - first));
}

}  // namespace

double copy_bandwidth(int64_t bytes) {
  using Clock = std::chrono::steady_clock;
  const auto memory =
      std::make_unique<char[]>(2 * static_cast<size_t>(bytes));  // pages are written
  Copy copy{memory.get() + bytes, memory.get(), bytes};
  const auto chunks = static_cast<uint64_t>((bytes + kChunk - 1) / kChunk);
  const Clock::time_point start = Clock::now();
  double best = 0;
  for (int i = 0; i < kFewest || Clock::now() - start < kLongest; ++i) {
    const Clock::time_point before = Clock::now();
    parallel_for(chunks, processor().cores, copy_chunks, &copy);
    const std::chrono::duration<double> spent = Clock::now() - before;
    best = std::max(best, 2 * static_cast<double>(bytes) / std::max(spent.count(), 1e-9));
  }
  return best;
}

}  // namespace fuser::host
