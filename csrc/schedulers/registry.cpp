#include "base/error.h"
#include "schedulers/scheduler.h"
#include "schedulers/schedulers.h"

namespace fuser::schedulers {

using namespace fusion;
using namespace schedule;

namespace {

constexpr Scheduler list[] = {
#define FUSER_SCHEDULER(name, moves, reason) \
  {#name, match_##name, plan_##name, schedule_##name, check_##name, reason, moves},
#include "schedulers/schedulers.def"
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
