// Schedules written by hand: a user prints the schedule of a kernel, changes lines, and runs it.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "fusion/kernel/problem.h"
#include "schedule/schedule.h"

namespace fuser::schedulers {

// Returns the schedule of the text. `planned`: schedule of the kernel's plan, for equal hints.
//
// Raises UserError "schedule-1" if the text cannot be read, "schedule-2" and "schedule-3" if
// verify() refuses it, "schedule-4" if it is not known to be correct for all sizes of the plan.
// Facts of sizes come from the planned schedule, which states as many as the hints allow: a
// schedule by hand may use fewer. An accepted schedule computes what the planned one does.
schedule::Schedule schedule_by_hand(const fusion::Problem& problem,
                                    const schedule::Schedule& planned, const std::string& text);
// Does the same for a CPU kernel (cpu/by_hand.cpp).
schedule::Schedule cpu_schedule_by_hand(const fusion::Problem& problem,
                                        const schedule::Schedule& planned, const std::string& text);

// Raises "schedule-4" unless the fact holds.
template <class... T>
void expect_fact(bool holds, const T&... message) {
  FUSER_CHECK(holds, User, "schedule-4", "schedule: ", message...,
              "\n  hint: fd.schedules(inputs) has the facts that hold for these sizes");
}
// Returns the axes of all dims, outermost first.
std::vector<fusion::AxisId> axes_in_order(const schedule::Schedule& schedule);

}  // namespace fuser::schedulers
