// fuser._core
#include "bind/bind.h"

PYBIND11_MODULE(_core, m) {
  m.doc() = "The compiler in C++: torch-free; use it through the package fuser.";
  m.attr("torch_version") = FUSER_TORCH_VERSION;  // torch version that _torch was built against
  fuser::bind_error(m);                           // first: the other functions may raise
  fuser::bind_options(m);
  fuser::bind_dtype(m);
  fuser::bind_ops(m);
  fuser::bind_kernel(m);
  fuser::bind_schedule(m);
  fuser::bind_device_text(m);
  fuser::bind_fusion(m);
  fuser::bind_define(m);
  fuser::bind_sha256(m);
  fuser::bind_store(m);
  fuser::bind_device(m);
  fuser::bind_plan_fields(m);
  fuser::bind_cuda_api(m);
  fuser::bind_host(m);
  fuser::bind_cuda(m);
  fuser::bind_kernels(m);
}
