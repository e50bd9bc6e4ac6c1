// The executor of one definition on torch tensors, as csrc/torch calls it.
#pragma once

#include <atomic>

#include "bind/handles.h"
#include "torch/bridge.h"

namespace fuser::bridge {

struct TorchExecutor {
  bind::BuilderRef builder;  // owns the fusion
  driver::Executor executor;
  // Its next run in Python times plans, so no run may bypass Python.
  std::atomic<bool> is_awaited{false};

  explicit TorchExecutor(bind::BuilderRef b) : builder(std::move(b)), executor(*builder) {
    builder->sealed = true;
  }
};

// Returns false once the interpreter finalizes. Then no thread may wait for its lock.
bool python_alive();

// Performs all parts of a call that may reject it: plans and compiles. Then takes the random
// numbers of the run and writes them into the arguments. The interpreter's lock may be held or not.
driver::RecordRef prepare(driver::Executor& executor, TorchArguments& arguments,
                          const std::vector<schedule::Plan>& plans);

}  // namespace fuser::bridge
