// Functions of tensors with their gradients, as fuser/adapters/direct.py traces them. Where a graph
// is one region, no Python runs between the call and the launch, nor between backward() and the
// launch.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <atomic>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "torch/executor.h"

namespace fuser {

// A graph that is one run of one definition.
struct WholeGraph {
  TorchExecutor* executor = nullptr;
  std::vector<int> arguments;  // of the definition: which of the graph's
  // Of the graph: a result of the run, or ~n for its n-th argument, or nothing.
  std::vector<std::optional<int>> results;
};

struct CompiledGraph {
  pybind11::object call;  // takes a list of tensors, which it empties; gives a sequence of them
  std::optional<WholeGraph> whole;
};

// A function traced for one layout of its arguments.
struct DirectFunction {
  // A gradient that the backward graph takes: of which result, and how it lies.
  struct Tangent {
    size_t result = 0;
    std::vector<int64_t> sizes, strides;
  };

  CompiledGraph forward;
  std::optional<CompiledGraph> backward;  // none: no gradients
  size_t results = 0;  // of the function; what else the forward graph gives, the backward graph
                       // takes, before the gradients of results
  std::vector<Tangent> tangents;  // results that have none are not differentiable
  std::vector<int> detached;      // inputs that autograd is not shown
  bool deterministic = false;     // traced so
  // Makes of a tuple what the caller gets; None: the only result; the type tuple: as it is.
  pybind11::object finish;
};
// Shared ownership as a tensor's of its memory: nodes of autograd keep values of scripts only. The
// last one may go on a thread of autograd's, without the interpreter's lock.
struct DirectFunctionRef {
  at::Tensor memory;

  const DirectFunction* operator->() const {
    return static_cast<const DirectFunction*>(memory.const_data_ptr());
  }
};
DirectFunctionRef shared(std::unique_ptr<DirectFunction> function);

// Runs it under torch's autograd on tensors; what the caller gets.
pybind11::object call_direct(const DirectFunctionRef& function, PyObject* const* given,
                             size_t count);

// What runs a function until both of its graphs are compiled, and then these.
struct DirectSwitch {
  pybind11::object wrapped;  // takes its arguments
  std::optional<DirectFunctionRef> function;
};

// While it is set, graphs run through Python, where fuser.explain looks at each region.
std::atomic<bool>& python_runs_graphs();

// Does a transformation of functorch, a mode or a tracer see the ops that run?
bool is_transformed();

// The traces of one function, by layout of its arguments.
class DirectTraces {
 public:
  // Can there be a trace for these arguments, and is it not known whether there is?
  bool lacks(PyObject* const* given, size_t count) const;
  // nullptr: none can be made.
  void add(PyObject* const* given, size_t count, std::optional<DirectFunctionRef> function);
  size_t size() const { return traces_.size(); }
  // What the function gives, or NotImplemented: no trace is for these arguments, or torch is in a
  // mode in which none may run.
  PyObject* call(PyObject* const* given, size_t count) const;

 private:
  struct Hash {
    size_t operator()(const std::vector<int64_t>& key) const;
  };
  std::unordered_map<std::vector<int64_t>, std::optional<DirectFunctionRef>, Hash> traces_;
};

}  // namespace fuser
