// CPU kernels that reduce rows and columns (norm backward). A task is a block of rows, with its own
// partial results of the columns. Kernel fission computes the two kinds of reductions by a kernel
// each where these partial results would not stay in cache.
#include "base/error.h"
#include "schedule/cpu_schedule.h"
#include "schedulers/cpu/nest.h"
#include "schedulers/cpu/schedulers.h"
#include "schedulers/legal.h"

namespace fuser::schedulers {

using namespace fusion;
using namespace schedule;
using namespace cost::cpu_inner_outer;

namespace {

// Returns the bytes of the partial results of a column; nullopt if the kernel is not made of rows
// whose elements are those of the columns.
std::optional<int> column_bytes(const Problem& p) {
  AxisSet all = 0;
  for (AxisId a : p.order) all |= AxisSet{1} << a;
  if (!reduces_innermost(p) || p.columns != (all & ~p.reduced)) return std::nullopt;
  int bytes = 0;
  for (const Value& v : p.refined.values) {
    const auto* r = std::get_if<Reduced>(&v.how);
    if (!r || r->over != p.columns) continue;
    if (v.axes != p.reduced) return std::nullopt;
    bytes += state_bytes(r->op, r->compute);
  }
  return bytes;
}

}  // namespace

MatchResult match_cpu_inner_outer(const Problem& p) {
  if (!p.columns) return refuse("cpu-inner-outer-1", "the kernel reduces one set of axes");
  return accept;
}

Decision plan_cpu_inner_outer(const Problem& p, SizeHints& hints, const Device& device) {
  const auto at_most = [&](const std::vector<AxisId>& axes) {
    return hints.at_most(extent_of(p, hints.exprs(), axes));
  };
  const std::optional<int> bytes = column_bytes(p);
  if (should_transpose_operands(p, hints)) return UseFission{};
  if (!bytes ||
      static_cast<double>(at_most(reduced_axes(p)) * *bytes) > cached_columns * device.l2_bytes) {
    FUSER_ASSERT(hints.fission() != Fission::None, "a kernel of rows and columns without fission");
    return UseFission{};
  }
  const CpuNest nest = reduction_nest(p, true);
  const int rows = ceil_pow2(at_most(nest.outer)) / enough_tasks;
  return to_plan(CpuInnerOuterPlan{.lanes = cpu_lanes(p, device, registers, at_most(nest.lanes)),
                                   .block_rows = std::clamp(rows, least_rows, most_rows)});
}

Schedule schedule_cpu_inner_outer(Problem& p, const Plan& plan) {
  const auto of = typed<CpuInnerOuterPlan>(plan);
  return cpu_schedule(
      p, reduction_nest(p, true),
      {.lanes = static_cast<int>(of.lanes), .task_rows = static_cast<int>(of.block_rows)});
}

void check_cpu_inner_outer(const Problem&, const Plan& planned, const Plan& wanted) {
  check_fields(planned, wanted, {{"block_rows", 1, cpu::most_in_sequence}});
}

}  // namespace fuser::schedulers
