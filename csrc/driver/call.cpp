#include "driver/call.h"

#include <utility>

namespace fuser::driver {

using namespace program;

int64_t Call::elements() const {
  int64_t total = 0;
  bool many = false;
  visit_running([&](int group) {
    int64_t elements = 1;
    for (int64_t extent : sizes[group].extents)
      many |= __builtin_mul_overflow(elements, extent, &elements);
    many |= __builtin_add_overflow(total, elements, &total);
  });
  return many ? INT64_MAX : total;
}

std::vector<RunningKernel> Call::kernels() const {
  std::vector<RunningKernel> out;
  bool behind_other = false;
  for (const Step& step : specialized->program.steps) {
    const auto* kernel = std::get_if<KernelStep>(&step);
    behind_other |= !kernel;
    if (!kernel) continue;
    visit_running(*kernel, [&](int group) {
      out.push_back({.group = &specialized->groups[group],
                     .variant = variants[group],
                     .behind_other = std::exchange(behind_other, false)});
    });
  }
  return out;
}

}  // namespace fuser::driver
