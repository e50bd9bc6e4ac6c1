// CPU kernels that reduce, and keep their innermost axis. Each lane is a column, and a loop over
// the rows reduces it. If columns are few, then several tasks reduce one column, and the last of
// them merges their partial results in order.
#include "schedule/cpu_schedule.h"
#include "schedulers/cpu/nest.h"
#include "schedulers/cpu/schedulers.h"
#include "schedulers/legal.h"

namespace fuser::schedulers {

using namespace fusion;
using namespace schedule;

MatchResult match_cpu_outer(const Problem& p) {
  if (!p.reduced) return refuse("cpu-outer-1", "the kernel has no reductions");
  return accept;
}

Decision plan_cpu_outer(const Problem& p, SizeHints& hints, const Device& device) {
  const CpuNest nest = reduction_nest(p, false);
  const CpuTasks tasks = tasks_of_reduction(p, nest, hints, device);
  return to_plan(CpuOuterPlan{.lanes = tasks.lanes,
                              .task = tasks.elements,
                              .splits = tasks.splits,
                              .block_rows = tasks.block_rows});
}

Schedule schedule_cpu_outer(Problem& p, const Plan& plan) {
  const auto of = typed<CpuOuterPlan>(plan);
  return cpu_schedule(p, reduction_nest(p, false),
                      {.lanes = static_cast<int>(of.lanes),
                       .elements = of.task,
                       .splits = of.splits,
                       .block_rows = static_cast<int>(of.block_rows)});
}

void check_cpu_outer(const Problem&, const Plan& planned, const Plan& wanted) {
  const auto of = typed<CpuOuterPlan>(planned);
  check_fields(planned, wanted,
               {{"splits", 0, of.splits},
                {"block_rows", of.block_rows ? 1 : 0, of.block_rows ? cpu::most_in_sequence : 0}});
}

}  // namespace fuser::schedulers
