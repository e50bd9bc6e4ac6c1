// schedule/plans.h: the fields of plans, for the documentation of fuser.Plan.
#include <pybind11/stl.h>

#include "bind/bind.h"
#include "schedule/plans.h"

namespace py = pybind11;

namespace fuser::bind {

using namespace schedule;

namespace {

const char* name_of(FieldRange::Values values) {
  switch (values) {
    case FieldRange::Values::Derived:
      return "Derived";
    case FieldRange::Values::Any:
      return "Any";
    case FieldRange::Values::Multiple:
      return "Multiple";
    case FieldRange::Values::Divisor:
      return "Divisor";
    case FieldRange::Values::Power:
      return "Power";
    case FieldRange::Values::Subset:
      return "Subset";
  }
  return "";
}

py::list fields() {
  py::list out;
  for (const PlanField& f : plan_fields())
    out.append(py::make_tuple(f.name, f.type, f.unit, f.meaning));
  return out;
}

py::dict ranges() {
  py::dict out;
  for (std::string_view scheduler : planned_schedulers()) {
    py::list rows;
    for (const FieldRange& f : fields_of(scheduler))
      rows.append(py::make_tuple(f.name, name_of(f.values), f.least, f.most));
    out[py::str(scheduler.data())] = rows;
  }
  return out;
}

}  // namespace

void bind_plan_fields(py::module_& m) {
  m.def("plan_fields", &fields, "Name, type, unit and meaning of each field of a plan.");
  m.def("plan_ranges", &ranges,
        "By scheduler: name, kind of values, least and most of each field of its plans.");
}

}  // namespace fuser::bind
