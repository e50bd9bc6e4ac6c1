// ir/dtype.h: the element types as fuser.DataType
#include "ir/dtype.h"

#include "base/error.h"
#include "bind/bind.h"
#include "bind/text.h"

namespace py = pybind11;

namespace fuser::bind {

using namespace ir;

namespace {

DType dtype_from_torch(std::string_view name) {
  const std::span<const DTypeRow> rows = dtype_rows();
  for (size_t i = 0; i < rows.size(); ++i)
    if (name == rows[i].torch) return static_cast<DType>(i);
  throw Fault(FaultKind::DType, "dtype-torch",
              text("torch.", name, " has no counterpart in fuser\n  hint: cast the tensor first"));
}

const char* kind_name(DType dtype) {
  switch (kind_of(dtype)) {
    case Kind::Bool:
      return "Bool";
    case Kind::Int:
      return "Int";
    case Kind::Float:
      return "Float";
    case Kind::Complex:
      return "Complex";
  }
  return "";
}

}  // namespace

void bind_dtype(py::module_& m) {
  py::enum_<DType> type(m, "DataType", "Element type of tensors and scalars.");
  const std::span<const DTypeRow> rows = dtype_rows();
  for (size_t i = 0; i < rows.size(); ++i) type.value(rows[i].member, static_cast<DType>(i));
  type.attr("Null") = py::none();         // "no type given", as in the reference system
  type.attr("Index") = type.attr("Int");  // type of sizes and indices
  type.def_property_readonly(
      "torch_name", [](DType dtype) { return row(dtype).torch; }, "Name of the torch dtype.");
  type.def_property_readonly(
      "device_name", [](DType dtype) { return row(dtype).device; }, "Name in kernel text.");
  type.def_property_readonly("bytes", &size_of, "Size of one element.");
  type.def_property_readonly("kind", &kind_name, "Bool, Int, Float or Complex.");
  type.def_property_readonly("compute", &compute_type, "Compute type of ops on this type.");
  // x.dtype is a value, and in older definitions a method.
  type.def("__call__", [](DType dtype) { return dtype; });
  type.attr("__eq__") = py::cpp_function(
      [](DType a, py::handle b) -> py::object {
        if (py::isinstance<DType>(b)) return py::bool_(a == b.cast<DType>());
        if (std::string_view(Py_TYPE(b.ptr())->tp_name) != "torch.dtype")
          return py::reinterpret_borrow<py::object>(Py_NotImplemented);
        return py::bool_(text("torch.", row(a).torch) == to_text(b));
      },
      py::name("__eq__"), py::is_method(type));
  type.attr("__ne__") = py::cpp_function(
      [](py::handle a, py::handle b) -> py::object {
        const py::object same = a.attr("__eq__")(b);
        return same.ptr() == Py_NotImplemented ? same : py::bool_(!same.cast<bool>());
      },
      py::name("__ne__"), py::is_method(type));
  m.def("dtype_from_torch", &dtype_from_torch, py::arg("name"),
        "Returns the DataType for the name of a torch dtype: 'bfloat16' gives DataType.BFloat16.");
  m.def("promote_types", &promote_types, py::arg("a"), py::arg("b"),
        "Returns the common type, like torch.promote_types.");
  m.def("real_type", &real_type, py::arg("dtype"),
        "Returns the real type of a complex type, and other types unchanged.");
  m.def("complex_type", &complex_type, py::arg("dtype"),
        "Returns the complex type whose parts have this type.");
}

}  // namespace fuser::bind
