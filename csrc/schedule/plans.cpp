#include "schedule/plans.h"

namespace fuser::schedule {
namespace {

// Reasons that several schedulers give for a range.
constexpr char too_many_threads[] = "a block has at most 1024 threads";
constexpr char too_many_registers[] = "more unrolled elements would spill registers";

constexpr PlanField all_fields[] = {
#define FUSER_FIELD(name, type, unit, meaning) {#name, #type, unit, meaning},
#include "schedule/plan_fields.def"
};

struct PlanRow {
  const char* scheduler;
  std::vector<FieldRange> fields;
};

const std::vector<PlanRow>& plan_rows() {
  using Values = FieldRange::Values;
  static const auto* rows = new std::vector<PlanRow>{
#define FUSER_PLAN(name, Struct) {#name, {
#define FUSER_FREE(name, values, least, most, why) {#name, Values::values, least, most, why},
#define FUSER_DERIVED(name) {#name, Values::Derived},
#define FUSER_PLAN_END() \
  }                      \
  }                      \
  ,
#include "schedule/plan_fields.def"
  };
  return *rows;
}

void add(Plan& plan, const char* name, int64_t value) { plan.fields.emplace_back(name, value); }
void add(Plan& plan, const char* name, const AccessSet& value) {
  plan.fields.emplace_back(name, value);
}

void read(const Plan& plan, const char* name, int64_t& value) { value = plan.get(name); }
void read(const Plan& plan, const char* name, bool& value) { value = plan.get(name) != 0; }
void read(const Plan& plan, const char* name, AccessSet& value) { value = plan.set(name); }

}  // namespace

std::span<const PlanField> plan_fields() { return all_fields; }

std::span<const FieldRange> fields_of(std::string_view scheduler) {
  for (const PlanRow& row : plan_rows())
    if (row.scheduler == scheduler) return row.fields;
  return {};
}

std::vector<std::string_view> planned_schedulers() {
  std::vector<std::string_view> out;
  for (const PlanRow& row : plan_rows()) out.emplace_back(row.scheduler);
  return out;
}

#define FUSER_PLAN(name, Struct)     \
  Plan to_plan(const Struct& plan) { \
    Plan out{.scheduler = #name, .fields = {}};
#define FUSER_FREE(name, values, least, most, why) add(out, #name, plan.name);
#define FUSER_DERIVED(name) add(out, #name, plan.name);
#define FUSER_PLAN_END() \
  return out;            \
  }
#include "schedule/plan_fields.def"

#define FUSER_PLAN(name, Struct) void read(const Plan& plan, Struct& out) {
#define FUSER_FREE(name, values, least, most, why) read(plan, #name, out.name);
#define FUSER_DERIVED(name) read(plan, #name, out.name);
#define FUSER_PLAN_END() }
#include "schedule/plan_fields.def"

}  // namespace fuser::schedule
