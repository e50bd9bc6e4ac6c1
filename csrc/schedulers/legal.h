// Checks of plans that a user changed. Each refusal is UserError "plan-1". It names the field and
// the value, states the allowed values, and prints the planned ones.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include "ir/kernel.h"
#include "schedule/device.h"
#include "schedule/plan.h"
#include "schedule/plans.h"

namespace fuser::schedulers {

// Limits of a field that hold for one plan, within those of schedule/plan_fields.def. `values` and
// `why` replace those of the table if they are set.
struct Limits {
  schedule::FieldName field;
  int64_t least, most;
  std::optional<schedule::FieldRange::Values> values{};
  const char* why = nullptr;
};

// Raises "plan-1" unless `holds`: "plan: threads=3 is not allowed; expected a multiple of 32".
// `is` is "threads=3".
void expect(const schedule::Plan& planned, bool holds, const std::string& is,
            const std::string& expected);
// Raises "plan-1" for a changed field outside of the range of its row in plan_fields.def, or of
// `narrower` limits. Ranges stay within 2^20, so that later products do not overflow. Sets of
// accesses that a user may change are left to check_subset().
void check_fields(const schedule::Plan& planned, const schedule::Plan& wanted,
                  std::initializer_list<Limits> narrower = {});
// Raises "plan-1" if the changed set of a field is not a subset of `most`.
void check_subset(const schedule::Plan& planned, schedule::FieldName field,
                  const schedule::AccessSet& was, const schedule::AccessSet& is,
                  const schedule::AccessSet& most);

// Raises "plan-1" if the kernel of plan `wanted` needs more registers or shared memory than an SM
// of the device has. A block needs `shared` bytes. On the host executor the limits of the GPU that
// it emulates apply.
void check_resources(const schedule::Plan& planned, const schedule::Plan& wanted,
                     const ir::KernelIR& kernel, int64_t shared,
                     const schedule::Device& planned_for);

}  // namespace fuser::schedulers
