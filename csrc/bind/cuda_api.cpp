// driver/cuda/cuda_api.h
#include "driver/cuda/cuda_api.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include "bind/bind.h"

namespace py = pybind11;

namespace fuser {

void bind_cuda_api(py::module_& m) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  m.def("cuda_available", &cuda_available, Unlocked(), "Is there a usable driver and a GPU?");
  m.def("cuda_unavailable_reason", &cuda_unavailable_reason, Unlocked(), "Why not; empty if so.");
  m.def("cuda_driver_version", &cuda_driver_version, Unlocked(), "12010 for CUDA 12.1; 0: none.");
  m.def("cuda_device_count", &cuda_device_count, Unlocked());
  m.def("cuda_device", &cuda_device, py::arg("ordinal"), Unlocked(), "The Device of a GPU.");
  m.def("cuda_device_for_plans", &cuda_device_for_plans, py::arg("ordinal"), Unlocked(),
        "The same, with the clusters that it says it holds.");

  py::class_<LaunchShape>(m, "LaunchShape", "Grid, block, cluster and dynamic shared memory.")
      .def(py::init([](std::array<uint32_t, 3> grid, std::array<uint32_t, 3> block,
                       uint32_t shared_bytes, std::array<uint32_t, 3> cluster, bool cooperative) {
             return LaunchShape{grid, block, shared_bytes, cluster, cooperative};
           }),
           py::kw_only(), py::arg("grid") = std::array<uint32_t, 3>{1, 1, 1},
           py::arg("block") = std::array<uint32_t, 3>{1, 1, 1}, py::arg("shared_bytes") = 0,
           py::arg("cluster") = std::array<uint32_t, 3>{1, 1, 1}, py::arg("cooperative") = false);

  py::class_<CudaKernel>(m, "CudaKernel", "One kernel, loaded for one device.")
      .def_readonly("name", &CudaKernel::name)
      .def_readonly("device", &CudaKernel::device)
      .def_readonly("registers", &CudaKernel::registers, "Per thread.")
      .def_readonly("local_bytes", &CudaKernel::local_bytes, "Per thread.")
      .def_readonly("static_shared", &CudaKernel::static_shared, "Bytes per block.")
      .def_readonly("dynamic_shared", &CudaKernel::dynamic_shared, "Bytes a launch may ask for.")
      .def_readonly("max_threads", &CudaKernel::max_threads, "Per block.")
      .def("resident_blocks", &resident_blocks, py::arg("threads"), py::arg("shared_bytes"),
           Unlocked(), "Blocks of this shape that one processor holds at once.");

  m.def(
      "allocate_for_good",
      [](int device, int64_t bytes, const std::function<void()>& make_room) {
        return reinterpret_cast<uintptr_t>(allocate_for_good(device, bytes, make_room));
      },
      py::arg("device"), py::arg("bytes"), py::arg("make_room"),
      "Address of memory of the driver's own, which stays.");
  m.def("load_kernel", &load_kernel, py::arg("image"), py::arg("name"), py::arg("device") = 0,
        py::arg("dynamic_shared") = 0, py::arg("cluster") = 1, Unlocked(),
        "Loads a cubin (or PTX) and one kernel of it.");
  m.def(
      "launch",
      [](const CudaKernel& kernel, const LaunchShape& shape, uintptr_t stream,
         std::vector<std::string> arguments) {
        std::vector<void*> pointers;
        for (std::string& argument : arguments) pointers.push_back(argument.data());
        launch(kernel, shape, reinterpret_cast<CuStream>(stream), pointers.data());
      },
      py::arg("kernel"), py::arg("shape"), py::arg("stream"), py::arg("arguments"), Unlocked(),
      "Queues a kernel; each argument is its bytes as the kernel reads them.");
  m.def(
      "stream_id", [](uintptr_t stream) { return stream_id(reinterpret_cast<CuStream>(stream)); },
      py::arg("stream"), Unlocked());
  m.def(
      "stream_is_capturing",
      [](uintptr_t stream) { return stream_is_capturing(reinterpret_cast<CuStream>(stream)); },
      py::arg("stream"), Unlocked());
}

}  // namespace fuser
