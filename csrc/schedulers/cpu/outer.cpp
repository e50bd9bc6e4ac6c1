// CPU kernels that reduce, and keep their innermost axis. Each lane is a column, and a loop over
// the rows reduces it. If columns are few, then several tasks reduce one column, and the last of
// them merges their partial results in order.
#include "schedulers/cpu/nest.h"
#include "schedulers/cpu/schedulers.h"

namespace fuser::schedulers {

using namespace fusion;
using namespace schedule;

MatchResult match_cpu_outer(const Problem& p) {
  if (!p.reduced) return refuse("cpu-outer-1", "the kernel has no reductions");
  return accept;
}

Decision plan_cpu_outer(const Problem& p, SizeHints& hints, const Device& device) {
  const CpuNest nest = reduction_nest(p, false);
  return to_plan(plan_of_tasks<CpuOuterPlan>(tasks_of_reduction(p, nest, hints, device)));
}

Schedule schedule_cpu_outer(Problem& p, const Plan& plan) {
  return cpu_schedule(p, reduction_nest(p, false), tasks_of_plan(typed<CpuOuterPlan>(plan)));
}

void check_cpu_outer(const Problem&, const Plan& planned, const Plan& wanted) {
  check_cpu_reduction(planned, wanted, tasks_of_plan(typed<CpuOuterPlan>(planned)));
}

}  // namespace fuser::schedulers
