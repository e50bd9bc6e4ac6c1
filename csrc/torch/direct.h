// Autograd functions of tensors, as traced by fuser/adapters/autograd/autograd_function.py. If a
// graph is one region, then no Python code runs between the call and the launch, nor between
// backward() and the launch.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <atomic>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "torch/executor.h"

namespace fuser::bridge {

// A graph that is one run of one definition.
struct WholeGraph {
  TorchExecutor* executor = nullptr;
  std::vector<int> arguments;  // index of the graph's argument, by argument of the definition
  // By result of the graph: index of a result of the run, ~n for the graph's argument n, or nullopt
  // for no tensor.
  std::vector<std::optional<int>> results;
};

struct CompiledGraph {
  pybind11::object call;  // takes a list of tensors, which it empties, and returns a sequence of
                          // tensors
  std::optional<WholeGraph> whole;
};

// A function traced for one layout of its arguments.
struct DirectFunction {
  // A gradient that the backward graph takes: index of its result, and its layout.
  struct Tangent {
    size_t result = 0;
    std::vector<int64_t> sizes, strides;
  };

  CompiledGraph forward;
  std::optional<CompiledGraph> backward;  // nullopt: no gradients
  size_t results = 0;  // number of the function's results; further results of the forward graph are
                       // arguments of the backward graph, before the gradients
  std::vector<Tangent> tangents;  // results without a tangent are not differentiable
  std::vector<int> detached;      // inputs that are detached from autograd
  bool deterministic = false;     // traced under deterministic algorithms
  // Converts the tuple of results to the caller's structure. None: return the single result.
  // `tuple`: return it unchanged.
  pybind11::object finish;
};
// Shared ownership, implemented as a tensor's memory, because autograd nodes save only script
// values. The last reference may be dropped on an autograd thread without the interpreter's lock.
struct DirectFunctionRef {
  at::Tensor memory;

  const DirectFunction* operator->() const {
    return static_cast<const DirectFunction*>(memory.const_data_ptr());
  }
};
DirectFunctionRef shared(std::unique_ptr<DirectFunction> function);

// Runs the function under torch's autograd. Returns the caller's result.
pybind11::object call_direct(const DirectFunctionRef& function, PyObject* const* given,
                             size_t count);

// Runs `wrapped` until both graphs of a function are compiled, and then the function.
struct DirectSwitch {
  pybind11::object wrapped;  // takes the arguments of the function
  std::optional<DirectFunctionRef> function;
};

// If set, graphs run through Python, so that fuser.explain sees each region.
std::atomic<bool>& python_runs_graphs();

// Returns whether a functorch transformation, a mode or a tracer sees the ops that run.
bool is_transformed();

// Traces of one function, by layout of its arguments.
class DirectTraces {
 public:
  // Returns whether a trace for these arguments is possible and has not been attempted.
  bool lacks(PyObject* const* given, size_t count) const;
  // `function` is nullopt if no trace can be made.
  void add(PyObject* const* given, size_t count, std::optional<DirectFunctionRef> function);
  size_t size() const { return traces_.size(); }
  // Returns the function's result. Returns NotImplemented if there is no trace for these arguments,
  // or torch is in a mode that excludes traces.
  PyObject* call(PyObject* const* given, size_t count) const;

 private:
  struct Hash {
    size_t operator()(const std::vector<int64_t>& key) const;
  };
  std::unordered_map<std::vector<int64_t>, std::optional<DirectFunctionRef>, Hash> traces_;
};

}  // namespace fuser::bridge
