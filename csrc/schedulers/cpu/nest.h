// Schedules of CPU kernels: how lanes and tasks divide the axes. All CPU schedulers use them.
#pragma once

#include "cost/tuning.h"
#include "schedule/plans.h"
#include "schedulers/analysis/collapse.h"
#include "schedulers/scheduler.h"

namespace fuser::schedulers {

// Axes of the dims of a CPU schedule (lower/build/cpu.cpp), outermost first.
struct CpuNest {
  std::vector<fusion::AxisId> outer, serial, lanes;
};

// Nest of a kernel without reductions: lanes run along the innermost `collapsed` dims that all
// accesses address by one index. rows_inside: the next dim is serial
CpuNest pointwise_nest(const fusion::Problem& problem, int collapsed, bool rows_inside = false);
// Nest of a kernel with reductions: lanes run along the innermost reduced or the innermost kept
// axes.
CpuNest reduction_nest(const fusion::Problem& problem, bool lanes_reduced);
// Returns whether the innermost axis is reduced.
bool reduces_innermost(const fusion::Problem& problem);

// Returns the lanes of a vector: a few registers of the widest float or moved element, at most the
// elements along the lanes.
int cpu_lanes(const fusion::Problem& problem, const schedule::Device& device, int registers,
              int64_t elements);

// Returns whether kernels can and should copy operands that are contiguous across the rows. Lanes
// would gather their elements one by one: in each phase, or from lines that evict one another.
bool should_transpose_operands(const fusion::Problem& problem, fusion::SizeHints& hints);
// Returns whether rows of several phases are so few and long that kernel fission pays.
bool few_long_rows(const fusion::Problem& problem, const CpuNest& nest, fusion::SizeHints& hints);

// Division of a nest among lanes and tasks.
struct CpuTasks {
  int lanes = 1;
  int64_t elements = cost::cpu_nest::task_elements;  // elements of a task
  bool splits = false;                               // several tasks reduce a row
  int64_t tile_x = 0;  // elements of a task along S, of a kernel without reductions
  schedule::AccessSet staged, streaming;
  // Rows of a block that is reduced in registers before it is merged into memory. 0: each column is
  // reduced at once.
  int block_rows = 0;
  int task_rows = 0;  // rows of a task, of a kernel of rows and columns; 0: as many as `elements`
  bool rows_inside = false;  // each vector loops over the rows of a task; no reductions
};
CpuTasks tasks_of_reduction(const fusion::Problem& problem, const CpuNest& nest,
                            fusion::SizeHints& hints, const schedule::Device& device);
schedule::Schedule cpu_schedule(const fusion::Problem& problem, const CpuNest& nest,
                                const CpuTasks& tasks);

}  // namespace fuser::schedulers
