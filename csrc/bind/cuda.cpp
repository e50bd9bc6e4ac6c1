// codegen/cuda.h: Kernel IR as CUDA C.
#include "codegen/cuda.h"

#include "bind/bind.h"

namespace py = pybind11;

namespace fuser {

void bind_cuda(py::module_& m) {
  py::class_<KernelText>(m, "KernelText", "One kernel as CUDA C.")
      .def_readonly("name", &KernelText::name)
      .def_readonly("text", &KernelText::text)
      .def_readonly("collectives", &KernelText::collectives)
      .def_readonly("threads", &KernelText::threads, "Per block.")
      .def_readonly("shared_bytes", &KernelText::shared_bytes, "Dynamic, per block.")
      .def_readonly("cluster", &KernelText::cluster, "Blocks of a cluster.")
      .def_readonly("cooperative", &KernelText::cooperative, "Are all blocks resident at once?");
  m.def("print_cuda", &print_cuda, py::arg("kernel"), "The text of a final kernel.");
}

}  // namespace fuser
