// The Python module fuser._torch: executors of definitions on torch tensors.
#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "torch/direct.h"
#include "torch/executor.h"
#include "torch/random.h"

namespace py = pybind11;

namespace fuser {
namespace {

// A number as a scalar of that dtype holds it.
double rounded(DType dtype, double v) {
  const auto narrow = static_cast<float>(v);
  switch (dtype) {
    // Saturated, as casts do it; torch before 2.13 makes a NaN of what is too large.
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

// Errors of torch as torch raises them itself, without the stack of C++.
void translate_torch_error(std::exception_ptr pointer) {
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (const c10::OutOfMemoryError& error) {
    const py::object type = py::module_::import("torch").attr("OutOfMemoryError");
    PyErr_SetString(type.ptr(), error.what_without_backtrace());
  } catch (const c10::Error& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what_without_backtrace());
  }
}

bool is_numpy_bool(const PyObject* value) {
  const std::string_view name = Py_TYPE(value)->tp_name;
  return name == "numpy.bool" || name == "numpy.bool_";  // from numpy 2 on, and before
}

Number to_number(py::handle value, DType wanted, size_t position) {
  const auto refuse = [&](const std::string& expected) {
    return Fault(
        FaultKind::DType, "argument-scalar",
        text("execute(): argument ", position, " is a ",
             std::string(py::str(py::type::of(value).attr("__name__"))), "; the definition has a ",
             row(wanted).torch, " scalar there, expected ", expected));
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

// The inputs of a call one by one: a list or tuple, a shape among them, where the definition has
// scalars stands for as many of them, those of a define_vector().
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

// Arguments of a call that is yet to come: a tensor is (sizes, strides,
// dtype, offset in bytes, device).
struct DescribedArguments {
  std::vector<std::vector<int64_t>> numbers;  // sizes and strides, which the views point to
  std::vector<TensorView> views;
  std::vector<Number> scalars;
  int device = cpu_device;

  Arguments view() const { return {.tensors = views, .scalars = scalars, .device = device}; }
};

DescribedArguments described(const Fusion& fusion, const py::sequence& inputs, int device) {
  DescribedArguments out;
  out.device = device;
  out.numbers.reserve(2 * inputs.size());
  out.scalars.resize(fusion.scalars.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Argument& a = fusion.arguments[i];
    if (!a.is_tensor) {
      out.scalars[a.index] = to_number(inputs[i], fusion.scalars[a.index].dtype, i);
      continue;
    }
    const py::tuple t = inputs[i];
    out.numbers.push_back(t[0].cast<std::vector<int64_t>>());
    const std::vector<int64_t>& sizes = out.numbers.back();
    out.numbers.push_back(t[1].cast<std::vector<int64_t>>());
    // No memory: an address of its own for each, as aligned as the tensor will be.
    const uintptr_t address = (i + 1) << 44 | (t[3].cast<uintptr_t>() & 0xff);
    out.views.push_back({.data = reinterpret_cast<char*>(address),
                         .sizes = sizes.data(),
                         .strides = out.numbers.back().data(),
                         .rank = static_cast<int>(sizes.size()),
                         .dtype = t[2].cast<DType>(),
                         .device = t[4].cast<int>()});
  }
  return out;
}

// The Python face of an executor.
struct PythonExecutor : TorchExecutor {
  using TorchExecutor::TorchExecutor;

  TorchArguments arguments(py::handle inputs, py::handle device) {
    const Fusion& fusion = executor.fusion();
    // Lists and tuples as they are, other sequences as a list. A number's own code may change them
    // while they are read.
    constexpr const char* expected = "execute(): inputs: expected a list of tensors and numbers";
    if (!PySequence_Check(inputs.ptr()) || THPVariable_Check(inputs.ptr()))
      throw py::type_error(expected);
    auto items = py::reinterpret_steal<py::object>(PySequence_Fast(inputs.ptr(), expected));
    if (!items) throw py::error_already_set();
    items = flattened(fusion, std::move(items));
    const auto given = static_cast<size_t>(PySequence_Fast_GET_SIZE(items.ptr()));
    FUSER_CHECK(given == fusion.arguments.size(), User, "argument-count", "execute(): expected ",
                fusion.arguments.size(), " inputs (", fusion.inputs.size(), " tensors, ",
                fusion.scalars.size(), " scalars, in the order of their define_ calls), got ",
                given);
    TorchArguments out;
    out.tensors.reserve(fusion.inputs.size());
    out.views.reserve(fusion.inputs.size());
    out.scalars.resize(fusion.scalars.size());
    for (size_t i = 0; i < given; ++i) {
      const auto at = static_cast<Py_ssize_t>(i);
      FUSER_CHECK(at < PySequence_Fast_GET_SIZE(items.ptr()), User, "argument-count",
                  "execute(): the list of inputs became shorter while it was read");
      const auto value =
          py::reinterpret_borrow<py::object>(PySequence_Fast_GET_ITEM(items.ptr(), at));
      const Argument& a = fusion.arguments[i];
      if (!a.is_tensor) {
        out.scalars[a.index] = to_number(value, fusion.scalars[a.index].dtype, i);
        continue;
      }
      FUSER_CHECK(THPVariable_Check(value.ptr()), User, "argument-type", "execute(): argument ", i,
                  " is a ", std::string(py::str(py::type::of(value).attr("__name__"))),
                  ", expected a torch.Tensor for t", fusion.inputs[a.index]->id, ": ",
                  describe(*fusion.inputs[a.index]));
      at::Tensor t = THPVariable_Unpack(value.ptr());
      // Lazy conjugation and negation are bits beside the memory.
      if (t.is_conj() || t.is_neg()) {
        FUSER_CHECK(!is_written(fusion, a.index), User, "argument-in-place",
                    "execute(): tensor input ", a.index, " is written in place, but is a lazy ",
                    t.is_conj() ? "conjugate" : "negation",
                    " of its memory\n  hint: pass t.resolve_conj().resolve_neg()");
        t = t.resolve_conj().resolve_neg();
      }
      out.views.push_back(view_of(t, i));
      if (out.device == cpu_device) out.device = out.views.back().device;
      out.tensors.push_back(std::move(t));
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
                  "\n  hint: leave device out, or move the inputs");
      out.device = wanted;
    } else if (fusion.inputs.empty() && cuda_available()) {
      out.device = current_device();
    }
    return out;
  }

  static bool is_written(const Fusion& fusion, int input) {
    return std::any_of(fusion.outputs.begin(), fusion.outputs.end(),
                       [&](const Output& o) { return o.alias == input; });
  }

  static bool all_cpu_scalars(const TorchArguments& a) {
    for (const TensorView& v : a.views)
      if (v.rank != 0 || v.device != cpu_device) return false;
    return true;
  }

  static py::object torch_device(const py::object& device) {
    try {
      return py::module_::import("torch").attr("device")(device);
    } catch (py::error_already_set& error) {
      if (!error.matches(PyExc_RuntimeError)) throw;  // of another type than a device has
      throw Fault(FaultKind::User, "argument-device",
                  text("execute(): device=", py::str(device).cast<std::string>(),
                       ": expected a CPU or CUDA device"));
    }
  }

  static int device_index(const py::object& device) {
    const py::object d = torch_device(device);
    const auto type = d.attr("type").cast<std::string>();
    if (type == "cpu") return cpu_device;
    FUSER_CHECK(type == "cuda", User, "argument-device", "execute(): device=", type,
                ": expected a CPU or CUDA device");
    const py::object index = d.attr("index");
    return index.is_none() ? current_device() : index.cast<int>();
  }

  // That of torch; without a GPU the first, of which the driver says why it is not there.
  static int current_device() {
    if (!cuda_available()) return 0;
    return py::module_::import("torch").attr("cuda").attr("current_device")().cast<int>();
  }

  static std::vector<Plan> plans_of(py::handle plan) {
    std::vector<Plan> out;
    if (plan.is_none()) return out;
    const py::list list = py::isinstance<py::dict>(plan)
                              ? py::list()
                              : py::list(py::reinterpret_borrow<py::object>(plan));
    const auto add = [&](const py::dict& d) {
      Plan p;
      for (const auto& [key, value] : d) {
        const auto name = key.cast<std::string>();
        if (name == "scheduler") {
          p.scheduler = value.cast<std::string>();
        } else {
          p.fields.emplace_back(name, value.cast<int64_t>());
        }
      }
      out.push_back(std::move(p));
    };
    if (py::isinstance<py::dict>(plan)) add(py::reinterpret_borrow<py::dict>(plan));
    for (const py::handle& item : list) add(item.cast<py::dict>());
    return out;
  }

  py::list execute(py::handle inputs, py::handle device, py::handle plan) {
    TorchArguments args = arguments(inputs, device);
    const RecordRef record = prepare(executor, args, plans_of(plan));
    Results results;
    {
      // The host executor computes for as long as it takes; other Python threads go on. A GPU takes
      // launches in a few microseconds.
      std::optional<py::gil_scoped_release> release;
      if (args.device == cpu_device && !record->brief) release.emplace();
      results = run(*record, args);
    }
    py::list out(results.size());
    for (size_t i = 0; i < results.size(); ++i)
      PyList_SET_ITEM(out.ptr(), i, THPVariable_Wrap(std::move(results[i])));
    return out;
  }
};

// `execute` of one executor as a C function of Python: pybind11's way through overloads and
// conversions takes as long as the rest of a hit. Its `self` is a capsule, which owns the object.
constexpr const char* run_name = "fuser.run";

PyObject* run_definition(PyObject* capsule, PyObject* const* given, Py_ssize_t count) noexcept {
  try {
    if (count < 1 || count > 3) throw py::type_error("expected (inputs, device=None, plan=None)");
    auto* const self = static_cast<PythonExecutor*>(PyCapsule_GetPointer(capsule, run_name));
    return self->execute(given[0], count > 1 ? given[1] : Py_None, count > 2 ? given[2] : Py_None)
        .release()
        .ptr();
  } catch (...) {
    py::detail::try_translate_exceptions();
    return nullptr;
  }
}

py::object bound(PyMethodDef& definition, void* self, const char* name, py::object owner) {
  PyObject* const capsule = PyCapsule_New(
      self, name, [](auto* c) { Py_DECREF(static_cast<PyObject*>(PyCapsule_GetContext(c))); });
  if (!capsule) throw py::error_already_set();
  PyCapsule_SetContext(capsule, owner.release().ptr());
  PyObject* const function = PyCFunction_New(&definition, capsule);
  Py_DECREF(capsule);
  if (!function) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(function);
}

py::object run_function(py::object executor) {
  static PyMethodDef definition = {
      "execute", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run_definition)),
      METH_FASTCALL,
      "execute(inputs, device=None, plan=None)\n--\n\nRuns the definition on these inputs."};
  auto* const self = executor.cast<PythonExecutor*>();
  return bound(definition, self, run_name, std::move(executor));
}

// What came from a function of Python through autograd is raised as it was.
template <class F>
auto with_torch_errors(F function) {
  try {
    return function();
  } catch (python_error& error) {
    error.restore();
    throw py::error_already_set();
  }
}

constexpr const char* traces_name = "fuser.traces";

PyObject* call_traces(PyObject* capsule, PyObject* const* given, Py_ssize_t count) noexcept {
  try {
    const auto* const self = static_cast<DirectTraces*>(PyCapsule_GetPointer(capsule, traces_name));
    return with_torch_errors([&] { return self->call(given, static_cast<size_t>(count)); });
  } catch (...) {
    py::detail::try_translate_exceptions();
    return nullptr;
  }
}

py::object traces_function(py::object traces) {
  static PyMethodDef definition = {
      "call", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_traces)),
      METH_FASTCALL, "The function, where it was traced for such arguments."};
  auto* const self = traces.cast<DirectTraces*>();
  return bound(definition, self, traces_name, std::move(traces));
}

// `whole`, an attribute of a graph's function where the graph is one run: the executor, and the
// members of WholeGraph.
CompiledGraph graph_of(py::object call) {
  CompiledGraph out{.call = call, .whole = std::nullopt};
  const py::object whole = py::getattr(call, "whole", py::none());
  if (!whole.is_none()) {
    const py::tuple parts = whole;
    out.whole = WholeGraph{.executor = parts[0].cast<PythonExecutor*>(),
                           .arguments = parts[1].cast<std::vector<int>>(),
                           .results = parts[2].cast<std::vector<std::optional<int>>>()};
  }
  return out;
}

DirectFunctionRef make_direct(
    py::object forward, py::object backward, size_t results,
    const std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>>& layouts,
    bool autocast, py::object finish) {
  auto made = std::make_unique<DirectFunction>();
  made->forward = graph_of(std::move(forward));
  made->backward = graph_of(std::move(backward));
  made->results = results;
  for (const auto& [sizes, strides] : layouts) {
    made->sizes.push_back(sizes);
    made->strides.push_back(strides);
  }
  made->autocast = autocast;
  made->finish = std::move(finish);
  return shared(std::move(made));
}

// (steps, ideal bytes, partings, device) as plain data; fuser/explain.py gives it names.
py::tuple explanation(const Explanation& e, int device) {
  const auto uses = [](const std::vector<Explanation::Use>& list) {
    py::list out;
    for (const Explanation::Use& u : list) out.append(py::make_tuple(u.tensor, u.bytes));
    return out;
  };
  py::list steps, partings;
  for (const Explanation::Step& s : e.steps)
    steps.append(py::make_tuple(s.kind, s.name, s.plan, uses(s.reads), uses(s.writes),
                                py::cast(s.computes), s.slots));
  for (const Parting& p : e.partings) partings.append(py::make_tuple(p.tensor, p.why));
  return py::make_tuple(steps, e.ideal_bytes, partings, device);
}

py::dict plan_dict(const Plan& plan) {
  py::dict d;
  d["scheduler"] = plan.scheduler;
  for (const auto& [name, value] : plan.fields) d[name.c_str()] = value;
  return d;
}

}  // namespace
}  // namespace fuser

PYBIND11_MODULE(_torch, m) {
  using namespace fuser;
  py::module_::import("fuser._core");  // the classes of definitions
  py::register_local_exception_translator(&translate_torch_error);

  py::class_<KernelInfo>(m, "KernelInfo", "One kernel of a call.")
      .def_readonly("name", &KernelInfo::name)
      .def_readonly("text", &KernelInfo::text, "CUDA C, with the helpers it uses.")
      .def_readonly("ir", &KernelInfo::ir, "Kernel IR.")
      .def_readonly("plan", &KernelInfo::plan)
      .def_readonly("schedule", &KernelInfo::schedule)
      .def_readonly("registers", &KernelInfo::registers, "Per thread; 0 on the host executor.")
      .def_readonly("local_bytes", &KernelInfo::local_bytes, "Per thread: spills and stack.")
      .def_readonly("grid", &KernelInfo::grid, "Blocks.")
      .def_readonly("threads", &KernelInfo::threads, "Per block.")
      .def_readonly("shared_bytes", &KernelInfo::shared_bytes, "Dynamic, per block.")
      .def_readonly("cluster", &KernelInfo::cluster, "Blocks of a cluster.")
      .def_readonly("build_seconds", &KernelInfo::build_seconds, "0 when it came from disk.");

  py::class_<TorchExecutor>(m, "CompiledDefinition", "What csrc/torch runs without Python.");
  py::class_<PythonExecutor, TorchExecutor>(m, "Executor", "Compiles and runs one definition.")
      .def(py::init<BuilderRef>(), py::arg("definition"))
      .def_property_readonly("execute", &run_function,
                             "execute(inputs, device=None, plan=None): a new function of the "
                             "executor, which it keeps alive.")
      .def(
          "plans",
          [](PythonExecutor& self, const py::sequence& inputs, const py::object& device,
             const py::object& plan) {
            py::list out;
            const TorchArguments args = self.arguments(inputs, device);
            for (const Plan& p : self.executor.plans(args.view(), PythonExecutor::plans_of(plan)))
              out.append(plan_dict(p));
            return out;
          },
          py::arg("inputs"), py::arg("device") = py::none(), py::arg("plan") = py::none(),
          "How a call would run, with these plans where some are given. Compiles nothing.")
      .def(
          "prefer",
          [](PythonExecutor& self, const py::sequence& inputs, const py::object& device,
             const py::object& plan) {
            const TorchArguments args = self.arguments(inputs, device);
            self.executor.prefer(args.view(), PythonExecutor::plans_of(plan));
          },
          py::arg("inputs"), py::arg("device"), py::arg("plan"),
          "Calls whose sizes have the same hints run these plans from now on.")
      .def(
          "signature",
          [](PythonExecutor& self, const py::sequence& inputs, const py::object& device) {
            return self.executor.signature(self.arguments(inputs, device).view());
          },
          py::arg("inputs"), py::arg("device") = py::none())
      .def(
          "explain",
          [](PythonExecutor& self, const py::sequence& inputs, const py::object& device) {
            const TorchArguments args = self.arguments(inputs, device);
            return explanation(self.executor.explain(args.view()), args.device);
          },
          py::arg("inputs"), py::arg("device") = py::none())
      .def(
          "kernels",
          [](PythonExecutor& self, const py::object& inputs, const py::object& device,
             const py::object& plan) {
            if (inputs.is_none()) {
              const RecordRef last = self.executor.last();
              return last ? Executor::kernels(*last) : std::vector<KernelInfo>{};
            }
            const TorchArguments args = self.arguments(inputs, device);
            return Executor::kernels(
                *self.executor.record(args.view(), PythonExecutor::plans_of(plan)));
          },
          py::arg("inputs") = py::none(), py::arg("device") = py::none(),
          py::arg("plan") = py::none())
      .def("has_run", [](PythonExecutor& self) { return self.executor.last() != nullptr; })
      .def(
          "is_compiled",
          [](PythonExecutor& self, const py::sequence& inputs, const py::object& device) {
            return self.executor.is_compiled(self.arguments(inputs, device).view());
          },
          py::arg("inputs"), py::arg("device") = py::none());

  m.def(
      "take_random_position",
      [](int device, int64_t ops) {
        const RandomPosition at = take_random_position(device, ops);
        return std::pair(at.seed, at.offset);
      },
      py::arg("device"), py::arg("ops"),
      "Seed and offset of so many random ops, from torch's default generator of the device (-1: "
      "CPU), which moves on.");
  m.def(
      "compile_batch",
      [](const std::vector<std::pair<PythonExecutor*, py::sequence>>& calls) {
        std::vector<KernelText> texts;
        int device = cpu_device;
        for (const auto& [executor, inputs] : calls) {
          const TorchArguments args = executor->arguments(inputs, py::none());
          device = args.device;
          executor->executor.collect(args.view(), texts);
        }
        if (!texts.empty()) load_kernels(target_of(device), device, texts);
        return texts.size();
      },
      py::arg("calls"),
      "Builds the kernels of many (executor, inputs) at once; all on one device. Returns their "
      "number.");
  m.def(
      "compile_described",
      [](const std::vector<std::pair<PythonExecutor*, py::sequence>>& calls, int device) {
        std::vector<KernelText> texts;
        for (const auto& [executor, inputs] : calls)
          executor->executor.collect(described(executor->executor.fusion(), inputs, device).view(),
                                     texts);
        if (!texts.empty()) load_kernels(target_of(device), device, texts);
        return texts.size();
      },
      py::arg("calls"), py::arg("device"),
      "compile_batch() before there are tensors: for each stands (sizes, strides, DataType, offset "
      "in bytes, device).");
  py::class_<DirectFunctionRef>(m, "DirectFunction",
                                "A function of tensors and its gradients: two compiled graphs.")
      .def(py::init(&make_direct), py::arg("forward"), py::arg("backward"), py::arg("results"),
           py::arg("layouts"), py::arg("autocast"), py::arg("finish"),
           "results: how many of what `forward` gives are the function's; `backward` takes the "
           "others and the gradients of these, laid out as `layouts` says (sizes, strides). "
           "finish: makes of the results what the caller gets; None: there is one.")
      .def("__call__", [](const DirectFunctionRef& self, const py::args& given) {
        std::vector<at::Tensor> inputs;
        for (const py::handle t : given) inputs.push_back(THPVariable_Unpack(t.ptr()));
        return with_torch_errors([&] { return call_direct(self, inputs); });
      });
  py::class_<DirectTraces>(m, "DirectTraces", "The traces of one function.")
      .def(py::init<>())
      .def(
          "add",
          [](DirectTraces& self, const py::tuple& given, DirectFunctionRef function) {
            self.add(&PyTuple_GET_ITEM(given.ptr(), 0), given.size(), std::move(function));
          },
          py::arg("arguments"), py::arg("function"))
      .def_property_readonly("call", &traces_function,
                             "call(*arguments): NotImplemented where no trace is for them.");
  m.def(
      "set_python_runs_graphs", [](bool wanted) { python_runs_graphs() = wanted; },
      py::arg("wanted"));
  m.def("cache_info", [] {
    const CacheCounters c = cache_counters();
    const KernelCounters k = kernel_counters();
    py::dict d;
    d["definitions"] = c.definitions;
    d["plans"] = c.plans;
    d["kernels_compiled"] = k.compiled;
    d["kernels_from_disk"] = k.from_disk;
    d["hits"] = c.hits;
    d["misses"] = c.misses;
    d["compile_seconds"] = k.compile_seconds;
    d["kernels_specialized"] = c.specialized;
    d["specializations_failed"] = c.not_specialized;
    return d;
  });
  m.def(
      "clear_caches",
      [](bool disk) {
        clear_executors();
        clear_kernels(disk);
      },
      py::arg("disk") = false);
}
