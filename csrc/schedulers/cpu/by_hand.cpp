// Schedules of CPU kernels that a user changed. They use few facts of sizes, because lanes that do
// not exist are masked: the accesses that move as tiles, and the size of partial results.
#include "schedulers/by_hand.h"

#include <algorithm>

#include "schedule/cpu_schedule.h"
#include "schedule/schedule_text.h"

namespace fuser::schedulers {

using namespace fusion;
using namespace schedule;
using namespace schedule::cpu;

namespace {

// Elements of a task that reduces a part of a row, at least: all tasks of a row are merged in
// sequence.
constexpr int64_t least_part = 4096;

bool reduces_lanes(const Problem& p, const Schedule& s) {
  return !s.dims[L].axes.empty() && (p.reduced >> s.dims[L].axes.back() & 1) != 0;
}

// Axes may move between dims, but memory keeps its order.
void check_dims(const Problem& p, const Schedule& planned, const Schedule& wanted) {
  expect_fact(axes_in_order(wanted) == axes_in_order(planned),
              "the axes are in another order; expected the order of memory, as in the plan");
  expect_fact(reduces_lanes(p, wanted) == reduces_lanes(p, planned),
              reduces_lanes(p, planned) ? "lanes along kept axes; expected reduced ones"
                                        : "lanes along reduced axes; expected kept ones",
              ", as in the plan");
  expect_fact(wanted.stagings.empty() || wanted.dims == planned.dims,
              "tiles over other axes; expected the planned dims");
}

void check_stagings(const Schedule& planned, const Schedule& wanted) {
  for (const Staging& s : wanted.stagings)
    expect_fact(staging_of_access(planned, s.access), "a tile of access ", s.access,
                ", which is not known to be contiguous along d1");
}

// Partial results of columns are padded to complete vectors, and a tile has a vector for each lane.
void check_lanes(const Problem& p, const Schedule& planned, const Schedule& wanted) {
  const bool padded = cpu_loops(wanted.nests[0])->block || p.columns || !wanted.stagings.empty();
  expect_fact(!padded || wanted.launch.threads <= planned.launch.threads, "vectors of ",
              wanted.launch.threads, " elements; expected at most the planned ",
              planned.launch.threads, ", because memory of the task is padded to complete vectors");
}

// Returns the elements of a task that reduces a part of a row; nullopt if each row is complete.
std::optional<int64_t> elements_of_part(const Problem& p, const Schedule& s) {
  if (!reduces_lanes(p, s)) return std::nullopt;
  const CpuLoops loops = *cpu_loops(s.nests[0]);
  for (DimId d : {S, L}) {
    const auto [grid, task] = loops.tasks[d];
    if (!grid) continue;
    if (task->elements) return task->elements;
    return d == L ? task->extent * s.launch.threads : 0;
  }
  return std::nullopt;
}

void check_tasks(const Problem& p, const Schedule& planned, const Schedule& wanted) {
  const std::optional<int64_t> now = elements_of_part(p, wanted);
  const int64_t least =
      std::min(least_part, elements_of_part(p, planned).value_or(int64_t{least_part}));
  expect_fact(!now || *now >= least, "tasks of ", now.value_or(0),
              " elements of a row; expected at least ", least,
              ", because their results are added in sequence");
}

}  // namespace

Schedule cpu_schedule_by_hand(const Problem& p, const Schedule& planned, const std::string& text) {
  Schedule wanted = parse_schedule(text);
  verify_cpu(p, wanted, FaultKind::User);
  check_dims(p, planned, wanted);
  check_stagings(planned, wanted);
  check_lanes(p, planned, wanted);
  check_tasks(p, planned, wanted);
  return wanted;
}

}  // namespace fuser::schedulers
