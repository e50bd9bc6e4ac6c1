// Execution of a group: one definition per kind of arguments.
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
#include "torch/script/layout.h"

namespace fuser::script {

// Role of an argument of a group.
enum class ArgumentRole {
  Tensor,   // rank, dtype and dims of size 1 select the definition
  Number,   // a number of the run
  Sizes,    // an int or ints that are sizes: 0, 1 and negative values select the definition, other
            // values are numbers of the run
  Constant  // its value selects the definition
};

// Kind of arguments, as integers; see sign().
using Signature = c10::SmallVector<int64_t, 32>;

// A definition for one kind of arguments.
struct Specialization {
  Signature signature;
  bool by_value = false;  // no argument is a number of the run
  bridge::TorchExecutor* executor =
      nullptr;  // nullptr: no definition, run eagerly; owned by the group
  // Output of the group: index of a result, or an undefined tensor, or a number.
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

// Observer of each fused run. It gets the results and the graph. If `unfused`, it also gets the
// results of the unfused graph for these arguments; else an empty list.
struct Comparison {
  bool unfused = false;
  std::function<void(c10::ArrayRef<c10::IValue> fused, c10::ArrayRef<c10::IValue> unfused,
                     const torch::jit::Graph& graph)>
      look;
};
// nullptr: no observer
void set_comparison(std::shared_ptr<const Comparison> wanted);

class ScriptGroup {
 public:
  explicit ScriptGroup(std::shared_ptr<torch::jit::Graph> graph);
  ScriptGroup(const ScriptGroup&) = delete;
  ScriptGroup& operator=(const ScriptGroup&) = delete;
  ~ScriptGroup();
  // Takes the arguments from the stack and pushes the results.
  void run(torch::jit::Stack& stack);

 private:
  struct Hash {
    size_t operator()(const Signature& s) const;
  };

  ArgumentRole role(size_t place, bool by_value) const;
  Signature signature(c10::ArrayRef<c10::IValue> arguments, bool by_value) const;
  size_t count();  // number of definitions
  const Specialization* find(const Signature& signature);
  std::optional<std::vector<Places>> example_for(const Signature& signature,
                                                 c10::ArrayRef<c10::IValue> arguments);
  const Specialization* specialize(const Signature& signature, c10::ArrayRef<c10::IValue> arguments,
                                   bool by_value, const std::vector<Places>& results_as);
  const Specialization* keep(Specialization made, bool replace);
  bridge::TorchArguments bind(const Specialization& how,
                              c10::ArrayRef<c10::IValue> arguments) const;
  struct Attempt;
  void run_fused(c10::ArrayRef<c10::IValue> arguments, bool by_value, Attempt& attempt);
  void run_unfused(torch::jit::Stack& stack, const Attempt& attempt);

  const std::shared_ptr<torch::jit::Graph> graph_;
  const torch::jit::Code unfused_;
  const std::vector<ArgumentRole> roles_;
  const std::vector<bool> kept_;  // by argument: saved by batch_norm for its gradient, may have no
                                  // elements
  const std::vector<bool> statistics_;  // by argument: running statistics, written without a new
                                        // version
  // Profiled data: layouts of arguments and results, and whether any value of the graph was not
  // row-major. deciding_sizes_ is the limit up to which sizes affect the layout of slices.
  const std::vector<std::optional<Arrangement>> inputs_as_;
  const std::optional<std::vector<Places>> outputs_as_;
  const bool moves_;
  const int64_t deciding_sizes_;
  // The definition cannot be written with numbers of the run, so every value selects a definition.
  std::atomic<bool> by_value_{false};
  std::atomic<bool> reported_{false};

  std::atomic<const Specialization*> last_{nullptr};  // most calls are like the previous one
  std::mutex mutex_;                                  // look-up and insertion only
  std::unordered_map<Signature, const Specialization*, Hash> specializations_;
  std::unordered_map<Signature, std::vector<Places>, Hash> examples_;  // layouts of eager results
  // runs may use them, so they are freed with the group
  std::vector<std::unique_ptr<const Specialization>> all_;
};

}  // namespace fuser::script
