#include "torch/profile.h"

#include <ATen/record_function.h>

#include "base/error.h"
#include "ir/library.h"

namespace fuser::bridge {

using namespace driver;
using namespace fusion;
using namespace ir;

bool profiler_listens() {
  return at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE).has_value();
}

std::string profiler_name(const StepRecord& step) {
  if (const auto* launch = std::get_if<LaunchRecord>(&step))
    return text("fuser: ", launch->kernel->source.name);
  if (const auto* call = std::get_if<LibraryCall>(&step))
    return text("fuser: ", row(call->op).name);
  return "fuser: copy";
}

struct ProfilerRange::Open {
  at::RecordFunction function{at::RecordScope::USER_SCOPE};
};

ProfilerRange::ProfilerRange(const std::string& name) {
  if (name.empty()) return;
  open_ = std::make_unique<Open>();
  open_->function.before(name);
}

ProfilerRange::~ProfilerRange() = default;

}  // namespace fuser::bridge
