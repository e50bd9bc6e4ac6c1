// The functions of all schedulers of schedulers.def.
#pragma once

#include "schedulers/scheduler.h"

namespace fuser::schedulers {

#define FUSER_SCHEDULER(name, moves, reason)                                                \
  MatchResult match_##name(const fusion::Problem& problem);                                 \
  Decision plan_##name(const fusion::Problem& problem, fusion::SizeHints&,                  \
                       const schedule::Device&);                                            \
  schedule::Schedule schedule_##name(fusion::Problem& problem, const schedule::Plan& plan); \
  void check_##name(const fusion::Problem& problem, const schedule::Plan& planned,          \
                    const schedule::Plan& wanted);
#include "schedulers/schedulers.def"

// Elements per thread: 16 bytes of the widest dtype of a full-rank access, because wider vectors
// would need strided accesses. Fewer if the loads of one thread would exceed its registers, or if
// instructions dominate and the unrolled code would exceed the instruction cache. Accesses of lower
// rank do not count: they come from cache, where strides cost little.
int pointwise_vector(const fusion::Problem& problem);
// The pointwise scheduler with an axis order that the caller gives, outermost first.
schedule::Plan plan_pointwise(const fusion::Problem& problem,
                              const std::vector<fusion::AxisId>& order, fusion::SizeHints& hints);
schedule::Schedule schedule_pointwise(fusion::Problem& problem,
                                      const std::vector<fusion::AxisId>& order,
                                      const schedule::Plan& plan);

}  // namespace fuser::schedulers
