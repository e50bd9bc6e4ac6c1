// driver/cuda/cuda_api.h
#include "driver/cuda/cuda_api.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include "bind/bind.h"

namespace py = pybind11;

namespace fuser::bind {

using namespace driver;

void bind_cuda_api(py::module_& m) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  m.def("cuda_available", &cuda_available, Unlocked(),
        "True if there is a usable driver and a GPU.");
  m.def("cuda_unavailable_reason", &cuda_unavailable_reason, Unlocked(),
        "Reason why no GPU is usable; empty if one is.");
  m.def("cuda_driver_version", &cuda_driver_version, Unlocked(),
        "Version of the driver, 12010 for CUDA 12.1; 0 without a driver.");
  m.def("cuda_device_count", &cuda_device_count, Unlocked());
  m.def("cuda_device", &cuda_device, py::arg("ordinal"), Unlocked(),
        "Returns the Device of a GPU.");
  m.def("cuda_device_for_plans", &cuda_device_for_plans, py::arg("ordinal"), Unlocked(),
        "Returns the Device of a GPU, with its number of resident clusters.");

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
      .def_readonly("dynamic_shared", &CudaKernel::dynamic_shared,
                    "Maximum bytes of dynamic shared memory per launch.")
      .def_readonly("max_threads", &CudaKernel::max_threads, "Per block.")
      .def("resident_blocks", &resident_blocks, py::arg("threads"), py::arg("shared_bytes"),
           Unlocked(), "Returns the number of blocks of this shape that are resident on one SM.");

  m.def(
      "allocate_for_good",
      [](int device, int64_t bytes, const std::function<void()>& make_room) {
        return reinterpret_cast<uintptr_t>(allocate_for_good(device, bytes, make_room));
      },
      py::arg("device"), py::arg("bytes"), py::arg("make_room"),
      "Allocates memory from the driver, which is never freed, and returns its address.");
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
      "Enqueues a kernel; each argument is given as bytes.");
  m.def(
      "stream_id", [](uintptr_t stream) { return stream_id(reinterpret_cast<CuStream>(stream)); },
      py::arg("stream"), Unlocked());
  m.def(
      "stream_is_capturing",
      [](uintptr_t stream) { return stream_is_capturing(reinterpret_cast<CuStream>(stream)); },
      py::arg("stream"), Unlocked());
}

}  // namespace fuser::bind
