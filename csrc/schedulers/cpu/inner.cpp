// CPU kernels that reduce their innermost axis. A task is some rows. Lanes run along the row, and
// each phase reads the row again, from cache unless the row exceeds it. If rows are few and long,
// then several tasks reduce one row, and the last of them merges their partial results in order.
// Kernel fission gives each phase a kernel of its own then.
#include "schedulers/cpu/nest.h"
#include "schedulers/cpu/schedulers.h"
#include "schedulers/legal.h"

namespace fuser::schedulers {

using namespace fusion;
using namespace schedule;

MatchResult match_cpu_inner(const Problem& p) {
  if (!p.reduced) return refuse("cpu-inner-1", "the kernel has no reductions");
  if (!reduces_innermost(p)) return refuse("cpu-inner-2", "the innermost axis is kept");
  return accept;
}

Decision plan_cpu_inner(const Problem& p, SizeHints& hints, const Device& device) {
  const CpuNest nest = reduction_nest(p, true);
  if (should_transpose_operands(p, hints) || few_long_rows(p, nest, hints)) return UseFission{};
  const CpuTasks tasks = tasks_of_reduction(p, nest, hints, device);
  return to_plan(
      CpuInnerPlan{.lanes = tasks.lanes, .task = tasks.elements, .splits = tasks.splits});
}

Schedule schedule_cpu_inner(Problem& p, const Plan& plan) {
  const auto of = typed<CpuInnerPlan>(plan);
  return cpu_schedule(
      p, reduction_nest(p, true),
      {.lanes = static_cast<int>(of.lanes), .elements = of.task, .splits = of.splits});
}

void check_cpu_inner(const Problem&, const Plan& planned, const Plan& wanted) {
  check_fields(planned, wanted, {{"splits", 0, typed<CpuInnerPlan>(planned).splits}});
}

}  // namespace fuser::schedulers
