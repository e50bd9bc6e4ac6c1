// lower/passes.h as fuser._core.passes: each pass on a kernel that a test parsed from text.
#include "lower/passes.h"

#include "bind/bind.h"

namespace py = pybind11;

namespace fuser {

void bind_passes(py::module_& core) {
  py::module_ m = core.def_submodule("passes", "The passes of lowering, on one kernel in place.");
  m.def("addresses", &addresses, py::arg("kernel"));
  m.def("parameters", &parameters, py::arg("kernel"));
  m.def("cse", &cse, py::arg("kernel"));
  m.def("canonicalize", &canonicalize, py::arg("kernel"));
}

}  // namespace fuser
