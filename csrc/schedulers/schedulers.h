// The functions of all schedulers, for the list in registry.cpp. Each scheduler is defined in the
// file of its name, which describes its algorithm.
#pragma once

#include "schedulers/scheduler.h"

namespace fuser {

#define FUSER_SCHEDULER(name)                                              \
  MatchResult match_##name(const Problem& problem);                        \
  Decision plan_##name(const Problem& problem, SizeHints&, const Device&); \
  Schedule schedule_##name(Problem& problem, const Plan& plan);            \
  void check_##name(const Problem& problem, const Plan& planned, const Plan& wanted);
FUSER_SCHEDULER(inner_outer)
FUSER_SCHEDULER(inner)
FUSER_SCHEDULER(outer)
FUSER_SCHEDULER(transpose)
FUSER_SCHEDULER(broadcast)
FUSER_SCHEDULER(rows)
FUSER_SCHEDULER(pointwise)
#undef FUSER_SCHEDULER

// Elements per thread: 16 bytes of the widest dtype of a full-rank access, because wider vectors
// would need strided accesses. Fewer if the loads of one thread would exceed its registers, or if
// instructions dominate and the unrolled code would exceed the instruction cache. Accesses of lower
// rank do not count: they come from cache, where strides cost little.
int pointwise_vector(const Problem& problem);
// The pointwise scheduler with an axis order that the caller gives, outermost first.
Plan plan_pointwise(const Problem& problem, const std::vector<AxisId>& order, SizeHints& hints);
Schedule schedule_pointwise(Problem& problem, const std::vector<AxisId>& order, const Plan& plan);

}  // namespace fuser
