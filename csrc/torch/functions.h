// Functions of C that Python calls for each run: pybind11's way through overloads and conversions
// takes as long as the rest of a hit.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

namespace fuser {

// execute(inputs, device=None, plan=None) of a PythonExecutor, which it keeps alive.
pybind11::object run_function(pybind11::object executor);

// The definition as a step of a program: (*arguments) -> its results. `results`: of each, -1 for
// the next one of the run or the argument n into which it is written. `other(arguments, error)`
// takes a list and runs instead where somebody looks at runs, and for good where the definition
// failed with `error`; None: it did not.
pybind11::object region_function(pybind11::object executor, std::vector<int> results,
                                 pybind11::object other);

// (*arguments) -> what DirectTraces has for them, or NotImplemented.
pybind11::object traces_function(pybind11::object traces);

// (*arguments) -> what a DirectSwitch leads to.
pybind11::object switch_function(pybind11::object direct_switch);

}  // namespace fuser
