#include "cost/tuning.h"

#include "base/error.h"

namespace fuser::cost {

#define FUSER_TUNED_GROUP(name, file) namespace name {
#define FUSER_TUNED_END() }
#define FUSER_TUNED(name, type, value, values, least, most, unit, meaning) type name = value;
#define FUSER_TUNED_BY_ARCH(name, sm_70, sm_80, sm_90, cpu, least, most, unit, meaning) \
  ByArch name = {sm_70, sm_80, sm_90, cpu};
#include "cost/tuning.def"

double ByArch::of(int arch) const {
  if (arch == 0) return cpu;
  return arch < 80 ? sm_70 : arch < 90 ? sm_80 : sm_90;
}

const std::vector<Tuned>& tuned() {
  using Values = Tuned::Values;
  static const auto* rows = [] {
    auto* out = new std::vector<Tuned>;
    const auto add = [out](const Tuned& row) { out->push_back(row); };
#define FUSER_TUNED_GROUP(name, file) \
  {                                   \
    using namespace name;             \
    const char *const group = #name, *const used = file;
#define FUSER_TUNED_END() }
#define FUSER_TUNED(name, type, value, values, least, most, unit, meaning) \
  add({group, used, #name, &name, Values::values, least, most, unit, meaning});
#define FUSER_TUNED_BY_ARCH(name, sm_70, sm_80, sm_90, cpu, least, most, unit, meaning) \
  add({group, used, #name, &name, Values::Any, least, most, unit, meaning});
#include "cost/tuning.def"
    return out;
  }();
  return *rows;
}

void set_tuned(std::string_view name, double value) {
  for (const Tuned& row : tuned())
    if (text(row.group, ".", row.name) == name) {
      if (ByArch* const* all = std::get_if<ByArch*>(&row.value))
        **all = {value, value, value, value};
      else if (int64_t* const* wide = std::get_if<int64_t*>(&row.value))
        **wide = static_cast<int64_t>(value);
      else if (int* const* number = std::get_if<int*>(&row.value))
        **number = static_cast<int>(value);
      else
        *std::get<double*>(row.value) = value;
      return;
    }
  FUSER_ASSERT(false, "no tuned constant ", std::string(name));
}

}  // namespace fuser::cost
