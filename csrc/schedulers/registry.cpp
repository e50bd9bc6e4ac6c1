#include "base/error.h"
#include "schedulers/pointwise.h"
#include "schedulers/scheduler.h"

namespace fuser {
namespace {

constexpr Scheduler list[] = {
    {"pointwise", match_pointwise, plan_pointwise, schedule_pointwise, check_pointwise,
     "takes everything without a reduction, so it stands last"},
};

}  // namespace

std::span<const Scheduler> schedulers() { return list; }

const Scheduler& choose(Problem& problem, Verdict& verdict) {
  std::string why;
  for (const Scheduler& s : list) {
    verdict = s.match(problem);
    if (!verdict.reject) return s;
    why += text("\n  ", s.name, ": ", verdict.reject->text, " [", verdict.reject->rule, "]");
  }
  throw Fault(FaultKind::Unsupported, "no-scheduler-1", "no scheduler takes this fusion" + why);
}

}  // namespace fuser
