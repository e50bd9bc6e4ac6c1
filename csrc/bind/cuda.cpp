// codegen/cuda.h: Kernel IR as CUDA C.
#include "codegen/cuda.h"

#include <pybind11/stl.h>

#include "bind/bind.h"

namespace py = pybind11;

namespace fuser::bind {

using namespace codegen;
using namespace ir;

void bind_cuda(py::module_& m) {
  py::class_<KernelText>(m, "KernelText", "One kernel as CUDA C.")
      .def_readonly("name", &KernelText::name)
      .def_readonly("text", &KernelText::text)
      .def_readonly("collectives", &KernelText::collectives)
      .def_readonly("threads", &KernelText::threads, "Per block.")
      .def_readonly("shared_bytes", &KernelText::shared_bytes, "Dynamic, per block.")
      .def_readonly("cluster", &KernelText::cluster, "Blocks per cluster.")
      .def_readonly("cooperative", &KernelText::cooperative,
                    "True if all blocks must be resident at once.");
  m.def(
      "print_cuda",
      [](const KernelIR& kernel, const std::vector<std::optional<double>>& constants) {
        Constants values;
        for (const std::optional<double>& v : constants)
          values.push_back(
              v ? std::optional(Number{.integer = static_cast<int64_t>(*v), .real = *v})
                : std::nullopt);
        return print_cuda(kernel, values);
      },
      py::arg("kernel"), py::arg("constants") = py::list(),
      "Returns the CUDA C of a final kernel. constants: value or None per parameter.");
}

}  // namespace fuser::bind
