// The functions of all schedulers of the CPU, for the list in registry.cpp.
#pragma once

#include "schedulers/scheduler.h"

namespace fuser::schedulers {

#define FUSER_SCHEDULER(name)                                                               \
  MatchResult match_##name(const fusion::Problem& problem);                                 \
  Decision plan_##name(const fusion::Problem& problem, fusion::SizeHints&,                  \
                       const schedule::Device&);                                            \
  schedule::Schedule schedule_##name(fusion::Problem& problem, const schedule::Plan& plan); \
  void check_##name(const fusion::Problem& problem, const schedule::Plan& planned,          \
                    const schedule::Plan& wanted);
FUSER_SCHEDULER(cpu_inner_outer)
FUSER_SCHEDULER(cpu_inner)
FUSER_SCHEDULER(cpu_outer)
FUSER_SCHEDULER(cpu_pointwise)
#undef FUSER_SCHEDULER

}  // namespace fuser::schedulers
