// Schedules of CPU kernels: how lanes and tasks divide the axes. All CPU schedulers use them.
#pragma once

#include "schedule/plans.h"
#include "schedulers/analysis/collapse.h"
#include "schedulers/scheduler.h"

namespace fuser::schedulers {

// Axes of the dims of a CPU schedule (lower/build/cpu.cpp), outermost first.
struct CpuNest {
  std::vector<fusion::AxisId> outer, serial, lanes;
};

// Nest of a kernel without reductions: lanes run along the innermost `collapsed` dims that all
// accesses address by one index.
CpuNest pointwise_nest(const fusion::Problem& problem, int collapsed);
// Nest of a kernel with reductions: lanes run along the innermost reduced or the innermost kept
// axes.
CpuNest reduction_nest(const fusion::Problem& problem, bool lanes_reduced);
// Returns whether the innermost axis is reduced.
bool reduces_innermost(const fusion::Problem& problem);

// Returns the lanes of a vector: a few registers of the widest compute type, and at most the
// elements along the lanes.
int cpu_lanes(const fusion::Problem& problem, const schedule::Device& device, int registers,
              int64_t elements);

// Elements that one task computes, at least, so that a task takes 10 us or more.
inline constexpr int task_elements = 16384;

// Returns whether rows of several phases are so few and long that kernel fission pays.
bool few_long_rows(const fusion::Problem& problem, const CpuNest& nest, fusion::SizeHints& hints);

// Division of a nest among lanes and tasks.
struct CpuTasks {
  int lanes = 1;
  int64_t elements = task_elements;  // elements of a task
  bool splits = false;               // several tasks reduce a row
  int64_t tile_x = 0;                // elements of a task along S, of a kernel without reductions
  schedule::AccessSet staged, streaming;
  // Rows of a block that is reduced in registers before it is merged into memory. 0: each column is
  // reduced at once.
  int block_rows = 0;
};
// plan() and check() of the two schedulers of reductions.
CpuTasks tasks_of_reduction(const fusion::Problem& problem, const CpuNest& nest,
                            fusion::SizeHints& hints, const schedule::Device& device);
void check_cpu_reduction(const schedule::Plan& planned, const schedule::Plan& wanted,
                         const CpuTasks& tasks);
schedule::Schedule cpu_schedule(const fusion::Problem& problem, const CpuNest& nest,
                                const CpuTasks& tasks);

// Converts between the typed plan of a reduction and its tasks.
template <class P>
P plan_of_tasks(const CpuTasks& tasks) {
  return {.lanes = tasks.lanes,
          .task = tasks.elements,
          .splits = tasks.splits,
          .block_rows = tasks.block_rows};
}
template <class P>
CpuTasks tasks_of_plan(const P& plan) {
  return {.lanes = static_cast<int>(plan.lanes),
          .elements = plan.task,
          .splits = plan.splits,
          .block_rows = static_cast<int>(plan.block_rows)};
}

}  // namespace fuser::schedulers
