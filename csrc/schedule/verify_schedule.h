// Verifier of schedules: what a legal schedule of a problem is, for any sizes that its facts
// (vector kinds, Lanes, Dim::divides) hold for.
#pragma once

#include "base/error.h"
#include "fusion/kernel/problem.h"
#include "schedule/schedule.h"

namespace fuser::schedule {

// How the nests of a schedule map threads. Each kind has its builder in lower/build.
enum class NestKind : uint8_t {
  Linear,  // threads numbered over the grid: build_pointwise()
  Rows,    // tiles over dims {K, R} with one nest: build_reduction()
  Tiles,   // tiles over any dims, one nest or several in turn: build_staged()
};
NestKind nest_kind(const Schedule& schedule);

// Raises a fault of this kind unless the schedule is legal for the problem (its single-pass form if
// the schedule says so). "schedule-2": a field is out of its range or contradicts another field.
// "schedule-3": no builder takes these loops.
void verify(const fusion::Problem& problem, const Schedule& schedule,
            FaultKind kind = FaultKind::Internal);

}  // namespace fuser::schedule
