// driver/kernels.h: the compilers, which are Python's.
#include "driver/kernels.h"

#include "bind/bind.h"

namespace py = pybind11;

namespace fuser {

void bind_kernels(py::module_& m) {
  py::class_<KernelText>(m, "KernelText", "One kernel as CUDA C.")
      .def_readonly("name", &KernelText::name)
      .def_readonly("text", &KernelText::text)
      .def_readonly("collectives", &KernelText::collectives)
      .def_readonly("threads", &KernelText::threads);
  py::class_<Target>(m, "Target", "What kernels are built for.")
      .def_readonly("host", &Target::host)
      .def_readonly("arch", &Target::arch)
      .def_readonly("debug", &Target::debug);
  m.def(
      "set_toolchain",
      [](const py::object& toolchain) {
        // Leaked: kernels may be asked for until the process ends, and a reference may not be dropped without the
        // interpreter.
        PyObject* const object = toolchain.inc_ref().ptr();
        set_toolchain({
            .fingerprint =
                [object](const Target& target) {
                  const py::gil_scoped_acquire gil;
                  return std::string(py::handle(object).attr("fingerprint")(target).cast<py::bytes>());
                },
            .build =
                [object](const Target& target, std::span<const KernelText> texts) {
                  const py::gil_scoped_acquire gil;
                  py::list list;
                  for (const KernelText& t : texts) list.append(t);
                  std::vector<Binary> out;
                  for (const py::handle item : py::handle(object).attr("build")(target, list)) {
                    const auto built = item.cast<std::tuple<py::bytes, int, int, int>>();
                    out.push_back({.kind = target.host ? BinaryKind::HostObject : BinaryKind::Cubin,
                                   .registers = std::get<1>(built),
                                   .local_bytes = std::get<2>(built),
                                   .shared_bytes = std::get<3>(built),
                                   .payload = std::get<0>(built)});
                  }
                  return out;
                },
            .while_waiting =
                [](const std::function<void()>& wait) {
                  if (PyGILState_Check()) {
                    const py::gil_scoped_release release;
                    wait();
                  } else {
                    wait();
                  }
                },
        });
      },
      py::arg("toolchain"),
      "Sets the object whose fingerprint(target) -> bytes and build(target, texts) -> [(payload, registers, "
      "local_bytes, shared_bytes)] compile kernels.");
}

}  // namespace fuser
