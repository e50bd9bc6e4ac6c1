// driver/kernels.h: the compilers, which are Python's.
#include "driver/kernels.h"

#include <memory>

#include "bind/bind.h"

namespace py = pybind11;

namespace fuser {
namespace {

// What Python raised in a compiler. Every thread that waits for the kernel gets it; pybind11's own
// carrier can be handed to Python only once.
struct Raised : std::exception {
  std::shared_ptr<PyObject> error;

  explicit Raised(const py::object& value)
      : error(value.inc_ref().ptr(), [](PyObject* object) {
          const py::gil_scoped_acquire gil;  // the last owner may be a thread without it
          Py_DECREF(object);
        }) {}
  const char* what() const noexcept override { return "a compiler raised an exception of Python"; }
};

template <class Call>
auto call_python(const Call& call) {
  const py::gil_scoped_acquire gil;
  try {
    return call();
  } catch (const py::error_already_set& error) {
    throw Raised(error.value());
  }
}

void translate(std::exception_ptr pointer) {
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (const Raised& raised) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(raised.error.get())), raised.error.get());
  }
}

}  // namespace

void bind_kernels(py::module_& m) {
  py::class_<Target>(m, "Target", "What kernels are built for.")
      .def_readonly("host", &Target::host)
      .def_readonly("arch", &Target::arch)
      .def_readonly("debug", &Target::debug);
  py::register_exception_translator(&translate);
  m.def(
      "set_toolchain",
      [](const py::object& toolchain) {
        // Leaked: kernels may be asked for until the process ends, and a reference may not be
        // dropped without the interpreter.
        PyObject* const object = toolchain.inc_ref().ptr();
        set_toolchain({
            .fingerprint =
                [object](const Target& target) {
                  return call_python([&] {
                    return std::string(
                        py::handle(object).attr("fingerprint")(target).cast<py::bytes>());
                  });
                },
            .build =
                [object](const Target& target, std::span<const KernelText> texts) {
                  return call_python([&] {
                    py::list list;
                    for (const KernelText& t : texts) list.append(t);
                    std::vector<Binary> out;
                    for (const py::handle item : py::handle(object).attr("build")(target, list)) {
                      const auto built = item.cast<std::tuple<py::bytes, int, int, int>>();
                      out.push_back(
                          {.kind = target.host ? BinaryKind::HostObject : BinaryKind::Cubin,
                           .registers = std::get<1>(built),
                           .local_bytes = std::get<2>(built),
                           .shared_bytes = std::get<3>(built),
                           .payload = std::get<0>(built)});
                    }
                    return out;
                  });
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
      "Sets the object whose fingerprint(target) -> bytes and build(target, texts) -> [(payload, "
      "registers, "
      "local_bytes, shared_bytes)] compile kernels.");
}

}  // namespace fuser
