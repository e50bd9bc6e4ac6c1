// schedule/schedule.h as fuser._core.schedules: handwritten schedules, for tests of verify().
#include "schedule/schedule.h"

#include <pybind11/stl.h>

#include "bind/bind.h"

namespace py = pybind11;

namespace fuser {

void bind_schedule(py::module_& core) {
  py::module_ m = core.def_submodule("schedules", "Schedules as plain data.");
  py::enum_<Bind>(m, "Bind")
      .value("GridThread", Bind::GridThread)
      .value("Serial", Bind::Serial)
      .value("Vector", Bind::Vector);
  py::class_<Dim>(m, "Dim").def(
      py::init([](std::vector<AxisId> axes) { return Dim{.axes = std::move(axes)}; }));
  py::class_<Loop>(m, "Loop").def(py::init([](DimId dim, Extent extent, Bind bind) {
    return Loop{.dim = dim, .extent = extent, .bind = bind};
  }));
  py::class_<Stage>(m, "Stage").def(py::init([](std::vector<Loop> loops) {
    return Stage{.loops = std::move(loops), .computed = {}};
  }));
  py::class_<Schedule>(m, "Schedule")
      .def(py::init<>())
      .def_readwrite("dims", &Schedule::dims)
      .def_readwrite("stages", &Schedule::stages)
      .def_readwrite("widths", &Schedule::widths)
      .def_readwrite("tail", &Schedule::tail)
      .def_readwrite("threads", &Schedule::threads)
      .def(
          "verify", [](const Schedule& s, int axes) { verify(s, axes); }, py::arg("axes"))
      .def("__str__", [](const Schedule& s) { return to_string(s); });
}

}  // namespace fuser
