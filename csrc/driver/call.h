// What a call of a definition runs: known once it is planned, before anything is compiled.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "driver/compile.h"
#include "driver/parts.h"

namespace fuser {

// A call on its way from arguments to a record.
struct Call {
  std::shared_ptr<Specialized> specialized;
  // By group; nullptr: its kernel does not run, because there is nothing to store or because its
  // pieces do.
  std::vector<std::shared_ptr<const Variant>> variants;
  std::vector<GroupSizes> sizes;  // by group

  // visitor(group) for those whose kernels run, in order: of one step, of all.
  template <class Visitor>
  void visit_running(const KernelStep& step, Visitor&& visitor) const {
    visit_group(step.group, visitor);
  }
  template <class Visitor>
  void visit_group(int group, Visitor& visitor) const {
    if (variants[group]) return visitor(group);
    for (int piece : specialized->groups[group].pieces) visit_group(piece, visitor);
  }
  template <class Visitor>
  void visit_running(Visitor&& visitor) const {
    for (const Step& step : specialized->program.steps)
      if (const auto* kernel = std::get_if<KernelStep>(&step)) visit_running(*kernel, visitor);
  }
  // That are computed, in all kernels.
  int64_t elements() const;
  // Those that run, in order.
  std::vector<RunningKernel> kernels() const;
};

}  // namespace fuser
