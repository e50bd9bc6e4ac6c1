// base/error.h: translates a Fault to the class of fuser.errors for its kind.
#include "base/error.h"

#include "bind/bind.h"
#include "bind/text.h"

namespace py = pybind11;

namespace fuser {
namespace {

const char* class_name(FaultKind kind) {
  switch (kind) {
    case FaultKind::User:
      return "UserError";
    case FaultKind::Shape:
      return "ShapeError";
    case FaultKind::DType:
      return "DTypeError";
    case FaultKind::Unsupported:
      return "Unsupported";
    case FaultKind::Compile:
      return "CompileError";
    case FaultKind::Launch:
      return "LaunchError";
    case FaultKind::Internal:
      return "InternalError";
  }
  return "InternalError";
}

// Translates a Fault. If a Python callback raises one of these classes, pybind11 carries it through
// C++ unchanged.
void translate(std::exception_ptr pointer) {
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (const Fault& fault) {
    const py::object type = py::module_::import("fuser.errors").attr(class_name(fault.kind));
    const py::object error = type(from_text(fault.what()), py::arg("rule") = fault.rule);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  }
}

}  // namespace

void bind_error(py::module_& m) {
  py::register_exception_translator(&translate);

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
      py::arg("kind"), py::arg("rule"), py::arg("message"), "Raises an error in C++, for tests.");
  m.def(
      "call", [](const py::function& callback) { return callback(); }, py::arg("callback"),
      "Calls a Python function from C++, for tests.");
}

}  // namespace fuser
