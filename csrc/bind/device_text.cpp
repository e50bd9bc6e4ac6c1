// codegen/device_text.h, op_text and half_form of ir/ops.h, and ir/fast_div.h
#include "codegen/device_text.h"

#include "bind/bind.h"
#include "ir/fast_div.h"
#include "ir/ops.h"

namespace py = pybind11;

namespace fuser {

void bind_device_text(py::module_& m) {
  m.def("device_text", &device_text, py::arg("kernel_body"),
        "The helpers of csrc/device that the text needs, to paste before it.");
  m.def(
      "op_text", [](int op, DType compute) { return op_text(static_cast<Op>(op), compute); },
      py::arg("op"), py::arg("compute"),
      "Kernel text of row `op` in a compute type, operands $0 $1 $2; None where not accepted.");
  m.def(
      "half_form", [](int op) { return static_cast<int>(half_form(static_cast<Op>(op))); },
      py::arg("op"), "The row to use where each use of the result is a cast to 16 bits or fewer.");
  m.def(
      "make_fast_div",
      [](uint32_t divisor) {
        const FastDiv d = make_fast_div(divisor);
        return py::make_tuple(d.divisor, d.magic, d.shift);
      },
      py::arg("divisor"), "(divisor, magic, shift) as kernels get it.");
}

}  // namespace fuser
