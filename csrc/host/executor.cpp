#include "host/executor.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/processor.h"
#include "host/collectives.h"
#include "host/debug.h"
#include "host/pool.h"

namespace fuser::host {
namespace {

constexpr uint32_t kMaxBlockThreads = 1024;
constexpr int32_t kMaxClusterBlocks = 16;
constexpr size_t kMaxSharedBytes = 1 << 20;

// Number of threads in the grid up to which a launch runs on its caller, because waking another
// core takes longer.
constexpr uint64_t kInlinePlainThreads = 2048;
constexpr uint64_t kInlineFiberThreads = 256;

constexpr HostRuntime kRuntime = {
    kHostAbi,     run_fibers, sync_scope,   shuffle_lanes, ballot_lanes,
    cluster_rank, map_shared, check_access, check_index,
};

void check_shape(const HostEntry& entry, const uint32_t grid[3], const uint32_t block[3],
                 size_t shared_bytes, const HostOptions& options) {
  const auto shape = [](const auto* v) { return text("(", v[0], ", ", v[1], ", ", v[2], ")"); };
  const uint64_t threads = uint64_t{block[0]} * block[1] * block[2];
  FUSER_CHECK(threads >= 1 && threads <= kMaxBlockThreads, Launch, "host-launch", "kernel ",
              entry.name, ": block ", shape(block), " has ", threads, " threads, expected 1 to ",
              kMaxBlockThreads);
  FUSER_CHECK(grid[0] <= INT32_MAX && grid[1] <= UINT16_MAX && grid[2] <= UINT16_MAX, Launch,
              "host-launch", "kernel ", entry.name, ": grid ", shape(grid),
              " is too large, expected at most (2147483647, 65535, 65535)");
  FUSER_CHECK(shared_bytes <= kMaxSharedBytes, Launch, "host-launch", "kernel ", entry.name, ": ",
              shared_bytes, " bytes of shared memory, expected at most ", kMaxSharedBytes);
  int64_t cluster_blocks = 1;
  bool divides = true;
  for (int axis = 0; axis < 3; ++axis) {
    const int32_t extent = options.cluster[axis];
    cluster_blocks *= std::clamp(extent, 0, kMaxClusterBlocks + 1);
    divides &= extent > 0 && grid[axis] % static_cast<uint32_t>(extent) == 0;
  }
  FUSER_CHECK(divides && cluster_blocks <= kMaxClusterBlocks, Launch, "host-launch", "kernel ",
              entry.name, ": cluster ", shape(options.cluster), " of grid ", shape(grid),
              ": expected at most ", kMaxClusterBlocks, " blocks that divide the grid");
}

// A launch whose chunks run on several threads. The first fault is kept, and later chunks are
// skipped.
struct ParallelLaunch {
  const HostLaunch& launch;
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::exception_ptr error;
};

void run_units(const HostLaunch& launch, uint64_t begin, uint64_t end) {
  HostLaunch part = launch;
  part.unit_begin = begin;
  part.unit_end = end;
  const HostEntry& entry = *state_of(launch).entry;
  if (entry.collectives || launch.shared_bytes == 0) return entry.run(&part);
  SharedMemory shared(launch, 1);
  if (entry.debug) shared.poison();
  part.shared = shared.base;
  entry.run(&part);
}

void run_chunk(void* context, uint64_t begin, uint64_t end) {
  ParallelLaunch& parallel = *static_cast<ParallelLaunch*>(context);
  if (parallel.failed.load(std::memory_order_relaxed)) return;
  try {
    run_units(parallel.launch, begin, end);
  } catch (...) {
    std::lock_guard lock(parallel.mutex);
    if (!parallel.failed.exchange(true)) parallel.error = std::current_exception();
  }
}

void run_parallel(const HostLaunch& launch, uint64_t units, int threads) {
  ParallelLaunch parallel{launch};
  parallel_for(units, threads, run_chunk, &parallel);
  if (parallel.error) std::rethrow_exception(parallel.error);
}

// Runs one unit at a time in random order on this thread, so that a seed replays the run.
void run_debug(HostLaunch& launch, uint64_t units, const HostOptions& options) {
  for (const HostRange& range : options.ranges) {
    if (range.scratch)
      std::memset(range.begin, kPoisonByte, static_cast<size_t>(range.end - range.begin));
  }
  OrderRandom random{options.seed};
  std::vector<uint64_t> order(units);
  std::iota(order.begin(), order.end(), uint64_t{0});
  shuffle_order(order.data(), units, random);
  std::vector<uint32_t> threads(
      static_cast<size_t>(launch.block[0] * launch.block[1] * launch.block[2]));
  std::iota(threads.begin(), threads.end(), 0u);
  launch.thread_order = threads.data();
  for (const uint64_t unit : order) {
    shuffle_order(threads.data(), threads.size(), random);
    run_units(launch, unit, unit + 1);
  }
}

}  // namespace

SharedMemory::SharedMemory(const HostLaunch& launch, size_t blocks)
    : bytes(blocks * shared_pitch(launch)) {
  if (bytes == 0) return;
  base = static_cast<char*>(std::aligned_alloc(128, bytes));
  if (!base) throw std::bad_alloc();
}

SharedMemory::~SharedMemory() { std::free(base); }

void SharedMemory::poison() {
  if (bytes) std::memset(base, kPoisonByte, bytes);
}

void launch(const HostKernel& kernel, const uint32_t grid[3], const uint32_t block[3],
            size_t shared_bytes, void* const* args, const HostOptions& options) {
  const HostEntry& entry = *kernel.entry;
  const uint64_t blocks = uint64_t{grid[0]} * grid[1] * grid[2];
  if (blocks == 0) return;
  check_shape(entry, grid, block, shared_bytes, options);

  LaunchState state{&entry, &options};
  HostLaunch launch{};
  launch.runtime = &kRuntime;
  launch.state = &state;
  launch.args = args;
  launch.cooperative = entry.collectives && options.cooperative;
  launch.shared_bytes = shared_bytes;
  for (int axis = 0; axis < 3; ++axis) {
    launch.grid[axis] = static_cast<int32_t>(grid[axis]);
    launch.block[axis] = static_cast<int32_t>(block[axis]);
    launch.cluster[axis] = options.cluster[axis];
  }
  uint64_t units = blocks;  // a plain kernel has one unit per block: clusters have no effect on it
  if (launch.cooperative) {
    units = 1;
  } else if (entry.collectives) {
    units /= static_cast<uint64_t>(launch.cluster[0] * launch.cluster[1] * launch.cluster[2]);
  }
  if (entry.debug) return run_debug(launch, units, options);

  const uint64_t threads = blocks * block[0] * block[1] * block[2];
  if (units == 1 || threads <= (entry.collectives ? kInlineFiberThreads : kInlinePlainThreads))
    return run_units(launch, 0, units);
  run_parallel(launch, units, options.threads > 0 ? options.threads : processor().cores);
}

}  // namespace fuser::host
