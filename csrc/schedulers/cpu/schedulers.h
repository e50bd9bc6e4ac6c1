// The functions of all schedulers of the CPU, for the list in registry.cpp.
#pragma once

#include "schedulers/scheduler.h"

namespace fuser {

#define FUSER_SCHEDULER(name)                                              \
  MatchResult match_##name(const Problem& problem);                        \
  Decision plan_##name(const Problem& problem, SizeHints&, const Device&); \
  Schedule schedule_##name(Problem& problem, const Plan& plan);            \
  void check_##name(const Problem& problem, const Plan& planned, const Plan& wanted);
FUSER_SCHEDULER(cpu_inner_outer)
FUSER_SCHEDULER(cpu_inner)
FUSER_SCHEDULER(cpu_outer)
FUSER_SCHEDULER(cpu_pointwise)
#undef FUSER_SCHEDULER

}  // namespace fuser
