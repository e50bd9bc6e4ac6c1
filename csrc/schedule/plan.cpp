#include "schedule/plan.h"

#include <algorithm>

#include "base/error.h"

namespace fuser::schedule {
namespace {

// Converts a number of any length, given as words with the lowest first, to decimal.
std::string decimal(std::vector<uint64_t> words) {
  constexpr uint64_t base = 1'000'000'000;
  std::string out;
  while (!words.empty()) {
    uint64_t rest = 0;
    for (size_t i = words.size(); i-- > 0;)
      for (int half = 1; half >= 0; --half) {
        const uint64_t part = rest << 32 | (words[i] >> 32 * half & UINT32_MAX);
        words[i] &= ~(uint64_t{UINT32_MAX} << 32 * half);
        words[i] |= part / base << 32 * half;
        rest = part % base;
      }
    while (!words.empty() && !words.back()) words.pop_back();
    std::string digits = std::to_string(rest);
    if (!words.empty()) digits.insert(0, 9 - digits.size(), '0');
    out.insert(0, digits);
  }
  return out.empty() ? "0" : out;
}

// Converts the value that the user wrote to the kind of value that the plan has.
PlanValue as_planned(const std::string& name, const PlanValue& planned, const PlanValue& wanted) {
  if (planned.index() == wanted.index()) return wanted;
  const auto* number = std::get_if<int64_t>(&wanted);
  FUSER_CHECK(number, User, "plan-1", "plan: ", name, "=", to_string(wanted),
              " has a wrong type; expected an int of 64 bits, like the planned ",
              to_string(planned));
  FUSER_CHECK(*number >= 0, User, "plan-1", "plan: ", name, "=", *number,
              " has a wrong type; expected a set of accesses, an int of 0 or more with bit i for ",
              "access i, like the planned ", to_string(planned));
  return AccessSet({static_cast<uint64_t>(*number)});
}

void append_text(std::string_view text, std::vector<uint64_t>& key) {
  key.push_back(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (i % sizeof(uint64_t) == 0) key.push_back(0);
    key.back() |= uint64_t{static_cast<unsigned char>(text[i])} << 8 * (i % sizeof(uint64_t));
  }
}

}  // namespace

const PlanValue& Plan::value(std::string_view wanted) const {
  for (const auto& [name, value] : fields)
    if (name == wanted) return value;
  throw Fault(FaultKind::Internal, "internal",
              text("plan ", to_string(*this), " has no field ", wanted));
}

int64_t Plan::get(std::string_view name) const { return std::get<int64_t>(value(name)); }

const AccessSet& Plan::set(std::string_view name) const { return std::get<AccessSet>(value(name)); }

Plan merged(const Plan& planned, const Plan& wanted) {
  Plan out = planned;
  out.schedule = wanted.schedule;
  for (const auto& [name, value] : wanted.fields) {
    const auto it = std::find_if(out.fields.begin(), out.fields.end(),
                                 [&](const auto& f) { return f.first == name; });
    FUSER_CHECK(it != out.fields.end(), User, "plan-2", "plan: no field ", name,
                "; planned: ", to_string(planned));
    it->second = as_planned(name, it->second, value);
  }
  return out;
}

void append_key(const Plan& plan, std::vector<uint64_t>& key) {
  append_text(plan.scheduler, key);
  append_text(plan.schedule, key);
  key.push_back(plan.fields.size());
  for (const auto& [name, value] : plan.fields) {
    append_text(name, key);
    if (const auto* number = std::get_if<int64_t>(&value)) {
      key.push_back(0);
      key.push_back(static_cast<uint64_t>(*number));
    } else {
      const auto& words = std::get<AccessSet>(value).words();
      key.push_back(1 + words.size());
      key.insert(key.end(), words.begin(), words.end());
    }
  }
}

std::string to_string(const PlanValue& value) {
  const auto* number = std::get_if<int64_t>(&value);
  return number ? std::to_string(*number) : decimal(std::get<AccessSet>(value).words());
}

std::string to_string(const Plan& plan) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : plan.fields) parts.push_back(text(name, "=", to_string(value)));
  return text(plan.scheduler, "(", joined(parts), ")");
}

}  // namespace fuser::schedule
