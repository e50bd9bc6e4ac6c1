// Ranges by which torch's profilers know the steps of a call: torch.profiler shows them by name,
// and under torch.autograd.profiler.emit_nvtx() they are NVTX ranges.
#pragma once

#include <memory>
#include <string>

#include "driver/launch.h"

namespace fuser {

// Does a profiler listen on this thread?
bool profiler_listens();

// "fuser: softmax_fwd_..." for a kernel, "fuser: matmul" for a library call, "fuser: copy".
std::string profiler_name(const StepRecord& step);

// A range from construction to destruction; none for an empty name.
class ProfilerRange {
 public:
  explicit ProfilerRange(const std::string& name);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;

 private:
  struct Open;
  std::unique_ptr<Open> open_;
};

}  // namespace fuser
