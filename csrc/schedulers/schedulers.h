// The functions of every scheduler, for the list in registry.cpp. Each stands in a file of its own
// name, which says how it works.
#pragma once

#include "schedulers/scheduler.h"

namespace fuser {

#define FUSER_SCHEDULER(name)                                      \
  Verdict match_##name(Problem& problem);                          \
  Plan plan_##name(Problem& problem, const Hints&, const Device&); \
  Schedule schedule_##name(Problem& problem, const Plan& plan);    \
  void check_##name(Problem& problem, const Plan& planned, const Plan& wanted);
FUSER_SCHEDULER(inner_outer)
FUSER_SCHEDULER(inner)
FUSER_SCHEDULER(outer)
FUSER_SCHEDULER(transpose)
FUSER_SCHEDULER(broadcast)
FUSER_SCHEDULER(rows)
FUSER_SCHEDULER(pointwise)
#undef FUSER_SCHEDULER

// Elements per thread: 16 bytes of the widest dtype that memory moves (wider runs need strided
// accesses there: 90 against 99% of a copy), fewer when the loads of one thread would not fit its
// registers. What does not vary over all axes comes from cache, where strides cost little; what
// does not vary along the elements is one element.
int pointwise_vector(const Problem& problem);
// The pointwise scheduler with the axes in an order of the caller's, outermost first.
void ask_pointwise(Problem& problem, const std::vector<AxisId>& order, Verdict& verdict);
Plan plan_pointwise(Problem& problem, const std::vector<AxisId>& order, const Hints& hints);
Schedule schedule_pointwise(Problem& problem, const std::vector<AxisId>& order, const Plan& plan);

}  // namespace fuser
