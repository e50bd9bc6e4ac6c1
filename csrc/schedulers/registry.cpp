#include "base/error.h"
#include "schedulers/scheduler.h"
#include "schedulers/schedulers.h"

namespace fuser::schedulers {

using namespace fusion;
using namespace schedule;

namespace {

constexpr Scheduler list[] = {
    {"inner_outer", match_inner_outer, plan_inner_outer, schedule_inner_outer, check_inner_outer,
     "first: the only scheduler of kernels that reduce both rows and columns"},
    {"inner", match_inner, plan_inner, schedule_inner, check_inner,
     "accepts kernels that reduce their innermost axis"},
    {"outer", match_outer, plan_outer, schedule_outer, check_outer,
     "accepts all other kernels with reductions"},
    {"transpose", match_transpose, plan_transpose, schedule_transpose, check_transpose,
     "before rows and pointwise, which access a part of its tensors element by element",
     "transpose"},
    {"broadcast", match_broadcast, plan_broadcast, schedule_broadcast, check_broadcast,
     "before rows and pointwise, which load data shared by rows once per row"},
    {"rows", match_rows, plan_rows, schedule_rows, check_rows,
     "before pointwise, which computes values shared by rows once per row"},
    {"pointwise", match_pointwise, plan_pointwise, schedule_pointwise, check_pointwise,
     "last: accepts every kernel without reductions"},
};

}  // namespace

std::span<const Scheduler> schedulers() { return list; }

const Plan* plan_of(const Decision& decision) {
  if (const auto* delegate = std::get_if<Delegate>(&decision)) return &delegate->plan;
  return std::get_if<Plan>(&decision);
}

Schedule schedule_of(const Scheduler& scheduler, Problem& p, const Decision& decision,
                     const Plan& plan) {
  const auto* delegate = std::get_if<Delegate>(&decision);
  return delegate ? schedule_pointwise(p, delegate->order, plan) : scheduler.schedule(p, plan);
}

void check_plan(const Scheduler& scheduler, const Problem& p, const Decision& decision,
                const Plan& wanted) {
  const Plan* planned = plan_of(decision);
  FUSER_ASSERT(planned, "a plan of the user for a kernel without one");
  const bool delegated = std::holds_alternative<Delegate>(decision);
  (delegated ? check_pointwise : scheduler.check)(p, *planned, wanted);
}

const Scheduler& choose(const Problem& problem) {
  std::string why;
  for (const Scheduler& s : list) {
    const MatchResult rejection = s.match(problem);
    if (!rejection) return s;
    why += text("\n  ", s.name, ": ", rejection->text, " [", rejection->rule, "]");
  }
  throw Fault(FaultKind::Unsupported, "no-scheduler-1", "no scheduler accepts this kernel" + why);
}

const Scheduler* choose_cpu(const Problem& problem) {
  for (const Scheduler& s : cpu_schedulers())
    if (!s.match(problem)) return &s;
  return nullptr;
}

}  // namespace fuser::schedulers
