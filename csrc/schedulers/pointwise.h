// The pointwise scheduler: no reduction, every store walks all axes.
#pragma once

#include "schedulers/scheduler.h"

namespace fuser {

Verdict match_pointwise(Problem& problem);
Plan plan_pointwise(Problem& problem, const Hints& hints, const Device& device);
Schedule schedule_pointwise(Problem& problem, const Plan& plan);
void check_pointwise(const Plan& planned, const Plan& wanted);

}  // namespace fuser
