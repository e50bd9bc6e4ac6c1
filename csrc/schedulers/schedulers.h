// The functions of every scheduler, for the list in registry.cpp. Each stands in a file of its own
// name, which says how it works.
#pragma once

#include "schedulers/scheduler.h"

namespace fuser {

#define FUSER_SCHEDULER(name)                                      \
  Verdict match_##name(Problem& problem);                          \
  Plan plan_##name(Problem& problem, const Hints&, const Device&); \
  Schedule schedule_##name(Problem& problem, const Plan& plan);    \
  void check_##name(const Plan& planned, const Plan& wanted);
FUSER_SCHEDULER(inner_outer)
FUSER_SCHEDULER(inner)
FUSER_SCHEDULER(outer)
FUSER_SCHEDULER(transpose)
FUSER_SCHEDULER(broadcast)
FUSER_SCHEDULER(pointwise)
#undef FUSER_SCHEDULER

}  // namespace fuser
