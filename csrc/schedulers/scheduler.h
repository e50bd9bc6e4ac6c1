// What a scheduler is: three functions.
//
// match() is shape-free: it accepts a problem and names the facts about sizes that plan() will ask
// for, or says why not. plan() is pure and sees Hints, never a size. schedule() turns a plan into a
// Schedule. A plan is valid for every size that has the same hints.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "fusion/facts.h"
#include "schedule/device.h"
#include "schedule/plan.h"
#include "schedule/schedule.h"

namespace fuser {

struct Reject {
  std::string rule;  // id
  std::string text;  // for the user
};

struct Verdict {
  std::optional<Reject> reject;  // nothing: accepted
  std::vector<Fact> facts;       // for plan()
  std::vector<Expr> extents;     // whose buckets plan() asks for
};
inline Verdict refuse(const char* rule, const char* text) {
  return {.reject = Reject{.rule = rule, .text = text}};
}

struct Scheduler {
  const char* name;
  Verdict (*match)(Problem&);
  Plan (*plan)(Problem&, const Hints&, const Device&);
  Schedule (*schedule)(Problem&, const Plan&);
  // Raises UserError "plan-1" for a change that a user may not make. Plans that it lets pass
  // are right for all sizes for which `planned` was planned; check_resources() (legal.h) asks the
  // rest of the kernel.
  void (*check)(Problem&, const Plan& planned, const Plan& wanted);
  const char* reason;  // why it stands where it stands in the list
  // What its kernels do beside their ops, in their names; empty: nothing.
  const char* moves = "";
};

// All schedulers, most specific first (registry.cpp).
std::span<const Scheduler> schedulers();
// The first scheduler that takes the problem; raises Unsupported with every Reject when none does.
const Scheduler& choose(Problem& problem, Verdict& verdict);

}  // namespace fuser
