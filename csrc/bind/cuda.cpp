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
      .def_readonly("threads", &KernelText::threads);
  m.def("print_cuda", &print_cuda, py::arg("kernel"), "The text of a final kernel.");
}

}  // namespace fuser
