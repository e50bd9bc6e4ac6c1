// Scheduler: the three functions that turn a Problem into a Schedule, plus a check of changed
// plans.
//
// match() is independent of sizes: it rejects a problem with a reason, or accepts it. plan() asks
// size hints about the sizes of a call and never sees a size, so a plan is valid for all sizes with
// equal answers. Both are pure. schedule() turns a plan into a Schedule, and adds expressions to
// the arena of the problem.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "fusion/kernel/guards.h"
#include "fusion/kernel/problem.h"
#include "schedule/device.h"
#include "schedule/plan.h"
#include "schedule/schedule.h"

namespace fuser::schedulers {

struct Rejection {
  std::string rule;  // rule id
  std::string text;  // reason, for the user
};

// A rejection, or nullopt if the scheduler accepts the problem.
using MatchResult = std::optional<Rejection>;
inline MatchResult refuse(const char* rule, const char* text) {
  return Rejection{.rule = rule, .text = text};
}
inline constexpr std::nullopt_t accept = std::nullopt;

// The kernels of Group::fission compute the values instead.
struct UseFission {};
// The pointwise scheduler makes the kernel, over axes in this order, outermost first.
struct Delegate {
  schedule::Plan plan;
  std::vector<fusion::AxisId> order;
};
using Decision = std::variant<schedule::Plan, UseFission, Delegate>;
// Returns the plan of a decision, or nullptr for fission.
const schedule::Plan* plan_of(const Decision& decision);

struct Scheduler {
  const char* name;
  MatchResult (*match)(const fusion::Problem&);
  Decision (*plan)(const fusion::Problem&, fusion::SizeHints&, const schedule::Device&);
  schedule::Schedule (*schedule)(fusion::Problem&, const schedule::Plan&);
  // Checks the fields that a user changed and raises UserError "plan-1" if a value is not allowed.
  // An accepted plan is correct for all sizes for which `planned` was planned. check_resources()
  // (legal.h) checks the registers and shared memory of the built kernel.
  void (*check)(const fusion::Problem&, const schedule::Plan& planned,
                const schedule::Plan& wanted);
  const char* reason;  // reason for its position in the list
  // Word for the data movement of its kernels, used in kernel names; empty if it moves data in
  // order.
  const char* moves = "";
  bool for_cpu = false;  // its schedules are those of CPU kernels (lower_cpu)
};

// All schedulers of GPU kernels, most specific first (schedulers.def), and those of CPU kernels
// (cpu/registry.cpp).
std::span<const Scheduler> schedulers();
std::span<const Scheduler> cpu_schedulers();
// Return the schedule of a plan, and check a changed plan: by the scheduler that decided, or by the
// pointwise scheduler for a Delegate. `decision` is what the scheduler decided; `plan` is its plan
// or the changed one.
schedule::Schedule schedule_of(const Scheduler& scheduler, fusion::Problem& problem,
                               const Decision& decision, const schedule::Plan& plan);
void check_plan(const Scheduler& scheduler, const fusion::Problem& problem,
                const Decision& decision, const schedule::Plan& wanted);
// Returns the first scheduler that accepts the problem. Raises Unsupported with the reason of every
// rejection if no scheduler accepts it.
const Scheduler& choose(const fusion::Problem& problem);
// Does the same among cpu_schedulers(), but returns nullptr if none accepts the problem.
const Scheduler* choose_cpu(const fusion::Problem& problem);

}  // namespace fuser::schedulers
