// cost/tuning.h as fuser._core_testing.cost: changed constants.
#include "bind/testing/testing.h"
#include "cost/tuning.h"

namespace py = pybind11;

namespace fuser::bind {

void bind_cost_testing(py::module_& tests) {
  py::module_ m = tests.def_submodule("cost", "The table of tuned constants.");
  m.def("set_tuned", &cost::set_tuned, py::arg("name"), py::arg("value"),
        "Changes a constant, \"inner.grid_row\"; no other thread may plan meanwhile.");
}

}  // namespace fuser::bind
