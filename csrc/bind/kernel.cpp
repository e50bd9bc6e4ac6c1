// ir/kernel.h: Kernel IR as an opaque object with a text.
#include "ir/kernel.h"

#include <pybind11/stl.h>

#include "bind/bind.h"

namespace py = pybind11;

namespace fuser::bind {

using namespace ir;

namespace {

std::vector<std::string> statements(const KernelIR& kernel) {
  std::vector<std::string> out;
  visit(kernel.body, [&](const Stmt& s) { out.push_back(ir::to_text(kernel, s)); });
  return out;
}

}  // namespace

void bind_kernel(py::module_& m) {
  py::class_<KernelIR>(m, "KernelIR",
                       "One kernel as loops over registers, loads, arithmetic and stores.")
      .def_readonly("name", &KernelIR::name)
      .def_readonly("threads", &KernelIR::threads, "Threads per block.")
      .def_readonly("min_blocks", &KernelIR::min_blocks,
                    "Minimum number of resident blocks per SM; 0: chosen by the compiler.")
      .def_readonly("index64", &KernelIR::index64, "True if offsets and coordinates have 64 bits.")
      .def_readonly("vars", &KernelIR::vars, "Number of variables.")
      .def_readonly("cluster", &KernelIR::cluster, "Blocks per cluster.")
      .def_readonly("cooperative", &KernelIR::cooperative,
                    "True if all blocks must be resident at once.")
      .def("collectives", &KernelIR::collectives,
           "True if the kernel has barriers or other collectives.")
      .def("shared_bytes", &KernelIR::shared_bytes, "Bytes of dynamic shared memory per block.")
      .def("argument_bytes", &KernelIR::argument_bytes, "Bytes of kernel arguments per launch.")
      .def("statements", &statements,
           "Returns one line per statement, outer before inner, loops without body.")
      .def(
          "text", [](const KernelIR& kernel) { return ir::to_text(kernel); },
          "Returns the kernel as text, the input of parse_kernel().")
      .def("verify", &verify, "Raises InternalError that names the invalid statement.")
      .def("__str__", [](const KernelIR& kernel) { return ir::to_text(kernel); });
  m.def("parse_kernel", &parse_kernel, py::arg("text"),
        "Parses a kernel. Raises UserError parse-1 with line and column.");
}

}  // namespace fuser::bind
