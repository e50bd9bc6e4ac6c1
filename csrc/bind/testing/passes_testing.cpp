// lower/passes.h as fuser._core_testing.passes: each pass on a kernel that a test parsed from text.
#include "bind/testing/testing.h"
#include "lower/passes.h"

namespace py = pybind11;

namespace fuser::bind {

using namespace lower;

void bind_passes_testing(py::module_& tests) {
  py::module_ m = tests.def_submodule("passes", "The passes of lowering, on one kernel in place.");
  m.def("addresses", &addresses, py::arg("kernel"));
  m.def("parameters", &parameters, py::arg("kernel"));
  m.def("cse", &cse, py::arg("kernel"));
  m.def("canonicalize", &canonicalize, py::arg("kernel"));
}

}  // namespace fuser::bind
