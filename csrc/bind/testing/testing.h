// Bindings for tests alone, the module fuser._core_testing, which wheels do not contain. A new
// x_testing.cpp defines bind_x_testing, which is declared here and called in module.cpp.
#pragma once

#include <pybind11/pybind11.h>

namespace fuser::bind {

void bind_error_testing(pybind11::module_& m);
void bind_ir_testing(pybind11::module_& m);
void bind_fusion_testing(pybind11::module_& m);
void bind_cost_testing(pybind11::module_& m);
void bind_passes_testing(pybind11::module_& m);
void bind_plan_testing(pybind11::module_& m);
void bind_driver_testing(pybind11::module_& m);

}  // namespace fuser::bind
