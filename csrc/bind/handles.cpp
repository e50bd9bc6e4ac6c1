#include "bind/handles.h"

#include <algorithm>

#include "base/error.h"
#include "bind/text.h"

namespace py = pybind11;

namespace fuser::bind {

using namespace fusion;
using namespace ir;

namespace {

// Returns folders of code that is not the user's, in the spelling of code objects: initially
// "fuser/". Protected by the interpreter's lock.
std::vector<std::string>& folders_of_others() {
  static auto* folders = new std::vector<std::string>{
      to_text(py::module_::import("fuser").attr("__path__").attr("__getitem__")(0)) + "/"};
  return *folders;
}

bool is_users(std::string_view file) {
  for (const std::string& folder : folders_of_others())
    if (file.starts_with(folder)) return false;
  return true;
}

std::string to_string(Where where) {
  return text(where.call, "(): ", where.argument, where.index < 0 ? "" : text(" ", where.index));
}

std::string place(const Builder& builder) {
  if (builder.inputs.empty()) return "which has no inputs yet";
  const Tensor& first = *builder.inputs[0];
  return text("whose first input is t", first.id, ": ", describe(first), "  defined at ",
              first.location);
}

std::string name_of(const TensorHandle& value) {
  return text("t", value.tensor->id, ": ", describe(*value.tensor));
}
std::string name_of(const ScalarHandle& value) {
  return text("scalar ", ir::to_string(value.expr));
}

template <class Handle>
void check_owner(const Builder& builder, const Handle& value, Where where) {
  FUSER_CHECK(value.builder.get() == &builder, User, "foreign-1", to_string(where), ": ",
              name_of(value), " belongs to another definition, ", place(*value.builder),
              "\n  expected a value of the definition ", place(builder),
              "\n  hint: define the value again in the definition that uses it");
}

// Returns whether the value is a numpy number, which counts as the Python number that it holds.
// float64 and complex128 are Python numbers already.
bool is_numpy_number(py::handle value) {
  for (const PyTypeObject* t = Py_TYPE(value.ptr()); t; t = t->tp_base)
    if (std::string_view(t->tp_name) == "numpy.generic") return true;
  return false;
}

bool is_python_number(py::handle v) {
  return PyBool_Check(v.ptr()) || PyLong_Check(v.ptr()) || PyFloat_Check(v.ptr()) ||
         PyComplex_Check(v.ptr());
}

// Returns the type's name with its module, if there is one: a torch.Tensor is no Tensor.
std::string type_name(py::handle value) {
  const py::type type = py::type::of(value);
  const std::string module = to_text(type.attr("__module__"));
  const std::string name = to_text(type.attr("__name__"));
  return module == "builtins" ? name : text(module, ".", name);
}

}  // namespace

std::string user_line() {
  std::string line;
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  while (frame && line.empty()) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const std::string file = to_text(code->co_filename);
    if (is_users(file)) line = text(file, ":", PyFrame_GetLineNumber(frame));
    Py_DECREF(code);
    PyFrameObject* caller = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = caller;
  }
  Py_XDECREF(frame);
  return line;
}

void skip_frames_in(py::str folder) { folders_of_others().push_back(to_text(folder)); }

void check_open(const Builder& builder) {
  FUSER_CHECK(!builder.sealed, User, "definition-3",
              "the definition is compiled and cannot be extended\n"
              "  hint: add all ops before the first execute(), or make another FusionDefinition");
}

bool is_operand(py::handle v) {
  return py::isinstance<TensorHandle>(v) || py::isinstance<ScalarHandle>(v) ||
         is_python_number(v) || is_numpy_number(v);
}

const Tensor* to_tensor(const Builder& builder, const TensorHandle& value, Where where) {
  check_owner(builder, value, where);
  return value.tensor;
}

Expr to_scalar(Builder& builder, py::handle value, Where where) {
  if (py::isinstance<ScalarHandle>(value)) {
    const auto& scalar = value.cast<const ScalarHandle&>();
    check_owner(builder, scalar, where);
    return scalar.expr;
  }
  if (!is_python_number(value) && is_numpy_number(value)) {
    const py::object held = value.attr("item")();
    if (is_python_number(held)) return to_scalar(builder, held, where);
  }
  PyObject* number = value.ptr();
  if (PyBool_Check(number))
    return builder.exprs.constant(DType::Bool, {.integer = number == Py_True});
  if (PyLong_Check(number)) {
    int overflow = 0;
    const int64_t integer = PyLong_AsLongLongAndOverflow(number, &overflow);
    FUSER_CHECK(overflow == 0, User, "operand-2", to_string(where), ": ", to_text(value),
                " is out of range for int64\n  hint: write it as a float");
    return builder.exprs.constant(integer);
  }
  if (PyFloat_Check(number))
    return builder.exprs.constant(DType::Float64, {.real = PyFloat_AS_DOUBLE(number)});
  FUSER_CHECK(PyComplex_Check(number), User, "operand-1", to_string(where),
              ": expected a Scalar or a number, got ", type_name(value),
              "\n  hint: pass data as an input of the definition; convert a number of another "
              "library by float(x) or int(x)");
  return builder.exprs.constant(DType::Complex128, {.real = PyComplex_RealAsDouble(number),
                                                    .imag = PyComplex_ImagAsDouble(number)});
}

Operand to_operand(Builder& builder, py::handle value, Where where) {
  if (py::isinstance<TensorHandle>(value))
    return {.tensor = to_tensor(builder, value.cast<const TensorHandle&>(), where)};
  FUSER_CHECK(is_operand(value), User, "operand-1", to_string(where),
              ": expected a Tensor, a Scalar or a number, got ", type_name(value),
              "\n  hint: pass data as an input of the definition; convert a number of another "
              "library by float(x) or int(x)");
  return {.scalar = to_scalar(builder, value, where)};
}

namespace {

// Returns a Python number in torch's default type of its kind, as torch.where() does with two
// numbers.
Expr of_default_type(Builder& builder, Expr number) {
  if (number->dtype == DType::Float64) return builder.exprs.cast(DType::Float32, number);
  if (number->dtype == DType::Complex128) return builder.exprs.cast(DType::Complex64, number);
  return number;
}

}  // namespace

py::object apply(const BuilderRef& builder, Op op, std::span<const py::handle> args) {
  check_open(*builder);
  std::vector<Operand> operands;
  std::vector<Expr> scalars;
  for (size_t i = 0; i < args.size(); ++i) {
    operands.push_back(
        to_operand(*builder, args[i], {row(op).name, "operand", static_cast<int>(i)}));
    if (operands.back().scalar) scalars.push_back(operands.back().scalar);
  }
  const bool choice = row(op).rule == ResultRule::Condition && scalars.size() + 1 == args.size();
  if (choice && operands[0].tensor && std::none_of(args.begin() + 1, args.end(), [](py::handle v) {
        return py::isinstance<ScalarHandle>(v);
      }))
    for (size_t i = 1; i < operands.size(); ++i)
      operands[i].scalar = of_default_type(*builder, operands[i].scalar);
  if (scalars.size() == operands.size())
    return py::cast(ScalarHandle{builder, pointwise_scalar(*builder, op, scalars)});
  return py::cast(TensorHandle{builder, pointwise(*builder, op, operands, user_line())});
}

ScalarHandle size(const BuilderRef& builder, const TensorHandle& value, int64_t dim) {
  const Tensor* t = to_tensor(*builder, value, {"size", "arg"});
  FUSER_CHECK(dim >= -t->rank() && dim < t->rank(), Shape, "size-dim-1", "size(t", t->id, ", ", dim,
              "): dim is out of range for rank ", t->rank(), "\n  t", t->id, ": ", describe(*t),
              t->location.empty() ? "" : "  defined at " + t->location);
  return {builder, extent(*builder, t, static_cast<int>(dim < 0 ? dim + t->rank() : dim))};
}

std::vector<ScalarHandle> shape(const BuilderRef& builder, const TensorHandle& value) {
  std::vector<ScalarHandle> sizes;
  const Tensor* t = to_tensor(*builder, value, {"shape", "arg"});
  for (int d = 0; d < t->rank(); ++d) sizes.push_back({builder, extent(*builder, t, d)});
  return sizes;
}

}  // namespace fuser::bind
