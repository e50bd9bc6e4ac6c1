// schedule/device.h
#include "schedule/device.h"

#include <pybind11/stl.h>

#include "bind/bind.h"

namespace py = pybind11;

namespace fuser::bind {

using namespace schedule;

void bind_device(py::module_& m) {
  py::class_<Device>(m, "Device", "Properties of a GPU or a CPU that plans depend on.")
      .def_readwrite("arch", &Device::arch, "10 * major + minor.")
      .def_readwrite("sms", &Device::sms)
      .def_readwrite("threads_per_sm", &Device::threads_per_sm)
      .def_readwrite("blocks_per_sm", &Device::blocks_per_sm)
      .def_readwrite("registers_per_sm", &Device::registers_per_sm)
      .def_readwrite("shared_per_sm", &Device::shared_per_sm, "Bytes.")
      .def_readwrite("shared_per_block", &Device::shared_per_block, "Bytes, with the opt-in.")
      .def_readwrite("l2_bytes", &Device::l2_bytes)
      .def_readwrite("bandwidth", &Device::bandwidth, "Nominal bytes per second.")
      .def_readwrite("clusters", &Device::clusters)
      .def_readwrite("resident_clusters", &Device::resident_clusters,
                     "Resident clusters of 2, 4, 8 and 16 blocks with one block per SM.")
      .def_readwrite("cooperative", &Device::cooperative)
      .def_property_readonly("emulated",
                             [](const Device& d) { return d.kind == Device::Kind::Emulated; })
      .def_property_readonly("cpu", [](const Device& d) { return d.kind == Device::Kind::Cpu; })
      .def_property_readonly("isa", [](const Device& d) { return std::string(to_string(d.isa)); })
      .def_readwrite("simd_bytes", &Device::simd_bytes, "Bytes of a CPU's vector register.")
      .def_readwrite("cores", &Device::cores)
      .def_readwrite("l1_bytes", &Device::l1_bytes, "Data cache of one core of a CPU.")
      .def_readwrite("l3_bytes", &Device::l3_bytes)
      .def_readwrite("ordinal", &Device::ordinal)
      .def_readwrite("name", &Device::name)
      .def(
          "__eq__", [](const Device& a, const Device& b) { return a == b; }, py::is_operator())
      .def("__hash__", &hash_of)
      .def("__repr__", [](const Device& device) { return schedule::to_string(device); });
  m.def("known_device", &known_device, py::arg("arch"),
        "Returns a representative GPU of an architecture.");
  m.def("known_archs", &known_archs, "Architectures that known_device() accepts.");
  m.def("nearest_known_device", &nearest_known_device, py::arg("arch"),
        "Returns the newest known GPU whose architecture is at most `arch`.");
  m.def("host_device", &host_device, py::arg("like_arch"),
        "Returns the host executor as a Device with the features of sm_70, 80 or 90.");
  m.def(
      "native_device",
      [](const std::string& isa) {
        return native_device(isa.empty() ? processor().isa : isa_named(isa));
      },
      py::arg("isa") = "",
      "Returns this CPU with an instruction set: generic, neon, avx2, avx512; empty: its own.");
  m.def(
      "can_run_isa", [](const std::string& isa) { return can_run(isa_named(isa)); }, py::arg("isa"),
      "Returns whether this CPU can run kernels of an instruction set.");
}

}  // namespace fuser::bind
