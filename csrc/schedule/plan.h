// A Plan: what a scheduler chose for a kernel, as named integers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "schedule/access_set.h"

namespace fuser {

using PlanValue = std::variant<int64_t, AccessSet>;

// Printable, comparable, and changeable by the user.
struct Plan {
  std::string scheduler;
  std::vector<std::pair<std::string, PlanValue>> fields;

  // A scheduler that would rather have the group's values computed by several kernels
  // (Group::pieces) plans nothing else.
  bool in_pieces() const { return scheduler == "pieces"; }

  const PlanValue& value(std::string_view name) const;
  int64_t get(std::string_view name) const;
  const AccessSet& set(std::string_view name) const;
  bool operator==(const Plan&) const = default;
};

// `planned` with the fields that `wanted` has otherwise, each as the kind of value that it is
// there. Raises UserError "plan-1" for a number that it cannot be, "plan-2" for a field that it
// does not have.
Plan merged(const Plan& planned, const Plan& wanted);

// Plans are keys in full.
void append_key(const Plan& plan, std::vector<uint64_t>& key);

std::string to_string(const PlanValue& value);  // the integer
std::string to_string(const Plan& plan);        // "pointwise(threads=256, vector=8)"

}  // namespace fuser
