// The Python module fuser._torch: executors of definitions on torch tensors.
#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "bind/plan.h"
#include "torch/direct.h"
#include "torch/functions.h"
#include "torch/python_executor.h"
#include "torch/random.h"

namespace py = pybind11;

namespace fuser::bridge {

using namespace driver;
using namespace fusion;
using namespace ir;

namespace {

// Raises errors of torch as torch itself does, without the C++ stack.
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

// Descriptions of arguments of a later call: a tensor is (sizes, strides, dtype, offset in bytes,
// device).
struct DescribedArguments {
  std::vector<std::vector<int64_t>> numbers;  // sizes and strides that the views point to
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
    // There is no memory yet: use distinct addresses with the alignment of the later tensor.
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

// Reads `whole`, an attribute of a graph's function if the graph is one run: the executor, and the
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
    const std::vector<std::tuple<size_t, std::vector<int64_t>, std::vector<int64_t>>>& tangents,
    std::vector<int> detached, bool deterministic, py::object finish) {
  auto made = std::make_unique<DirectFunction>();
  made->forward = graph_of(std::move(forward));
  if (!backward.is_none()) made->backward = graph_of(std::move(backward));
  made->results = results;
  for (const auto& [result, sizes, strides] : tangents)
    made->tangents.push_back({.result = result, .sizes = sizes, .strides = strides});
  made->detached = std::move(detached);
  made->deterministic = deterministic;
  made->finish = std::move(finish);
  return shared(std::move(made));
}

// Returns (steps, ideal bytes, partings, device) as plain data, to which fuser/inspect/explain.py
// adds names.
py::tuple explanation(const Explanation& e, int device) {
  const auto uses = [](const std::vector<Explanation::Use>& list) {
    py::list out;
    for (const Explanation::Use& u : list) out.append(py::make_tuple(u.tensor, u.bytes));
    return out;
  };
  py::list steps, fusion_breaks;
  for (const Explanation::Step& s : e.steps)
    steps.append(py::make_tuple(s.kind, s.name, s.plan, uses(s.reads), uses(s.writes),
                                py::cast(s.computes), s.slots));
  for (const FusionBreak& p : e.fusion_breaks)
    fusion_breaks.append(py::make_tuple(p.tensor, p.why));
  return py::make_tuple(steps, e.ideal_bytes, fusion_breaks, device);
}

}  // namespace
}  // namespace fuser::bridge

PYBIND11_MODULE(_torch, m) {
  using namespace fuser;
  using namespace fuser::bind;
  using namespace fuser::bridge;
  using namespace fuser::codegen;
  using namespace fuser::driver;
  using namespace fuser::fusion;
  using namespace fuser::ir;
  using namespace fuser::schedule;
  py::module_::import("fuser._core");  // classes of definitions
  py::register_local_exception_translator(&translate_torch_error);

  py::class_<KernelInfo>(m, "KernelInfo", "One kernel of a call.")
      .def_readonly("name", &KernelInfo::name)
      .def_readonly("text", &KernelInfo::text, "CUDA C or C++ with the helpers that it uses.")
      .def_readonly("ir", &KernelInfo::ir, "Kernel IR.")
      .def_readonly("plan", &KernelInfo::plan)
      .def_readonly("schedule", &KernelInfo::schedule)
      .def_readonly("registers", &KernelInfo::registers, "Per thread; 0 on the host executor.")
      .def_readonly("local_bytes", &KernelInfo::local_bytes, "Per thread: spills and stack.")
      .def_readonly("grid", &KernelInfo::grid, "Blocks.")
      .def_readonly("threads", &KernelInfo::threads, "Per block.")
      .def_readonly("shared_bytes", &KernelInfo::shared_bytes, "Dynamic, per block.")
      .def_readonly("cluster", &KernelInfo::cluster, "Blocks per cluster.")
      .def_readonly("build_seconds", &KernelInfo::build_seconds,
                    "Seconds to compile; 0 if loaded from disk.")
      .def_readonly("isa", &KernelInfo::isa, "Instruction set of a CPU kernel, else empty.");

  py::class_<TorchExecutor>(m, "CompiledDefinition", "A definition that runs without Python.");
  py::class_<PythonExecutor, TorchExecutor>(m, "Executor", "Compiles and runs one definition.")
      .def(py::init<BuilderRef>(), py::arg("definition"))
      .def_property_readonly("execute", &run_function,
                             "Returns a new function execute(inputs, device=None, plan=None), "
                             "which keeps the executor alive.")
      .def(
          "plans",
          [](PythonExecutor& self, const py::sequence& inputs, const py::object& device,
             const py::object& plan) {
            py::list out;
            const TorchArguments args = self.arguments(inputs, device);
            for (const Plan& p : self.executor.plans(args.view(), plans_of(plan)))
              out.append(plan_dict(p));
            return out;
          },
          py::arg("inputs"), py::arg("device") = py::none(), py::arg("plan") = py::none(),
          "Returns the plans of a call without compiling it. `plan` replaces the planned ones.")
      .def(
          "schedules",
          [](PythonExecutor& self, const py::sequence& inputs, const py::object& device,
             const py::object& plan) {
            return self.executor.schedules(self.arguments(inputs, device).view(), plans_of(plan));
          },
          py::arg("inputs"), py::arg("device") = py::none(), py::arg("plan") = py::none(),
          "Returns the texts of the schedules of a call without compiling it.")
      .def(
          "prefer",
          [](PythonExecutor& self, const py::sequence& inputs, const py::object& device,
             const py::object& plan) {
            const TorchArguments args = self.arguments(inputs, device);
            self.executor.prefer(args.view(), plans_of(plan));
          },
          py::arg("inputs"), py::arg("device"), py::arg("plan"),
          "Uses these plans for later calls with equal answers to guards.")
      .def_property(
          "is_awaited", [](const TorchExecutor& self) { return self.is_awaited.load(); },
          [](TorchExecutor& self, bool value) { self.is_awaited = value; },
          "True if graphs of one call of this executor run in Python, to time plans.")
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
            return Executor::kernels(*self.executor.record(args.view(), plans_of(plan)));
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
      "Returns seed and offset for `ops` random ops and advances torch's default generator of the "
      "device (-1: CPU).");
  m.def(
      "compile_batch",
      [](const std::vector<std::tuple<PythonExecutor*, py::sequence, py::object>>& calls) {
        std::vector<KernelText> texts;
        int device = cpu_device;
        for (const auto& [executor, inputs, plan] : calls) {
          const TorchArguments args = executor->arguments(inputs, py::none());
          device = args.device;
          executor->executor.collect(args.view(), plans_of(plan), texts);
        }
        if (!texts.empty()) load_kernels(device, texts);
        return texts.size();
      },
      py::arg("calls"),
      "Builds the kernels of several (executor, inputs, plan or None) on one device. Returns the "
      "number of kernels.");
  m.def(
      "compile_described",
      [](const std::vector<std::pair<PythonExecutor*, py::sequence>>& calls, int device) {
        std::vector<KernelText> texts;
        for (const auto& [executor, inputs] : calls)
          executor->executor.collect(described(executor->executor.fusion(), inputs, device).view(),
                                     {}, texts);
        if (!texts.empty()) load_kernels(device, texts);
        return texts.size();
      },
      py::arg("calls"), py::arg("device"),
      "compile_batch() without tensors: each is described by (sizes, strides, DataType, offset in "
      "bytes, device).");
  py::class_<DirectFunctionRef>(m, "DirectFunction",
                                "A function of tensors and its gradients: two compiled graphs.")
      .def(py::init(&make_direct), py::arg("forward"), py::arg("backward"), py::arg("results"),
           py::arg("tangents"), py::arg("detached"), py::arg("deterministic"), py::arg("finish"),
           "results: number of outputs of `forward` that the function returns. backward: graph of "
           "the remaining outputs and the gradients listed by `tangents` (result, sizes, strides), "
           "or None. detached: inputs that are hidden from autograd. finish: converts the tuple of "
           "results to the caller's structure, or None for a single result.");
  py::class_<DirectSwitch>(
      m, "DirectSwitch",
      "Calls `function`, a DirectFunction, once it is set, and `wrapped` before.")
      .def(py::init<>())
      .def_readwrite("wrapped", &DirectSwitch::wrapped)
      .def_readwrite("function", &DirectSwitch::function)
      .def_property_readonly("call", &switch_function, "call(*arguments).");
  py::class_<DirectTraces>(m, "DirectTraces", "The traces of one function.")
      .def(py::init<>())
      .def(
          "add",
          [](DirectTraces& self, const py::tuple& given,
             std::optional<DirectFunctionRef> function) {
            self.add(&PyTuple_GET_ITEM(given.ptr(), 0), given.size(), std::move(function));
          },
          py::arg("arguments"), py::arg("function"),
          "Adds the trace for these arguments, or None if they cannot be traced.")
      .def(
          "lacks",
          [](const DirectTraces& self, const py::tuple& given) {
            return self.lacks(&PyTuple_GET_ITEM(given.ptr(), 0), given.size());
          },
          py::arg("arguments"), "True if these arguments may be traced and were not seen before.")
      .def("__len__", &DirectTraces::size)
      .def_property_readonly("call", &traces_function,
                             "call(*arguments), or NotImplemented if no trace matches.");
  m.def("is_transformed", &is_transformed,
        "True if a transformation of functorch, a mode or a tracer intercepts ops.");
  m.def("region_function", &region_function, py::arg("executor"), py::arg("results"),
        py::arg("other"),
        "Returns a region of a graph as a function of its arguments. results: per result, -1 for "
        "the next output of the definition, or the index of the argument that it overwrites. "
        "other(arguments, error): fallback after an error.");
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
