// Scheduler: the three functions that turn a Problem into a Schedule, plus a check of changed
// plans.
//
// match() is independent of sizes. It accepts a problem and collects the guards and extents that
// plan() needs, or rejects the problem with a reason. plan() sees size hints, never a size, so a
// plan is valid for all sizes with equal hints. schedule() turns a plan into a Schedule. All three
// take a non-const Problem because they intern expressions into its arena; they change nothing
// else.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "fusion/kernel/problem.h"
#include "schedule/device.h"
#include "schedule/plan.h"
#include "schedule/schedule.h"

namespace fuser {

struct Rejection {
  std::string rule;  // rule id
  std::string text;  // reason, for the user
};

struct MatchResult {
  std::optional<Rejection> rejection;  // empty if the problem is accepted
  std::vector<Guard> guards;           // guards that plan() needs
  std::vector<Expr> extents;           // extents whose buckets plan() needs
};
inline MatchResult refuse(const char* rule, const char* text) {
  return {.rejection = Rejection{.rule = rule, .text = text}};
}

struct Scheduler {
  const char* name;
  MatchResult (*match)(Problem&);
  Plan (*plan)(Problem&, const SizeHints&, const Device&);
  Schedule (*schedule)(Problem&, const Plan&);
  // Checks the fields that a user changed and raises UserError "plan-1" if a value is not allowed.
  // An accepted plan is correct for all sizes for which `planned` was planned. check_resources()
  // (legal.h) checks the registers and shared memory of the built kernel.
  void (*check)(Problem&, const Plan& planned, const Plan& wanted);
  const char* reason;  // reason for its position in the list
  // Word for the data movement of its kernels, used in kernel names; empty if it moves data in
  // order.
  const char* moves = "";
  bool for_cpu = false;  // its schedules are those of CPU kernels (lower_cpu)
};

// All schedulers of GPU kernels, most specific first (registry.cpp), and those of CPU kernels
// (cpu/registry.cpp).
std::span<const Scheduler> schedulers();
std::span<const Scheduler> cpu_schedulers();
// Returns the first scheduler that accepts the problem, and its match result in `match`. Raises
// Unsupported with the reason of every rejection if no scheduler accepts it.
const Scheduler& choose(Problem& problem, MatchResult& match);
// Does the same among cpu_schedulers(), but returns nullptr if none accepts the problem.
const Scheduler* choose_cpu(Problem& problem, MatchResult& match);

}  // namespace fuser
