// host/bandwidth.h, host/executor.h, host/module.h and host/tasks.h
#include <pybind11/stl.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "bind/bind.h"
#include "bind/text.h"
#include "host/bandwidth.h"
#include "host/debug.h"
#include "host/executor.h"
#include "host/tasks.h"

namespace py = pybind11;

namespace fuser::bind {

using namespace host;

namespace {

using Triple = std::array<uint32_t, 3>;

HostRange to_range(std::string name, uint64_t begin, uint64_t bytes, bool writable, bool scratch) {
  char* memory = reinterpret_cast<char*>(begin);
  return {std::move(name), memory, memory + bytes, writable, scratch};
}

HostOptions to_options(const std::array<int32_t, 3>& cluster, bool cooperative, size_t stack_bytes,
                       int threads, uint64_t seed) {
  return {.cluster = {cluster[0], cluster[1], cluster[2]},
          .cooperative = cooperative,
          .stack_bytes = stack_bytes,
          .threads = threads,
          .seed = seed};
}

// Argument values in aligned storage: strings hold up to 15 bytes inline, and values may need
// 16-byte alignment.
struct LaunchValues {
  explicit LaunchValues(const std::vector<std::string>& values) : storage(values.size()) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i].copy(reinterpret_cast<char*>(&storage[i]), sizeof(storage[i]));
      addresses.push_back(&storage[i]);
    }
  }
  std::vector<std::array<std::max_align_t, 4>> storage;
  std::vector<void*> addresses;
};

void launch_values(const HostKernel& kernel, const Triple& grid, const Triple& block,
                   size_t shared_bytes, const std::vector<std::string>& values,
                   const std::vector<HostRange>& ranges, HostOptions options) {
  const LaunchValues args(values);
  options.ranges = ranges;
  launch(kernel, grid.data(), block.data(), shared_bytes, args.addresses.data(), options);
}

}  // namespace

void bind_host(py::module_& m) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  py::class_<HostKernel>(m, "HostKernel", "A kernel of a loaded module.")
      .def_property_readonly("name", [](const HostKernel& k) { return k.entry->name; })
      .def_property_readonly("collectives",
                             [](const HostKernel& k) { return k.entry->collectives != 0; })
      .def_property_readonly(
          "tasks", [](const HostKernel& k) { return k.entry->run_tasks != nullptr; },
          "A CPU kernel.")
      .def_property_readonly("debug", [](const HostKernel& k) { return k.entry->debug != 0; });

  py::class_<HostModule>(m, "HostModule", "A shared object full of kernels; never unloaded.")
      .def("find", &find, py::arg("index"), "Returns the kernel with this index in the build.");

  py::class_<HostRange>(m, "HostRange", "Memory that a debug launch may access.")
      .def(py::init(&to_range), py::arg("name"), py::arg("begin"), py::arg("bytes"),
           py::arg("writable") = true, py::arg("scratch") = false);

  py::class_<HostOptions>(m, "HostOptions", "Launch options other than arguments.")
      .def(py::init(&to_options), py::kw_only(),
           py::arg("cluster") = std::array<int32_t, 3>{1, 1, 1}, py::arg("cooperative") = false,
           py::arg("stack_bytes") = HostOptions().stack_bytes, py::arg("threads") = 0,
           py::arg("seed") = 0);

  m.def(
      "load_host_file",
      [](const py::object& path) {
        const std::string file = to_system(path);
        const py::gil_scoped_release release;
        return load_host_file(file);
      },
      py::arg("path"));
  m.def(
      "load_host_bytes", [](std::string_view bytes) { return load_host_bytes(bytes); },
      py::arg("bytes"), Unlocked(), "Loads the bytes that fuser.runtime.host.build returned.");
  m.def("host_launch", &launch_values, py::arg("kernel"), py::arg("grid"), py::arg("block"),
        py::arg("shared_bytes"), py::arg("values"), py::arg("ranges") = std::vector<HostRange>(),
        py::arg("options") = HostOptions(), Unlocked(),
        "Runs a grid; `values` are the arguments as bytes, at most 64 each; a debug launch may "
        "only access `ranges`.");
  m.def(
      "host_run_tasks",
      [](const HostKernel& kernel, int64_t tasks, const std::vector<std::string>& values,
         int threads) {
        LaunchValues arguments(values);
        IndexStatus status{}, *address = &status;
        arguments.addresses.push_back(&address);
        run_tasks(kernel, tasks, arguments.addresses.data(), threads);
        if (status.failed) throw index_fault(status, {});
      },
      py::arg("kernel"), py::arg("tasks"), py::arg("values"), py::kw_only(), py::arg("threads"),
      Unlocked(), "Runs the tasks of a CPU kernel; `values` are the arguments as bytes.");
  m.def("copy_bandwidth", &copy_bandwidth, py::arg("bytes"), Unlocked(),
        "Bytes per second, reads plus writes, of a copy by all cores of this CPU; measured.");
  m.attr("host_frame_bytes") = kFrameBytes;
}

}  // namespace fuser::bind
