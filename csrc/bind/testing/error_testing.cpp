// base/error.h as fuser._core_testing.error: errors that C++ raises on request.
#include "base/error.h"
#include "bind/testing/testing.h"

namespace py = pybind11;

namespace fuser::bind {

void bind_error_testing(py::module_& tests) {
  py::module_ m = tests.def_submodule("error", "Errors between C++ and Python.");
  py::enum_<FaultKind>(m, "FaultKind", "Kinds of errors in C++.")
      .value("User", FaultKind::User)
      .value("Shape", FaultKind::Shape)
      .value("DType", FaultKind::DType)
      .value("Unsupported", FaultKind::Unsupported)
      .value("Compile", FaultKind::Compile)
      .value("Launch", FaultKind::Launch)
      .value("Internal", FaultKind::Internal);
  m.def(
      "raise_fault",
      [](FaultKind kind, const std::string& rule, const std::string& message) {
        throw Fault(kind, rule, message);
      },
      py::arg("kind"), py::arg("rule"), py::arg("message"));
  m.def(
      "call", [](const py::function& callback) { return callback(); }, py::arg("callback"),
      "Calls a Python function from C++.");
}

}  // namespace fuser::bind
