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
  CompiledGraph forward, backward;
  size_t results = 0;  // of the function; what else the forward graph gives, the backward graph
                       // takes, before the gradients of the results
  std::vector<std::vector<int64_t>> sizes, strides;  // that the backward graph wants of these
  bool autocast = false;                             // traced with casts, which are in the graphs
  pybind11::object finish;                           // makes of a tuple what the caller gets; None
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

// Runs it under torch's autograd; what the caller gets.
pybind11::object call_direct(const DirectFunctionRef& function,
                             const std::vector<at::Tensor>& inputs);

// While it is set, graphs run through Python, where fuser.explain looks at each region.
std::atomic<bool>& python_runs_graphs();

// The traces of one function, by layout of its arguments.
class DirectTraces {
 public:
  void add(PyObject* const* given, size_t count, DirectFunctionRef function);
  // What the function gives, or NotImplemented: no trace is for these arguments, or torch is in a
  // mode in which none may run.
  PyObject* call(PyObject* const* given, size_t count) const;

 private:
  struct Hash {
    size_t operator()(const std::vector<int64_t>& key) const;
  };
  std::unordered_map<std::vector<int64_t>, DirectFunctionRef, Hash> traces_;
};

}  // namespace fuser
