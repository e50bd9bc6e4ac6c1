// fuser._core_testing
#include "bind/testing/testing.h"

PYBIND11_MODULE(_core_testing, m) {
  m.doc() = "The compiler's data for tests; each submodule belongs to a folder of csrc.";
  pybind11::module_::import("fuser._core");  // classes of definitions, and translation of errors
  fuser::bind::bind_error_testing(m);
  fuser::bind::bind_ir_testing(m);
  fuser::bind::bind_fusion_testing(m);
  fuser::bind::bind_cost_testing(m);
  fuser::bind::bind_passes_testing(m);
  fuser::bind::bind_plan_testing(m);
  fuser::bind::bind_driver_testing(m);
}
