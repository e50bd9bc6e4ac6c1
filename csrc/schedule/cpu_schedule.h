// Schedules of CPU kernels: their dims, their loops, and the rules of legal ones
// (docs/design/cpu.md). The block is a task, and its threads are the lanes of a vector.
#pragma once

#include <array>
#include <optional>

#include "base/error.h"
#include "fusion/kernel/problem.h"
#include "schedule/schedule.h"

namespace fuser::schedule {

namespace cpu {

// Dims of the schedule of a CPU kernel: kept axes around the lanes, reduced axes around the lanes,
// and the axes of the lanes, which are reduced or kept. In a kernel without reductions, S has the
// axes along which tiled accesses are contiguous.
inline constexpr DimId O = 0, S = 1, L = 2, dims = 3;
inline constexpr int most_in_sequence = 64;  // elements that one partial sum takes in (Numerics)
inline constexpr int most_lanes = 128;       // elements of a vector

}  // namespace cpu

// Loops of a CPU kernel, in their order: for each dim a Grid loop over tasks and a Serial loop over
// the indices of a task; behind the loops of S an Unroll loop; the lanes. All but the lanes are
// optional.
struct CpuLoops {
  struct Tasks {
    const Loop* grid = nullptr;  // nullptr: each task takes the complete dim
    const Loop* task = nullptr;
  };
  std::array<Tasks, cpu::dims> tasks = {};  // by dim
  const Loop* block = nullptr;  // rows that are reduced in registers before they are merged
  const Loop* lanes = nullptr;
};
// Returns nullopt if the nest has other loops, or another order.
std::optional<CpuLoops> cpu_loops(const LoopNest& nest);

// Returns the staging of an access that moves as tiles.
Staging tile_of(AccessId access);

// Raises a fault of this kind unless the schedule is legal for the problem: "schedule-2" and
// "schedule-3", as verify().
void verify_cpu(const fusion::Problem& problem, const Schedule& schedule,
                FaultKind kind = FaultKind::Internal);

}  // namespace fuser::schedule
