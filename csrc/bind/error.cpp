// base/error.h: translates a Fault to the class of fuser.errors for its kind.
#include "base/error.h"

#include "bind/bind.h"
#include "bind/text.h"

namespace py = pybind11;

namespace fuser::bind {
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

void bind_error(py::module_&) { py::register_exception_translator(&translate); }

}  // namespace fuser::bind
