// Kernels of a call that have one text and do not wait for each other, such as those of many
// tensors that an optimizer steps, run in one launch (codegen/cuda.h: print_parts).
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "driver/compile.h"
#include "driver/launch.h"

namespace fuser {

// A kernel of a call, in the order of its steps.
struct RunningKernel {
  const Group* group = nullptr;
  std::shared_ptr<const Variant> variant;
  bool behind_other = false;  // a library call or a copy stands before it
};

// By launch, the kernels that it runs, by index; each launch stands where its first kernel did.
// With `join` unset every kernel is a launch of its own.
std::vector<std::vector<size_t>> launches_of(const std::vector<RunningKernel>& kernels, bool join);

// What is compiled for a launch of these kernels.
KernelText text_of_launch(const std::vector<RunningKernel>& kernels,
                          const std::vector<size_t>& launch);
// The kernels of the launches, in memory: those that a variant holds, and the others in one batch.
// `mutex`: of what the variants hold.
std::vector<LoadedKernelRef> load_launches(const std::vector<RunningKernel>& kernels,
                                           const std::vector<std::vector<size_t>>& launches,
                                           int device, std::mutex& mutex);

// One launch of `kernel`, which is print_parts() of what each of these runs.
LaunchRecord join_launches(const std::vector<LaunchRecord>& parts, LoadedKernelRef kernel);

}  // namespace fuser
