// The constants of tuning.def as variables: cost::inner::grid_row. Only set_tuned() changes them.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

namespace fuser::cost {

// A constant with a value for each architecture.
struct ByArch {
  double sm_70, sm_80, sm_90, cpu;
  // Returns the value of an architecture, 10 * major + minor; 0: a CPU.
  double of(int arch) const;
};

#define FUSER_TUNED_GROUP(name, file) namespace name {
#define FUSER_TUNED_END() }
#define FUSER_TUNED(name, type, value, values, least, most, unit, meaning) extern type name;
#define FUSER_TUNED_BY_ARCH(name, sm_70, sm_80, sm_90, cpu, least, most, unit, meaning) \
  extern ByArch name;
#include "cost/tuning.def"

// A row of the table.
struct Tuned {
  enum class Values : uint8_t { Any, Multiple, Power };
  const char* group;  // namespace of the constant
  const char* file;   // file that uses it
  const char* name;
  std::variant<int*, int64_t*, double*, ByArch*> value;
  Values values;
  double least, most;
  const char* unit;
  const char* meaning;
};
const std::vector<Tuned>& tuned();

// Changes a constant, "inner.grid_row", for tests and measurements; of ByArch, all values. No other
// thread may plan meanwhile. Kernels planned before keep their plans.
void set_tuned(std::string_view name, double value);

}  // namespace fuser::cost
