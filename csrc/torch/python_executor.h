// An executor of one definition on what Python gives it.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "torch/executor.h"

namespace fuser {

// A value of Python as a scalar of that dtype; the argument's position is for errors.
Number to_number(pybind11::handle value, DType wanted, size_t position);

struct PythonExecutor : TorchExecutor {
  using TorchExecutor::TorchExecutor;

  // A list or another sequence, in the order of definition.
  TorchArguments arguments(pybind11::handle inputs, pybind11::handle device) const;
  TorchArguments reserved() const;  // room for all of them
  // Appends argument i.
  void add(TorchArguments& out, size_t i, pybind11::handle value) const;
  void check_count(size_t given) const;

  pybind11::list execute(pybind11::handle inputs, pybind11::handle device, pybind11::handle plan);
};

// Runs a definition as Python does: the host executor lets other threads of Python go on.
Results run_for_python(const Record& record, const TorchArguments& arguments);

// What users change of plans: None, a dict or a sequence of dicts.

}  // namespace fuser
