// fuser._core
#include "bind/bind.h"

PYBIND11_MODULE(_core, m) {
  m.doc() = "The compiler in C++: torch-free; use it through the package fuser.";
  m.attr("torch_version") = FUSER_TORCH_VERSION;  // torch version that _torch was built against
  fuser::bind::bind_error(m);                     // first: the other functions may raise
  fuser::bind::bind_options(m);
  fuser::bind::bind_dtype(m);
  fuser::bind::bind_ops(m);
  fuser::bind::bind_kernel(m);
  fuser::bind::bind_schedule(m);
  fuser::bind::bind_device_text(m);
  fuser::bind::bind_fusion(m);
  fuser::bind::bind_define(m);
  fuser::bind::bind_sha256(m);
  fuser::bind::bind_store(m);
  fuser::bind::bind_device(m);
  fuser::bind::bind_cost(m);
  fuser::bind::bind_plan_fields(m);
  fuser::bind::bind_cuda_api(m);
  fuser::bind::bind_host(m);
  fuser::bind::bind_cuda(m);
  fuser::bind::bind_kernels(m);
}
