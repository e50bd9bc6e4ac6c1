// Horizontal fusion: independent kernels of a call with equal text run in one launch, e.g. the
// updates of many tensors by an optimizer (codegen/cuda.h: print_horizontal).
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "driver/compile.h"
#include "driver/launch.h"

namespace fuser::driver {

// A kernel of a call, in the order of its steps.
struct RunningKernel {
  const Group* group = nullptr;
  std::shared_ptr<const Variant> variant;
  bool behind_other = false;  // a library call or a copy precedes it
};

// Returns the indices of the kernels of each launch. A launch takes the position of its first
// kernel. If `join` is false, then every kernel is a launch of its own.
std::vector<std::vector<size_t>> launches_of(const std::vector<RunningKernel>& kernels, bool join);

// Returns the text to compile for a launch of these kernels.
codegen::KernelText text_of_launch(const std::vector<RunningKernel>& kernels,
                                   const std::vector<size_t>& launch);
// Returns the loaded kernels of the launches: kernels that a variant holds, and all others built in
// one batch. `mutex` protects the variants' kernels.
std::vector<LoadedKernelRef> load_launches(const std::vector<RunningKernel>& kernels,
                                           const std::vector<std::vector<size_t>>& launches,
                                           int device, std::mutex& mutex);

// Fuses launches horizontally into one launch of `kernel`, the result of print_horizontal().
LaunchRecord join_launches(const std::vector<LaunchRecord>& parts, LoadedKernelRef kernel);

}  // namespace fuser::driver
