// CPU kernels without reductions. A task is a block of elements. Lanes run along the innermost axes
// that all accesses address by one index. Values that do not vary along the lanes are computed once
// per row. If rows are shorter than a vector, then lanes cross rows and gather what they share.
#include "schedulers/cpu/nest.h"
#include "schedulers/cpu/schedulers.h"
#include "schedulers/legal.h"

namespace fuser::schedulers {

using namespace fusion;
using namespace schedule;

namespace {

// Registers of a vector: independent instructions that hide the latency of functions.
constexpr int registers = 2;

}  // namespace

MatchResult match_cpu_pointwise(const Problem& p) {
  if (p.reduced) return refuse("cpu-pointwise-1", "the kernel has reductions");
  return accept;
}

Decision plan_cpu_pointwise(const Problem& p, SizeHints& hints, const Device& device) {
  const auto count = static_cast<int>(collapse(p, p.order, all_accesses(p)).size());
  const auto along = [&](int collapsed) {
    return hints.at_most(extent_of(p, hints.exprs(), pointwise_nest(p, collapsed).lanes));
  };
  int collapsed = std::min(1, count);
  const int wanted = cpu_lanes(p, device, registers, int64_t{1} << 20);
  while (collapsed < count && along(collapsed) < wanted) ++collapsed;
  const int64_t elements = count ? along(collapsed) : 1;
  return to_plan(CpuPointwisePlan{.lanes = cpu_lanes(p, device, registers, elements),
                                  .collapsed = collapsed,
                                  .task = task_elements});
}

Schedule schedule_cpu_pointwise(Problem& p, const Plan& plan) {
  const auto typed_plan = typed<CpuPointwisePlan>(plan);
  return cpu_schedule(p, pointwise_nest(p, static_cast<int>(typed_plan.collapsed)),
                      {.lanes = static_cast<int>(typed_plan.lanes), .elements = typed_plan.task});
}

void check_cpu_pointwise(const Problem& p, const Plan& planned, const Plan& wanted) {
  const auto count = static_cast<int>(collapse(p, p.order, all_accesses(p)).size());
  check_fields(planned, wanted, {{"collapsed", std::min(1, count), count}});
}

}  // namespace fuser::schedulers
