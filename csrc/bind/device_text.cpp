// codegen/device_text.h, op_text and half_form of ir/ops.h, and ir/fast_div.h
#include "codegen/device_text.h"

#include "bind/bind.h"
#include "ir/fast_div.h"
#include "ir/ops.h"

namespace py = pybind11;

namespace fuser::bind {

using namespace codegen;
using namespace ir;

void bind_device_text(py::module_& m) {
  m.def("device_text", &device_text, py::arg("kernel_body"),
        "Returns the helpers of csrc/device that the text needs, as its prefix.");
  m.def("cpu_text", &cpu_text, py::arg("functions"),
        "Returns the helpers that the functions of CPU kernels need, as their prefix.");
  m.def(
      "op_text", [](int op, DType compute) { return op_text(static_cast<Op>(op), compute); },
      py::arg("op"), py::arg("compute"),
      "Returns the kernel text of row `op` in a compute type with operands $0 $1 $2, or None if "
      "the row does not accept the type.");
  m.def(
      "half_form", [](int op) { return static_cast<int>(half_form(static_cast<Op>(op))); },
      py::arg("op"),
      "Returns the row to use if each use of the result is a cast to 16 bits or fewer.");
  m.def(
      "make_fast_div",
      [](uint32_t divisor) {
        const FastDiv d = make_fast_div(divisor);
        return py::make_tuple(d.divisor, d.magic, d.shift);
      },
      py::arg("divisor"),
      "Returns (divisor, magic, shift), the arguments of a division by multiplication.");
}

}  // namespace fuser::bind
