#include "base/error.h"
#include "schedulers/scheduler.h"
#include "schedulers/schedulers.h"

namespace fuser {
namespace {

constexpr Scheduler list[] = {
    {"inner_outer", match_inner_outer, plan_inner_outer, schedule_inner_outer, check_inner_outer,
     "takes what reduces rows and columns, which no other one can"},
    {"inner", match_inner, plan_inner, schedule_inner, check_inner,
     "takes reductions whose innermost axis is reduced"},
    {"outer", match_outer, plan_outer, schedule_outer, check_outer, "takes the other reductions"},
    {"transpose", match_transpose, plan_transpose, schedule_transpose, check_transpose,
     "takes what is contiguous along different axes, which the two below move element by element",
     "transpose"},
    {"broadcast", match_broadcast, plan_broadcast, schedule_broadcast, check_broadcast,
     "takes what reads much along its columns and reduces nothing"},
    {"rows", match_rows, plan_rows, schedule_rows, check_rows,
     "takes what rows have much of in common, or choose by place"},
    {"pointwise", match_pointwise, plan_pointwise, schedule_pointwise, check_pointwise,
     "takes everything without a reduction, so it stands last"},
};

}  // namespace

std::span<const Scheduler> schedulers() { return list; }

const Scheduler& choose(Problem& problem, MatchResult& match) {
  std::string why;
  for (const Scheduler& s : list) {
    match = s.match(problem);
    if (!match.rejection) return s;
    why += text("\n  ", s.name, ": ", match.rejection->text, " [", match.rejection->rule, "]");
  }
  throw Fault(FaultKind::Unsupported, "no-scheduler-1", "no scheduler takes this fusion" + why);
}

}  // namespace fuser
