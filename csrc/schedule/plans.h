// The plans of all schedulers as structs, and their fields as a table; both from plan_fields.def.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "schedule/access_set.h"
#include "schedule/plan.h"

namespace fuser::schedule {

// Types of the fields by name.
namespace field {
using Count = int64_t;
using Flag = bool;
using Accesses = AccessSet;
#define FUSER_FIELD(name, type, unit, meaning) using name = type;
#include "schedule/plan_fields.def"
}  // namespace field

#define FUSER_PLAN(name, Struct) struct Struct {
#define FUSER_FREE(name, values, least, most, why) field::name name{};
#define FUSER_DERIVED(name) field::name name{};
#define FUSER_PLAN_END() \
  }                      \
  ;
#include "schedule/plan_fields.def"

// to_plan() returns the plan with the fields in the order of the table.
#define FUSER_PLAN(name, Struct)    \
  Plan to_plan(const Struct& plan); \
  void read(const Plan& plan, Struct& out);
#define FUSER_PLAN_END()
#include "schedule/plan_fields.def"
// Returns the struct of a plan. Raises InternalError if the plan lacks a field.
template <class P>
P typed(const Plan& plan) {
  P out;
  read(plan, out);
  return out;
}

// Name of a field. A name that the table lacks does not compile.
struct FieldName {
  std::string_view text;
  consteval FieldName(const char* name) : text(name) {
    if (!is_field(text)) throw "no such field in plan_fields.def";
  }

 private:
  static consteval bool is_field(std::string_view name) {
#define FUSER_FIELD(field, type, unit, meaning) \
  if (name == #field) return true;
#include "schedule/plan_fields.def"
    return false;
  }
};

struct PlanField {
  const char* name;
  const char* type;  // "Count", "Flag" or "Accesses"
  const char* unit;  // unit of a Count, or empty
  const char* meaning;
};
std::span<const PlanField> plan_fields();

// The values that a user may set for a field of one scheduler.
struct FieldRange {
  // Derived: the planned value alone. Multiple: multiples of `least`. Divisor: divisors of `most`.
  // Power: powers of two. Subset: subsets of a set of accesses, which the scheduler checks.
  enum class Values : uint8_t { Derived, Any, Multiple, Divisor, Power, Subset };
  const char* name;
  Values values = Values::Any;
  int64_t least = 0, most = 0;
  const char* why = nullptr;  // reason for the range, after "because" in the message
};
// Returns the fields of a scheduler's plan, in order; empty for an unknown scheduler.
std::span<const FieldRange> fields_of(std::string_view scheduler);
std::vector<std::string_view> planned_schedulers();

}  // namespace fuser::schedule
