// The executor of one definition on Python arguments.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "torch/executor.h"

namespace fuser::bridge {

// Converts a Python value to a scalar of that dtype. `position` is the argument's position, for
// errors.
ir::Number to_number(pybind11::handle value, ir::DType wanted, size_t position);

struct PythonExecutor : TorchExecutor {
  using TorchExecutor::TorchExecutor;

  // Converts a list or another sequence, in definition order.
  TorchArguments arguments(pybind11::handle inputs, pybind11::handle device) const;
  TorchArguments reserved() const;  // reserves memory for all arguments
  // Appends argument i.
  void add(TorchArguments& out, size_t i, pybind11::handle value) const;
  void check_count(size_t given) const;

  pybind11::list execute(pybind11::handle inputs, pybind11::handle device, pybind11::handle plan);
};

// Runs a record. A long run of the host executor releases the interpreter's lock.
Results run_for_python(const driver::Record& record, const TorchArguments& arguments);

}  // namespace fuser::bridge
