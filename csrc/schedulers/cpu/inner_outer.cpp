// CPU kernels that reduce rows and columns (norm backward). Kernel fission computes the two kinds
// of reductions by a kernel each.
#include "base/error.h"
#include "schedulers/cpu/schedulers.h"

namespace fuser::schedulers {

using namespace fusion;
using namespace schedule;

MatchResult match_cpu_inner_outer(const Problem& p) {
  if (!p.columns) return refuse("cpu-inner-outer-1", "the kernel reduces one set of axes");
  return accept;
}

Decision plan_cpu_inner_outer(const Problem&, SizeHints& hints, const Device&) {
  FUSER_ASSERT(hints.fission() == Fission::Split, "a kernel of rows and columns without fission");
  return UseFission{};
}

Schedule schedule_cpu_inner_outer(Problem&, const Plan&) {
  FUSER_ASSERT(false, "a schedule of a kernel that fission replaces");
}

void check_cpu_inner_outer(const Problem&, const Plan&, const Plan&) {}

}  // namespace fuser::schedulers
