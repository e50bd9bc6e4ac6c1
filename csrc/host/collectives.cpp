#include "host/collectives.h"

#include <exception>
#include <vector>

#include "base/error.h"
#include "host/debug.h"
#include "host/executor.h"
#include "host/fiber.h"

namespace fuser::host {
namespace {

// Kind of collective that a fiber waits in: barriers of the four scopes, then shuffles by mode,
// then ballots.
enum MeetingKind : uint32_t { kBarrier = 0, kShuffle = 4, kBallot = 8 };

const char* const kMeetingNames[] = {"sync_warp",    "sync_block",  "sync_cluster",
                                     "sync_grid",    "shuffle",     "shuffle_up",
                                     "shuffle_down", "shuffle_xor", "vote"};

// Meeting point of the fibers [first, first + members), used repeatedly.
struct Meeting {
  uint32_t first = 0;
  uint32_t members = 0;
  uint32_t arrived = 0;
  uint32_t rounds = 0;
  uint32_t kind = 0;
};

// Values are double-buffered by parity of the round. A thread can be at most one round ahead of the
// other threads of its warp, which may still read.
struct Warp {
  Meeting meeting;
  uint64_t values[2][kWarpSize];
  uint32_t ballots[2];
};

struct Group;

struct Fiber {
  Context context;
  Group* group;
  Warp* warp;
  Meeting* block;
  Meeting* cluster;
  uint32_t index;
  uint32_t waits_in;  // a MeetingKind, while suspended
  int32_t lane;
  int32_t block_in_group;
  bool finished;
  HostPosition at;
};

struct Group {
  const HostLaunch* launch;
  void (*thread_main)(const HostLaunch*, const HostPosition*);
  int32_t blocks;
  int32_t cluster_size;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  std::vector<Meeting> block_meetings;
  std::vector<Meeting> cluster_meetings;
  Meeting grid;
  Context caller;
  std::exception_ptr error;
  uint32_t running;
  bool shuffled;  // debug: the next fiber is selected at random
  OrderRandom random;
  char* shared;
  // Fibers that can continue, each at most once. The last entry runs first, so that threads
  // released by a shuffle reach the next one while their stacks are in cache.
  std::vector<uint32_t> ready;
  uint32_t ready_count;
};

void push(Group& group, uint32_t fiber) { group.ready[group.ready_count++] = fiber; }

Fiber* pop(Group& group) {
  if (group.ready_count == 0) return nullptr;
  uint32_t& last = group.ready[group.ready_count - 1];
  if (group.shuffled) std::swap(last, group.ready[group.random.below(group.ready_count)]);
  --group.ready_count;
  return &group.fibers[last];
}

// Returns the error for a deadlock: some threads of a scope wait at a point that the others never
// reach.
Fault never_met(const Group& group) {
  const Fiber* waiting = nullptr;
  const Fiber* other = nullptr;
  uint32_t finished = 0;
  for (const Fiber& fiber : group.fibers) {
    finished += fiber.finished;
    if (fiber.finished) continue;
    if (!waiting) waiting = &fiber;
    if (!other && fiber.waits_in != waiting->waits_in) other = &fiber;
  }
  std::string rest = text(finished, " of ", group.fibers.size(), " threads have finished");
  if (other) {
    rest = text("block (", joined(std::span(other->at.block)), "), thread (",
                joined(std::span(other->at.thread)), ") waits in ", kMeetingNames[other->waits_in],
                ", ", rest);
  }
  return kernel_fault(*group.launch, waiting->at, "debug-converge",
                      text("waits in ", kMeetingNames[waiting->waits_in],
                           " for threads that never arrive: ", rest));
}

void suspend(Fiber& fiber) {
  Group& group = *fiber.group;
  Fiber* next = pop(group);
  if (!next) throw never_met(group);
  if (next != &fiber) switch_context(fiber.context, next->context);
}

void meet(Fiber& fiber, Meeting& meeting, uint32_t kind) {
  Group& group = *fiber.group;
  if (meeting.arrived == 0) {
    meeting.kind = kind;
  } else if (meeting.kind != kind) [[unlikely]] {
    throw kernel_fault(*group.launch, fiber.at, "debug-converge",
                       text("arrives at ", kMeetingNames[kind], " while ", meeting.arrived,
                            " threads of its scope wait in ", kMeetingNames[meeting.kind]));
  }
  fiber.waits_in = kind;
  if (++meeting.arrived < meeting.members) return suspend(fiber);
  meeting.arrived = 0;
  ++meeting.rounds;
  for (uint32_t i = meeting.first; i < meeting.first + meeting.members; ++i) {
    if (i != fiber.index) push(group, i);
  }
  if (!group.shuffled) return;
  push(group, fiber.index);
  suspend(fiber);
}

// First and last frame of a fiber. A fault of the kernel ends here. The other fibers are then
// abandoned, which is safe because kernel text owns no resources.
void fiber_main(void* argument) {
  Fiber& fiber = *static_cast<Fiber*>(argument);
  Group& group = *fiber.group;
  try {
    group.thread_main(group.launch, &fiber.at);
  } catch (...) {
    group.error = std::current_exception();
  }
  fiber.finished = true;
  --group.running;
  Fiber* next = nullptr;
  if (!group.error && group.running > 0) {
    next = pop(group);
    if (!next) group.error = std::make_exception_ptr(never_met(group));
  }
  switch_context(fiber.context, next ? next->context : group.caller);
}

void divide(int32_t out[3], uint64_t linear, const int32_t extent[3]) {
  const uint64_t x = extent[0], y = extent[1];
  out[0] = static_cast<int32_t>(linear % x);
  out[1] = static_cast<int32_t>(linear / x % y);
  out[2] = static_cast<int32_t>(linear / x / y);
}

// Sets all data that is constant across units.
void lay_out(Group& group) {
  const HostLaunch& launch = *group.launch;
  const auto threads = static_cast<uint32_t>(launch.block[0] * launch.block[1] * launch.block[2]);
  const uint32_t warps = (threads + kWarpSize - 1) / kWarpSize;
  const auto blocks = static_cast<uint32_t>(group.blocks);
  const uint32_t cluster_threads = threads * static_cast<uint32_t>(group.cluster_size);
  group.fibers.resize(size_t{blocks} * threads);
  group.warps.resize(size_t{blocks} * warps);
  group.block_meetings.resize(blocks);
  group.cluster_meetings.resize(blocks / static_cast<uint32_t>(group.cluster_size));
  group.ready.resize(group.fibers.size());
  for (uint32_t index = 0; index < group.fibers.size(); ++index) {
    Fiber& fiber = group.fibers[index];
    const uint32_t block = index / threads, thread = index % threads;
    fiber.group = &group;
    fiber.index = index;
    fiber.lane = static_cast<int32_t>(thread % kWarpSize);
    fiber.block_in_group = static_cast<int32_t>(block);
    fiber.warp = &group.warps[block * warps + thread / kWarpSize];
    fiber.block = &group.block_meetings[block];
    fiber.cluster = &group.cluster_meetings[index / cluster_threads];
    fiber.at.shared = launch.shared_bytes ? group.shared + block * shared_pitch(launch) : nullptr;
    fiber.at.fiber = &fiber;
    divide(fiber.at.thread, thread, launch.block);
    for (Meeting* meeting : {&fiber.warp->meeting, fiber.block, fiber.cluster, &group.grid}) {
      if (meeting->members++ == 0) meeting->first = index;
    }
  }
}

void start_unit(Group& group, const StackSet& stacks, uint64_t unit) {
  const HostLaunch& launch = *group.launch;
  const uint64_t threads = group.fibers.size() / static_cast<uint64_t>(group.blocks);
  int32_t clusters[3], cluster[3], within[3];
  for (int axis = 0; axis < 3; ++axis) clusters[axis] = launch.grid[axis] / launch.cluster[axis];
  group.ready_count = 0;
  group.running = static_cast<uint32_t>(group.fibers.size());
  group.random.state = state_of(launch).options->seed * 0x9E3779B97F4A7C15u + unit;
  for (Fiber& fiber : group.fibers) {
    if (fiber.index % threads == 0) {
      divide(cluster, unit + static_cast<uint64_t>(fiber.block_in_group / group.cluster_size),
             clusters);
      divide(within, static_cast<uint64_t>(fiber.block_in_group % group.cluster_size),
             launch.cluster);
    }
    for (int axis = 0; axis < 3; ++axis)
      fiber.at.block[axis] = cluster[axis] * launch.cluster[axis] + within[axis];
    fiber.finished = false;
    const StackSpan stack = stack_at(stacks, fiber.index);
    start_context(fiber.context, stack.low, stack.bytes, fiber_main, &fiber);
    push(group, fiber.index);
  }
}

struct Stacks {
  Stacks(size_t count, size_t bytes) : set(acquire_stacks(count, bytes)) {}
  ~Stacks() { release_stacks(set); }
  StackSet set;
};

}  // namespace

void run_fibers(const HostLaunch* launch,
                void (*thread_main)(const HostLaunch*, const HostPosition*)) {
  Group group{};
  group.launch = launch;
  group.thread_main = thread_main;
  group.cluster_size = launch->cluster[0] * launch->cluster[1] * launch->cluster[2];
  group.blocks = launch->cooperative ? launch->grid[0] * launch->grid[1] * launch->grid[2]
                                     : group.cluster_size;
  group.shuffled = state_of(*launch).entry->debug != 0;
  SharedMemory shared(*launch, static_cast<size_t>(group.blocks));
  group.shared = shared.base;
  lay_out(group);
  const Stacks stacks(group.fibers.size(), state_of(*launch).options->stack_bytes);
  for (uint64_t unit = launch->unit_begin; unit < launch->unit_end; ++unit) {
    if (group.shuffled) shared.poison();
    start_unit(group, stacks.set, unit);
    switch_context(group.caller, pop(group)->context);
    if (group.error) std::rethrow_exception(group.error);
  }
}

void sync_scope(void* handle, uint32_t scope) {
  Fiber& fiber = *static_cast<Fiber*>(handle);
  Group& group = *fiber.group;
  if (scope == kScopeGrid && !group.launch->cooperative) {
    throw kernel_fault(*group.launch, fiber.at, "debug-converge",
                       "sync_grid in a launch that is not cooperative");
  }
  Meeting* const meetings[] = {&fiber.warp->meeting, fiber.block, fiber.cluster, &group.grid};
  meet(fiber, *meetings[scope], kBarrier + scope);
}

uint64_t shuffle_lanes(void* handle, uint64_t bits, uint32_t mode, int32_t operand) {
  Fiber& fiber = *static_cast<Fiber*>(handle);
  Warp& warp = *fiber.warp;
  uint64_t* values = warp.values[warp.meeting.rounds & 1];
  values[fiber.lane] = bits;
  meet(fiber, warp.meeting, kShuffle + mode);

  int32_t source = fiber.lane;
  if (mode == kShuffleIndex) source = operand & (kWarpSize - 1);
  if (mode == kShuffleUp) source -= operand;
  if (mode == kShuffleDown) source += operand;
  if (mode == kShuffleXor) source ^= operand;
  if (source < 0 || source >= kWarpSize) return bits;
  if (static_cast<uint32_t>(source) < warp.meeting.members) return values[source];
  if (!fiber.group->shuffled) return bits;
  throw kernel_fault(*fiber.group->launch, fiber.at, "debug-converge",
                     text(kMeetingNames[kShuffle + mode], " reads lane ", source, " of a warp of ",
                          warp.meeting.members, " lanes"));
}

uint32_t ballot_lanes(void* handle, uint32_t predicate) {
  Fiber& fiber = *static_cast<Fiber*>(handle);
  Warp& warp = *fiber.warp;
  uint32_t& ballot = warp.ballots[warp.meeting.rounds & 1];
  if (warp.meeting.arrived == 0) ballot = 0;
  ballot |= uint32_t{predicate != 0} << fiber.lane;
  meet(fiber, warp.meeting, kBallot);
  return ballot;
}

int32_t cluster_rank(void* handle) {
  const Fiber& fiber = *static_cast<Fiber*>(handle);
  return fiber.block_in_group % fiber.group->cluster_size;
}

char* map_shared(void* handle, char* address, int32_t rank) {
  const Fiber& fiber = *static_cast<Fiber*>(handle);
  const HostLaunch& launch = *fiber.group->launch;
  const ptrdiff_t offset = address - fiber.at.shared;
  if (rank < 0 || rank >= fiber.group->cluster_size || offset < 0 ||
      offset >= static_cast<ptrdiff_t>(launch.shared_bytes)) {
    throw kernel_fault(launch, fiber.at, "debug-bounds",
                       text("map_shared_rank of offset ", offset, " in ", launch.shared_bytes,
                            " bytes of shared memory to rank ", rank, " of a cluster of ",
                            fiber.group->cluster_size));
  }
  return address + (rank - cluster_rank(handle)) * static_cast<ptrdiff_t>(shared_pitch(launch));
}

SharedSpan cluster_shared(void* handle) {
  const Fiber& fiber = *static_cast<Fiber*>(handle);
  const auto pitch = static_cast<ptrdiff_t>(shared_pitch(*fiber.group->launch));
  return {fiber.at.shared - cluster_rank(handle) * pitch, fiber.group->cluster_size};
}

}  // namespace fuser::host
