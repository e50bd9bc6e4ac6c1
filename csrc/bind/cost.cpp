// cost/model.h, cost/tuning.h and schedule/machine.h
#include <pybind11/stl.h>

#include "bind/bind.h"
#include "cost/model.h"
#include "cost/tuning.h"
#include "host/bandwidth.h"
#include "schedule/machine.h"

namespace py = pybind11;

namespace fuser::bind {

using namespace cost;
using namespace schedule;

namespace {

const char* name_of(Tuned::Values values) {
  switch (values) {
    case Tuned::Values::Any:
      return "Any";
    case Tuned::Values::Multiple:
      return "Multiple";
    case Tuned::Values::Power:
      return "Power";
  }
  return "";
}

py::object value_of(const Tuned& row) {
  if (ByArch* const* all = std::get_if<ByArch*>(&row.value))
    return py::make_tuple((*all)->sm_70, (*all)->sm_80, (*all)->sm_90, (*all)->cpu);
  if (double* const* real = std::get_if<double*>(&row.value)) return py::float_(**real);
  if (int* const* number = std::get_if<int*>(&row.value)) return py::int_(**number);
  return py::int_(*std::get<int64_t*>(row.value));
}

py::list tuned_rows() {
  py::list out;
  for (const Tuned& row : tuned())
    out.append(py::make_tuple(row.group, row.file, row.name, value_of(row), name_of(row.values),
                              row.least, row.most, row.unit, row.meaning));
  return out;
}

}  // namespace

void bind_cost(py::module_& m) {
  py::class_<Parts>(m, "CostParts",
                    "Times in microseconds if launch, bytes or instructions alone limited a step.")
      .def_readonly("launch", &Parts::launch)
      .def_readonly("bytes", &Parts::bytes)
      .def_readonly("instructions", &Parts::instructions)
      .def_property_readonly("together", &Parts::together,
                             "Bytes and instructions overlap, and follow the launch.");
  py::class_<Machine>(m, "CostMachine", "A GPU or a CPU as predictions see it.")
      .def_readonly("copy_bandwidth", &Machine::copy_bandwidth,
                    "Bytes per second, reads plus writes.")
      .def_readonly("slots", &Machine::slots, "Issue slots per second.")
      .def_readonly("launch_us", &Machine::launch_us)
      .def_property_readonly("caches",
                             [](const Machine& machine) {
                               std::vector<std::pair<int64_t, double>> out;
                               for (const auto& [bytes, rate] : machine.caches)
                                 out.emplace_back(bytes, rate);
                               return out;
                             })
      .def("bandwidth", &Machine::bandwidth, py::arg("bytes"))
      .def(
          "predict",
          [](const Machine& machine, double bytes, double slots) {
            return predict({.bytes = bytes, .slots = slots}, machine);
          },
          py::arg("bytes"), py::arg("slots"));
  m.def(
      "cost_machine", [](const Device& device) { return machine_of(device, host::copy_bandwidth); },
      py::arg("device"), py::call_guard<py::gil_scoped_release>(),
      "Returns the machine of a device. Bandwidths of a CPU are measured, for a tenth of a "
      "second.");
  m.def(
      "tuned_rows", &tuned_rows,
      "Group, file, name, value, kind of values, least, most, unit and meaning of each constant.");
}

}  // namespace fuser::bind
