// schedule/schedule.h as fuser._core.schedules: schedules made from their text.
#include "schedule/schedule.h"

#include <pybind11/operators.h>

#include "bind/bind.h"
#include "schedule/schedule_text.h"

namespace py = pybind11;

namespace fuser::bind {

using namespace schedule;

void bind_schedule(py::module_& core) {
  py::module_ m = core.def_submodule("schedules", "Schedules as plain data.");
  py::class_<Schedule>(m, "Schedule")
      .def(py::init(&parse_schedule), py::arg("text"))
      .def(py::self == py::self)
      .def("__hash__", [](const Schedule& s) { return hash(s); })
      .def("__str__", [](const Schedule& s) { return schedule::to_string(s); });
}

}  // namespace fuser::bind
