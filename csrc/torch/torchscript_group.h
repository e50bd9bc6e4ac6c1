// What runs a group: one definition for each kind of arguments that the group meets.
#pragma once

#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "torch/executor.h"
#include "torch/torchscript_layout.h"

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
  bool by_value = false;  // no argument is a number of the run
  TorchExecutor* executor =
      nullptr;  // nullptr: there is none, eager computes; freed with its group
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

// Who looks at each fused run: at its results, at those that the unfused graph gives for the same
// arguments where these are wanted (none otherwise), and at the graph.
struct Comparison {
  bool unfused = false;
  std::function<void(c10::ArrayRef<c10::IValue> fused, c10::ArrayRef<c10::IValue> unfused,
                     const torch::jit::Graph& graph)>
      look;
};
// nullptr: nobody.
void set_comparison(std::shared_ptr<const Comparison> wanted);

class ScriptGroup {
 public:
  explicit ScriptGroup(std::shared_ptr<torch::jit::Graph> graph);
  ScriptGroup(const ScriptGroup&) = delete;
  ScriptGroup& operator=(const ScriptGroup&) = delete;
  ~ScriptGroup();
  // Takes the arguments from the stack and leaves the results there.
  void run(torch::jit::Stack& stack);

 private:
  struct Hash {
    size_t operator()(const Signature& s) const;
  };

  ArgumentRole role(size_t place, bool by_value) const;
  Signature signature(c10::ArrayRef<c10::IValue> arguments, bool by_value) const;
  size_t count();  // of definitions
  const Specialization* find(const Signature& signature);
  std::optional<std::vector<Places>> example_for(const Signature& signature,
                                                 c10::ArrayRef<c10::IValue> arguments);
  const Specialization* specialize(const Signature& signature, c10::ArrayRef<c10::IValue> arguments,
                                   bool by_value, const std::vector<Places>& results_as);
  const Specialization* keep(Specialization made, bool replace);
  TorchArguments bind(const Specialization& how, c10::ArrayRef<c10::IValue> arguments) const;
  struct Attempt;
  void run_fused(c10::ArrayRef<c10::IValue> arguments, bool by_value, Attempt& attempt);
  void run_unfused(torch::jit::Stack& stack, const Attempt& attempt);

  const std::shared_ptr<torch::jit::Graph> graph_;
  const torch::jit::Code unfused_;
  const std::vector<ArgumentRole> roles_;
  const std::vector<bool> kept_;  // by batch_norm for its gradient: may have no elements
  // As profiled: where it was, how arguments and results lay in memory, and whether any value of
  // the graph lay otherwise than row-major. And what of sizes
  // decides where parts of dims stand.
  const std::vector<std::optional<Arrangement>> inputs_as_;
  const std::optional<std::vector<Places>> outputs_as_;
  const bool moves_;
  const int64_t deciding_sizes_;
  // The definition cannot be written with numbers of the run; every value chooses one.
  std::atomic<bool> by_value_{false};
  std::atomic<bool> reported_{false};

  std::atomic<const Specialization*> last_{nullptr};  // most calls are like the one before
  std::mutex mutex_;                                  // look-up and insertion only
  std::unordered_map<Signature, const Specialization*, Hash> specializations_;
  std::unordered_map<Signature, std::vector<Places>, Hash> examples_;  // how eager's results lay
  std::vector<std::unique_ptr<const Specialization>> all_;  // what runs may use; never freed before
};

}  // namespace fuser
