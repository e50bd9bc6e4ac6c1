#include "schedulers/cpu/schedulers.h"

namespace fuser::schedulers {
namespace {

constexpr Scheduler list[] = {
    {.name = "cpu_inner_outer",
     .match = match_cpu_inner_outer,
     .plan = plan_cpu_inner_outer,
     .schedule = schedule_cpu_inner_outer,
     .check = check_cpu_inner_outer,
     .reason = "first: the only scheduler of kernels that reduce both rows and columns",
     .for_cpu = true},
    {.name = "cpu_inner",
     .match = match_cpu_inner,
     .plan = plan_cpu_inner,
     .schedule = schedule_cpu_inner,
     .check = check_cpu_inner,
     .reason = "accepts kernels that reduce their innermost axis",
     .for_cpu = true},
    {.name = "cpu_outer",
     .match = match_cpu_outer,
     .plan = plan_cpu_outer,
     .schedule = schedule_cpu_outer,
     .check = check_cpu_outer,
     .reason = "accepts all other kernels with reductions over one set of axes",
     .for_cpu = true},
    {.name = "cpu_pointwise",
     .match = match_cpu_pointwise,
     .plan = plan_cpu_pointwise,
     .schedule = schedule_cpu_pointwise,
     .check = check_cpu_pointwise,
     .reason = "last: accepts every kernel without reductions",
     .for_cpu = true},
};

}  // namespace

std::span<const Scheduler> cpu_schedulers() { return list; }

}  // namespace fuser::schedulers
