// C functions that Python calls for each run. pybind11's overload resolution and conversions would
// take as long as the rest of a cache hit.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

namespace fuser::bridge {

// Returns execute(inputs, device=None, plan=None) of a PythonExecutor, which it keeps alive.
pybind11::object run_function(pybind11::object executor);

// Returns the definition as a step of a program: (*arguments) -> results. `results`, by result: -1
// for the next result of the run, or n for the argument n that it is written into.
//
// `other(arguments, error)` takes a list. It runs instead while graphs run through Python, and
// always after the definition failed with `error` (None: it did not fail).
pybind11::object region_function(pybind11::object executor, std::vector<int> results,
                                 pybind11::object other);

// Returns (*arguments) -> result of DirectTraces, or NotImplemented.
pybind11::object traces_function(pybind11::object traces);

// Returns (*arguments) -> result of a DirectSwitch.
pybind11::object switch_function(pybind11::object direct_switch);

}  // namespace fuser::bridge
