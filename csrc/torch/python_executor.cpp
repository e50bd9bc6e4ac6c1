#include "torch/python_executor.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "bind/plan.h"
#include "bind/text.h"

namespace py = pybind11;

namespace fuser::bridge {

using namespace bind;
using namespace driver;
using namespace ir;

namespace {

// Returns the value of a number after conversion to a scalar of that dtype.
double rounded(DType dtype, double v) {
  const auto narrow = static_cast<float>(v);
  switch (dtype) {
    // Saturate, as casts do; torch before 2.13 converts values that are too large to NaN.
    case DType::Float8E4M3:
      return static_cast<float>(c10::Float8_e4m3fn(std::clamp(narrow, -448.0f, 448.0f)));
    case DType::Float8E5M2:
      return static_cast<float>(c10::Float8_e5m2(narrow));
    case DType::Float16:
      return static_cast<float>(c10::Half(narrow));
    case DType::BFloat16:
      return static_cast<float>(c10::BFloat16(narrow));
    case DType::Float32:
    case DType::Complex64:
      return narrow;
    default:
      return v;
  }
}

bool is_numpy_bool(const PyObject* value) {
  const std::string_view name = Py_TYPE(value)->tp_name;
  return name == "numpy.bool" || name == "numpy.bool_";  // since numpy 2, and before
}

bool is_written(const Fusion& fusion, int input) {
  return std::any_of(fusion.outputs.begin(), fusion.outputs.end(),
                     [&](const Output& o) { return o.alias == input; });
}

bool all_cpu_scalars(const TorchArguments& a) {
  for (const TensorView& v : a.views)
    if (v.rank != 0 || v.device != cpu_device) return false;
  return true;
}

// Returns torch's current device. Without a GPU returns 0, for which the driver explains why it is
// not available.
int current_device() {
  if (!cuda_available()) return 0;
  return py::module_::import("torch").attr("cuda").attr("current_device")().cast<int>();
}

py::object torch_device(const py::object& device) {
  try {
    return py::module_::import("torch").attr("device")(device);
  } catch (py::error_already_set& error) {
    // torch raises another error for a value of a wrong type
    if (!error.matches(PyExc_RuntimeError)) throw;
    throw Fault(FaultKind::User, "argument-device",
                text("execute(): device=", to_text(device), ": expected a CPU or CUDA device"));
  }
}

int device_index(const py::object& device) {
  const py::object d = torch_device(device);
  const std::string type = to_text(d.attr("type"));
  if (type == "cpu") return cpu_device;
  FUSER_CHECK(type == "cuda", User, "argument-device", "execute(): device=", type,
              ": expected a CPU or CUDA device");
  const py::object index = d.attr("index");
  return index.is_none() ? current_device() : index.cast<int>();
}

}  // namespace

Number to_number(py::handle value, DType wanted, size_t position) {
  const auto refuse = [&](const std::string& expected) {
    return Fault(FaultKind::DType, "argument-scalar",
                 text("execute(): argument ", position, " is a ",
                      to_text(py::type::of(value).attr("__name__")), "; the definition has a ",
                      row(wanted).torch, " scalar, expected ", expected,
                      THPVariable_Check(value.ptr()) ? "\n  hint: pass x.item(), or define it as a "
                                                       "tensor of rank 0: fd.define_tensor([])"
                                                     : ""));
  };
  PyObject* o = value.ptr();
  switch (kind_of(wanted)) {
    case Kind::Bool:
      if (!PyBool_Check(o) && !is_numpy_bool(o)) throw refuse("a bool");
      return {.integer = PyObject_IsTrue(o)};
    case Kind::Int: {
      if (!PyIndex_Check(o) || THPVariable_Check(o)) throw refuse("an int");
      const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(o));
      const long long v = number ? PyLong_AsLongLong(number.ptr()) : -1;
      const bool fits = !PyErr_Occurred() && wrap(wanted, v) == v;
      PyErr_Clear();
      if (!fits) throw refuse(text("an int of ", 8 * size_of(wanted), " bits"));
      return {.integer = v};
    }
    case Kind::Float: {
      if (THPVariable_Check(o)) throw refuse("a float");
      const double v = PyFloat_AsDouble(o);
      if (PyErr_Occurred()) {
        PyErr_Clear();
        throw refuse("a float");
      }
      return {.real = rounded(wanted, v)};
    }
    case Kind::Complex: {
      if (THPVariable_Check(o)) throw refuse("a complex number");
      const Py_complex v = PyComplex_AsCComplex(o);
      if (PyErr_Occurred()) {
        PyErr_Clear();
        throw refuse("a complex number");
      }
      return {.real = rounded(wanted, v.real), .imag = rounded(wanted, v.imag)};
    }
  }
  return {};
}

bool is_list(PyObject* o) { return PyList_Check(o) || PyTuple_Check(o); }

// Returns the inputs of a call one by one. If the definition has scalars at a position, then a list
// or tuple there, e.g. a shape, supplies that many scalars of a define_vector().
py::object flattened(const Fusion& fusion, py::object items) {
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(items.ptr());
  PyObject** const given = PySequence_Fast_ITEMS(items.ptr());
  if (std::none_of(given, given + count, is_list)) return items;
  py::list flat;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const size_t place = flat.size();
    const bool scalars = place < fusion.arguments.size() && !fusion.arguments[place].is_tensor;
    if (!scalars || !is_list(given[i])) {
      flat.append(py::handle(given[i]));
      continue;
    }
    for (const py::handle number : py::reinterpret_borrow<py::sequence>(given[i]))
      flat.append(number);
  }
  return flat;
}

void PythonExecutor::check_count(size_t given) const {
  const Fusion& fusion = executor.fusion();
  FUSER_CHECK(given == fusion.arguments.size(), User, "argument-count", "execute(): expected ",
              fusion.arguments.size(), " inputs (", fusion.inputs.size(), " tensors, ",
              fusion.scalars.size(), " scalars, in the order of their define_ calls), got ", given);
}

void PythonExecutor::add(TorchArguments& out, size_t i, py::handle value) const {
  const Fusion& fusion = executor.fusion();
  const Argument& a = fusion.arguments[i];
  if (!a.is_tensor) {
    out.scalars[a.index] = to_number(value, fusion.scalars[a.index].dtype, i);
    return;
  }
  FUSER_CHECK(THPVariable_Check(value.ptr()), User, "argument-type", "execute(): argument ", i,
              " is a ", to_text(py::type::of(value).attr("__name__")),
              ", expected a torch.Tensor for t", fusion.inputs[a.index]->id, ": ",
              describe(*fusion.inputs[a.index]));
  at::Tensor t = THPVariable_Unpack(value.ptr());
  if (is_lazy(t)) {
    FUSER_CHECK(!is_written(fusion, a.index), User, "argument-in-place", "execute(): tensor input ",
                a.index, " is written in place, but is a lazy ",
                t._is_zerotensor() ? "zero without memory"
                : t.is_conj()      ? "conjugate of its memory"
                                   : "negation of its memory",
                "\n  hint: pass t.clone()");
    t = resolved(t);
  }
  out.views.push_back(view_of(t, i));
  if (out.device == cpu_device) out.device = out.views.back().device;
  out.tensors.push_back(std::move(t));
}

TorchArguments PythonExecutor::reserved() const {
  const Fusion& fusion = executor.fusion();
  TorchArguments out;
  out.tensors.reserve(fusion.inputs.size());
  out.views.reserve(fusion.inputs.size());
  out.scalars.resize(fusion.scalars.size());
  return out;
}

TorchArguments PythonExecutor::arguments(py::handle inputs, py::handle device) const {
  const Fusion& fusion = executor.fusion();
  // Use lists and tuples directly, and convert other sequences to a list. Code of a number may
  // change the list while it is read.
  constexpr const char* expected = "execute(): inputs: expected a list of tensors and numbers";
  if (!PySequence_Check(inputs.ptr()) || THPVariable_Check(inputs.ptr()))
    throw py::type_error(expected);
  auto items = py::reinterpret_steal<py::object>(PySequence_Fast(inputs.ptr(), expected));
  if (!items) throw py::error_already_set();
  items = flattened(fusion, std::move(items));
  const auto given = static_cast<size_t>(PySequence_Fast_GET_SIZE(items.ptr()));
  check_count(given);
  TorchArguments out = reserved();
  for (size_t i = 0; i < given; ++i) {
    const auto at = static_cast<Py_ssize_t>(i);
    FUSER_CHECK(at < PySequence_Fast_GET_SIZE(items.ptr()), User, "argument-count",
                "execute(): the list of inputs shrank during the call");
    add(out, i, py::reinterpret_borrow<py::object>(PySequence_Fast_GET_ITEM(items.ptr(), at)));
  }
  if (!device.is_none()) {
    const int wanted = py::isinstance<py::int_>(device)
                           ? device.cast<int>()
                           : device_index(py::reinterpret_borrow<py::object>(device));
    FUSER_CHECK(out.device == wanted || fusion.inputs.empty() || all_cpu_scalars(out), User,
                "argument-device",
                "execute(): device=", wanted == cpu_device ? "cpu" : text("cuda:", wanted),
                ", but the inputs are on ",
                out.device == cpu_device ? "cpu" : text("cuda:", out.device),
                "\n  hint: omit device, or move the inputs");
    out.device = wanted;
  } else if (fusion.inputs.empty() && cuda_available()) {
    out.device = current_device();
  }
  return out;
}

Results run_for_python(const Record& record, const TorchArguments& arguments) {
  // Let other Python threads run while the host executor computes. A GPU launch takes only
  // microseconds.
  std::optional<py::gil_scoped_release> release;
  if (arguments.device == cpu_device && !record.keeps_gil && PyGILState_Check()) release.emplace();
  return run(record, arguments);
}

py::list PythonExecutor::execute(py::handle inputs, py::handle device, py::handle plan) {
  TorchArguments args = arguments(inputs, device);
  const RecordRef record = prepare(executor, args, plans_of(plan));
  Results results = run_for_python(*record, args);
  py::list out(results.size());
  for (size_t i = 0; i < results.size(); ++i)
    PyList_SET_ITEM(out.ptr(), i, THPVariable_Wrap(std::move(results[i])));
  return out;
}

}  // namespace fuser::bridge
