// What runs a group: one definition for each kind of arguments that the group meets.
#pragma once

#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "torch/executor.h"

namespace fuser {

// How a group takes an argument.
enum class ArgumentRole {
  Tensor,  // its rank, dtype and which dims are 1 choose the definition
  Number,  // a number of the run
  Sizes,  // an int or ints that are sizes: 0, 1 and negative ones choose the definition, others are
          // numbers of the run
  Constant  // its value chooses the definition
};

// The kind of arguments: see sign().
using Signature = c10::SmallVector<int64_t, 32>;

// A definition for one kind of arguments.
struct Specialization {
  Signature signature;
  bool by_value = false;              // no argument is a number of the run
  TorchExecutor* executor = nullptr;  // nullptr: there is none, eager computes; never freed
  // Of each output of the group: the result that it is; or no tensor at all; or a number.
  struct Output {
    int result = -1;
    c10::IValue value;
  };
  std::vector<Output> outputs;
};

struct GroupCounters {
  std::atomic<int64_t> definitions{0}, runs{0}, fallbacks{0};
};
GroupCounters& group_counters();

class ScriptGroup {
 public:
  explicit ScriptGroup(std::shared_ptr<torch::jit::Graph> graph);
  // Takes the arguments from the stack and leaves the results there.
  void run(torch::jit::Stack& stack);

 private:
  struct Hash {
    size_t operator()(const Signature& s) const;
  };

  ArgumentRole role(size_t place, bool by_value) const;
  Signature signature(c10::ArrayRef<c10::IValue> arguments, bool by_value) const;
  const Specialization* find(const Signature& signature);
  const Specialization* specialize(const Signature& signature, c10::ArrayRef<c10::IValue> arguments,
                                   bool by_value);
  const Specialization* keep(Specialization made, bool replace);
  TorchArguments bind(const Specialization& how, c10::ArrayRef<c10::IValue> arguments) const;
  bool run_fused(c10::ArrayRef<c10::IValue> arguments, std::vector<at::Tensor>& results,
                 const Specialization*& how);
  void run_unfused(torch::jit::Stack& stack);

  const std::shared_ptr<torch::jit::Graph> graph_;
  const torch::jit::Code unfused_;
  const std::vector<ArgumentRole> roles_;
  // The definition cannot be written with numbers of the run; every value chooses one.
  std::atomic<bool> by_value_{false};
  std::atomic<bool> reported_{false};

  std::atomic<const Specialization*> last_{nullptr};  // most calls are like the one before
  std::mutex mutex_;                                  // look-up and insertion only
  std::unordered_map<Signature, const Specialization*, Hash> specializations_;
  std::vector<std::unique_ptr<const Specialization>> all_;  // what runs may use; never freed before
};

}  // namespace fuser
