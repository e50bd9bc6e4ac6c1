// A planned call of a definition: the kernels that it runs, before any of them is compiled.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "driver/compile.h"
#include "driver/horizontal.h"

namespace fuser::driver {

// A call between its arguments and its launch record.
struct Call {
  std::shared_ptr<Specialized> specialized;
  // Variant by group. nullptr: the group's kernel does not run, because it has nothing to store or
  // because the kernels of its fission run instead.
  std::vector<std::shared_ptr<const Variant>> variants;
  std::vector<GroupSizes> sizes;  // by group

  // Calls visitor(group) for the groups whose kernels run, in order: of one step, or of all steps.
  template <class Visitor>
  void visit_running(const program::KernelStep& step, Visitor&& visitor) const {
    visit_group(step.group, visitor);
  }
  template <class Visitor>
  void visit_group(int group, Visitor& visitor) const {
    if (variants[group]) return visitor(group);
    for (int kernel : specialized->groups[group].fission) visit_group(kernel, visitor);
  }
  template <class Visitor>
  void visit_running(Visitor&& visitor) const {
    for (const program::Step& step : specialized->program.steps)
      if (const auto* kernel = std::get_if<program::KernelStep>(&step))
        visit_running(*kernel, visitor);
  }
  // Returns the number of elements that all running kernels compute.
  int64_t elements() const;
  // Returns the running kernels, in order.
  std::vector<RunningKernel> kernels() const;
};

}  // namespace fuser::driver
