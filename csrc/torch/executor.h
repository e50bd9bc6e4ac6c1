// The executor of one definition on torch tensors, as everything in csrc/torch calls it.
#pragma once

#include <atomic>

#include "bind/handles.h"
#include "torch/bridge.h"

namespace fuser {

struct TorchExecutor {
  BuilderRef builder;  // owns the fusion
  Executor executor;
  // Somebody waits for its next run in Python, to time plans: no shortcut past it.
  std::atomic<bool> is_awaited{false};

  explicit TorchExecutor(BuilderRef b) : builder(std::move(b)), executor(*builder) {
    builder->sealed = true;
  }
};

// False once the interpreter goes down: nobody may wait for it any more.
bool python_alive();

// Everything that may refuse a call: plans, compiles, and then takes the random numbers of the run,
// which are written into the arguments. With or without the interpreter's lock.
RecordRef prepare(Executor& executor, TorchArguments& arguments, const std::vector<Plan>& plans);

}  // namespace fuser
