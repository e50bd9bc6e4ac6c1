// driver/compile.h, driver/launch.h and driver/scratch.h as fuser._core_testing.driver: the
// compiled program of a definition, and launches with scratch memory, without torch.
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include "bind/handles.h"
#include "bind/testing/testing.h"
#include "driver/compile.h"
#include "driver/launch.h"

namespace py = pybind11;

namespace fuser::bind {

using namespace driver;
using namespace fusion;
using namespace host;
using namespace ir;
using namespace program;
using namespace schedule;

namespace {

// allocate(bytes, keep) -> address; may raise any exception.
using Allocate = std::function<uintptr_t(int64_t, bool)>;

ScratchSource source_of(Allocate& allocate) {
  return {.context = &allocate, .allocate = [](void* context, int64_t bytes, bool keep) {
            const py::gil_scoped_acquire gil;
            return reinterpret_cast<char*>((*static_cast<Allocate*>(context))(bytes, keep));
          }};
}

struct ScratchWanted {
  std::string name;
  bool counters = false;
  int64_t elements = 0;
  int element_bytes = 0;
};

// Launches a kernel. Its parameters are the addresses of `outputs`, each with its number of float32
// elements, then the addresses of `scratch`.
void run_one(LoadedKernel loaded, const LaunchShape& shape,
             const std::vector<std::pair<uintptr_t, int64_t>>& outputs,
             const std::vector<ScratchWanted>& scratch, uintptr_t stream, Allocate allocate) {
  LaunchRecord launch;
  launch.kernel = std::make_shared<const LoadedKernel>(std::move(loaded));
  launch.shape = shape;
  Record record;
  std::vector<char*> memory;
  const auto add = [&](Patch::Kind kind, size_t index) {
    const auto at = static_cast<uint16_t>(launch.bytes.size());
    launch.bytes.resize(at + sizeof(char*));
    launch.offsets.push_back(at);
    launch.patches.push_back({.kind = kind, .index = static_cast<uint16_t>(index), .offset = at});
  };
  for (const auto& [address, elements] : outputs) {
    add(Patch::Kind::Output, memory.size());
    memory.push_back(reinterpret_cast<char*>(address));
    OutputSpec& spec = record.outputs.emplace_back();
    spec.dtype = DType::Float32;
    spec.sizes = {elements};
    spec.strides = {1};
  }
  for (const ScratchWanted& s : scratch) {
    add(Patch::Kind::Scratch, launch.scratch.size());
    add_scratch(launch, s.name, s.counters, s.elements, s.element_bytes);
  }
  run_launch(launch, {}, memory, record, reinterpret_cast<CuStream>(stream), source_of(allocate));
}

using Layout = std::pair<std::vector<int64_t>, std::vector<int64_t>>;

// Returns the specialized definition for inputs of these sizes and strides, none of which overlap.
py::dict specialized(const BuilderRef& definition, const std::vector<Layout>& inputs) {
  std::vector<LayoutClass> layouts;
  for (const auto& [sizes, strides] : inputs) layouts.push_back(layout_class(sizes, strides));
  const auto s = specialize_fusion(*definition, std::move(layouts),
                                   std::vector<bool>(inputs.size(), false), Device::Kind::Gpu);
  py::dict out;
  out["in_place"] = s->in_place;
  py::list temps, groups, steps;
  for (const Output& o : s->fusion.outputs) temps.append(o.temp);
  for (const Group& g : s->groups) {
    py::dict group;
    py::list stores, reads;
    for (const Store& store : g.problem.refined.stores) stores.append(store.output);
    for (const BufferUse& b : g.problem.buffers)
      if (b.read && b.output >= 0) reads.append(b.output);
    group["stores"] = stores;
    group["reads"] = reads;  // outputs that an earlier kernel stored
    group["fission"] = g.fission;
    groups.append(group);
  }
  for (const Step& step : s->program.steps) {
    if (const auto* kernel = std::get_if<KernelStep>(&step))
      steps.append(py::make_tuple("kernel", kernel->group));
    else if (const auto* library = std::get_if<LibraryCall>(&step))
      steps.append(py::make_tuple(row(library->op).name, library->outputs));
    else
      steps.append(py::make_tuple("copy", std::get<CopyStep>(step).output));
  }
  out["temps"] = temps;
  out["groups"] = groups;
  out["steps"] = steps;
  return out;
}

}  // namespace

void bind_driver_testing(py::module_& tests) {
  py::module_ m = tests.def_submodule("driver", "Between a definition and its launches.");
  m.def("specialize", &specialized, py::arg("definition"), py::arg("layouts"),
        "layouts: (sizes, strides) of each tensor input.");
  m.def("bucket_of", &bucket_of, py::arg("value"), "The least k with value <= 2^k.");
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  py::class_<ScratchWanted>(m, "ScratchWanted", "Workspace or counters of a launch.")
      .def(py::init([](std::string name, bool counters, int64_t elements, int element_bytes) {
             return ScratchWanted{std::move(name), counters, elements, element_bytes};
           }),
           py::arg("name"), py::kw_only(), py::arg("counters") = false, py::arg("elements"),
           py::arg("element_bytes") = 4);
  m.def(
      "run_launch",
      [](const HostKernel& kernel, const LaunchShape& shape,
         const std::vector<std::pair<uintptr_t, int64_t>>& outputs,
         const std::vector<ScratchWanted>& scratch, Allocate allocate) {
        LoadedKernel loaded;
        loaded.target = {.kind = Device::Kind::Emulated, .debug = kernel.entry->debug != 0};
        loaded.host = kernel;
        run_one(std::move(loaded), shape, outputs, scratch, 0, std::move(allocate));
      },
      py::arg("kernel"), py::arg("shape"), py::arg("outputs"), py::arg("scratch"),
      py::arg("allocate"), Unlocked(),
      "Runs a kernel whose parameters are `outputs` (address, float32 elements), then `scratch`, "
      "taken from allocate(bytes, keep).");
  m.def(
      "run_launch",
      [](const CudaKernel& kernel, const LaunchShape& shape,
         const std::vector<std::pair<uintptr_t, int64_t>>& outputs,
         const std::vector<ScratchWanted>& scratch, Allocate allocate, uintptr_t stream) {
        LoadedKernel loaded;
        loaded.cuda = kernel;
        run_one(std::move(loaded), shape, outputs, scratch, stream, std::move(allocate));
      },
      py::arg("kernel"), py::arg("shape"), py::arg("outputs"), py::arg("scratch"),
      py::arg("allocate"), py::arg("stream"), Unlocked());
  m.def(
      "stream_counters",
      [](int device, uintptr_t stream, int64_t count, Allocate allocate) {
        enter_device(device);
        return reinterpret_cast<uintptr_t>(stream_counters(
            device, reinterpret_cast<CuStream>(stream), count, source_of(allocate)));
      },
      py::arg("device"), py::arg("stream"), py::arg("count"), py::arg("allocate"), Unlocked(),
      "Address of counters that are 0 when the launch queued next on the stream starts.");
}

}  // namespace fuser::bind
