// The shape of a problem with reductions: loops over R, work of a row, and the start of its
// schedule.
#pragma once

#include <vector>

#include "schedule/plans.h"
#include "schedulers/scheduler.h"

namespace fuser::schedulers {

// Returns whether the access moves complete rows: it varies over all of R, and over K if K is not
// empty. An access that misses an axis of R is read repeatedly, from cache.
bool moves_rows(const fusion::Problem& problem, const fusion::MemoryAccess& access);

// The axes along which vectors run, the innermost of them that all moved accesses collapse into one
// linear index, and the vector length of the widest element. `moves` selects the accesses.
struct VectorAxes {
  std::vector<fusion::AxisId> axes, inner;
  bool complete = false;  // True if `inner` equals `axes`
  int vector = 1;
};
VectorAxes vector_axes_of(const fusion::Problem& problem, std::vector<fusion::AxisId> axes,
                          bool (*moves)(const fusion::Problem&, const fusion::MemoryAccess&));

// Properties of a reduction problem that its schedulers decide by.
struct ReductionShape {
  // Reduction loops: the phases, plus one for stores that need all of them.
  int loops = 0;
  int phases = 0;            // length of the longest chain of dependent reductions over R
  bool stores_rows = false;  // True if an output varies over K and R
  bool stores_last = false;  // True if an output over K and R depends on the last phase
  int persistent = 0;        // reads of complete rows, the candidates for persistence
  int persistent_bytes = 0;  // bytes of one element of each staged read
  int cached_bytes = 0;      // bytes of one element of each read over R alone (weights)
  int operations = 0;        // ops on elements of rows
  int widest = 1;            // bytes of the widest element over K and R on the innermost axis
};
ReductionShape reduction_shape_of(const fusion::Problem& problem);

// Returns the values that one phase computes and a later phase needs, if their operands are not
// needed again. Caching a value costs one register per element.
std::vector<fusion::ValueId> computed_again(const fusion::Problem& problem);

// Work per element of a row, summed over all reduction loops. Each loop computes all values that it
// needs.
struct RowWork {
  double slots = 0.0;  // issue slots
  double again = 0.0;  // issue slots of values that an earlier loop has computed already
  double bytes = 0.0;  // bytes moved to and from memory
};
RowWork row_work(const fusion::Problem& problem);

// Starts the schedule of a reduction: dims 0 and 1 are K and R; the nest has no loops yet. Launch,
// lanes and vectors are from the plan: an InnerPlan, OuterPlan or InnerOuterPlan.
template <class P>
schedule::Schedule start_of_reduction(const fusion::Problem& problem, const P& plan);

// Appends the loops of a block whose threads run along R: unrolled steps, blocks of a cluster, rows
// of a block, threads of a row, lanes. P is InnerPlan or InnerOuterPlan.
template <class P>
void loop_along_rows(schedule::LoopNest& nest, const P& plan);

}  // namespace fuser::schedulers
