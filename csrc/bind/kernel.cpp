// ir/kernel.h: Kernel IR as an opaque object with a text.
#include "ir/kernel.h"

#include <pybind11/stl.h>

#include "bind/bind.h"

namespace py = pybind11;

namespace fuser {
namespace {

std::vector<std::string> statements(const KernelIR& kernel) {
  std::vector<std::string> out;
  visit(kernel.body, [&](const Stmt& s) { out.push_back(to_text(kernel, s)); });
  return out;
}

}  // namespace

void bind_kernel(py::module_& m) {
  py::class_<KernelIR>(m, "KernelIR",
                       "One kernel as loops over registers, loads, arithmetic and stores.")
      .def_readonly("name", &KernelIR::name)
      .def_readonly("threads", &KernelIR::threads, "Threads of a block.")
      .def_readonly("min_blocks", &KernelIR::min_blocks,
                    "Blocks resident on a processor; 0: the compiler's choice.")
      .def_readonly("index64", &KernelIR::index64, "Are offsets and coordinates 64-bit?")
      .def_readonly("vars", &KernelIR::vars, "Variables numbered so far.")
      .def_readonly("cluster", &KernelIR::cluster, "Blocks of a cluster.")
      .def_readonly("cooperative", &KernelIR::cooperative, "Are all blocks resident at once?")
      .def("collectives", &KernelIR::collectives, "Do threads meet in it?")
      .def("shared_bytes", &KernelIR::shared_bytes, "Dynamic shared memory of a block.")
      .def("argument_bytes", &KernelIR::argument_bytes, "Bytes of a launch's parameter block.")
      .def("statements", &statements, "One line each, outer before inner, loops without body.")
      .def(
          "text", [](const KernelIR& kernel) { return to_text(kernel); },
          "The whole kernel; parse_kernel() reads it back.")
      .def("verify", &verify, "Raises InternalError that names the statement at fault.")
      .def("__str__", [](const KernelIR& kernel) { return to_text(kernel); });
  m.def("parse_kernel", &parse_kernel, py::arg("text"),
        "A kernel from its text; UserError parse-1 gives line and column.");
}

}  // namespace fuser
