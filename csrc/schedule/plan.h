// Plan: the choices of a scheduler for one kernel, as named integers and sets of accesses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "schedule/access_set.h"

namespace fuser::schedule {

using PlanValue = std::variant<int64_t, AccessSet>;

// Plans are printable and comparable. A user may change fields and pass the plan back.
struct Plan {
  std::string scheduler;
  std::vector<std::pair<std::string, PlanValue>> fields;
  // Text of a schedule written by hand (schedulers/by_hand.h). Empty: the scheduler makes the
  // schedule from the fields.
  std::string schedule{};

  const PlanValue& value(std::string_view name) const;
  int64_t get(std::string_view name) const;
  const AccessSet& set(std::string_view name) const;
  bool operator==(const Plan&) const = default;
};

// Returns `planned` with the fields of `wanted` replaced, each converted to the kind of value that
// `planned` has. Raises UserError "plan-1" if the number cannot be converted, "plan-2" if `planned`
// does not have the field.
Plan merged(const Plan& planned, const Plan& wanted);

// Appends scheduler name, field names and values to the key, so that keys compare plans completely.
void append_key(const Plan& plan, std::vector<uint64_t>& key);

std::string to_string(const PlanValue& value);  // prints the integer
std::string to_string(const Plan& plan);        // prints "pointwise(threads=256, vector=8)"

}  // namespace fuser::schedule
