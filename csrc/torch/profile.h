// Profiler ranges of the steps of a call. torch.profiler shows them by name, and under
// torch.autograd.profiler.emit_nvtx() they are NVTX ranges.
#pragma once

#include <memory>
#include <string>

#include "driver/launch.h"

namespace fuser::bridge {

// Returns whether a profiler is active on this thread.
bool profiler_listens();

// Returns "fuser: softmax_fwd_..." for a kernel, "fuser: matmul" for a library call, "fuser: copy".
std::string profiler_name(const driver::StepRecord& step);

// A range from construction to destruction; no range for an empty name.
class ProfilerRange {
 public:
  explicit ProfilerRange(const std::string& name);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;

 private:
  struct Open;
  std::unique_ptr<Open> open_;
};

}  // namespace fuser::bridge
