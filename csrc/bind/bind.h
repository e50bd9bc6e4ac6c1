// Python bindings of the compiler: one file per exposed header, without logic. A new
// csrc/bind/x.cpp defines bind_x, which is declared here and called in module.cpp.
#pragma once

#include <pybind11/pybind11.h>

namespace fuser::bind {

void bind_error(pybind11::module_& m);
void bind_options(pybind11::module_& m);
void bind_dtype(pybind11::module_& m);
void bind_ops(pybind11::module_& m);
void bind_kernel(pybind11::module_& m);
void bind_schedule(pybind11::module_& m);
void bind_device_text(pybind11::module_& m);
void bind_fusion(pybind11::module_& m);
void bind_define(pybind11::module_& m);
void bind_sha256(pybind11::module_& m);
void bind_store(pybind11::module_& m);
void bind_device(pybind11::module_& m);
void bind_cost(pybind11::module_& m);
void bind_plan_fields(pybind11::module_& m);
void bind_cuda_api(pybind11::module_& m);
void bind_host(pybind11::module_& m);
void bind_cuda(pybind11::module_& m);
void bind_kernels(pybind11::module_& m);

}  // namespace fuser::bind
