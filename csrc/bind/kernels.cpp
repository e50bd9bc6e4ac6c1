// driver/cuda/kernels.h: the compilers, which are Python functions.
#include "driver/cuda/kernels.h"

#include <pthread.h>

#include <condition_variable>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "bind/bind.h"
#include "bind/text.h"
#include "driver/background.h"

namespace py = pybind11;

namespace fuser::bind {

using namespace codegen;
using namespace driver;
using namespace schedule;

namespace {

// An exception that Python raised in a compiler. Every thread that waits for the kernel gets it,
// while pybind11's own exception can be passed to Python only once.
struct Raised : std::exception {
  std::shared_ptr<PyObject> error;
  std::shared_ptr<PyObject> traceback;  // up to the compiler; nullptr: it was never raised
  std::string message;                  // for callers without Python: "CompileError: ..."

  explicit Raised(const py::object& value)
      : error(owned(value.inc_ref().ptr())),
        traceback(owned(PyException_GetTraceback(value.ptr()))),
        message(text(Py_TYPE(value.ptr())->tp_name, ": ", to_text(value))) {}

  static std::shared_ptr<PyObject> owned(PyObject* reference) {
    return {reference, [](PyObject* object) {
              if (!Py_IsInitialized()) return;
              const py::gil_scoped_acquire gil;  // the last owner may be a thread without it
              Py_XDECREF(object);
            }};
  }
  const char* what() const noexcept override { return message.c_str(); }
};

// Counts threads inside the compilers. The interpreter waits for them before it ends: a thread that
// requested its lock afterwards would terminate the process.
struct Gate {
  std::mutex mutex;
  std::condition_variable left;
  int inside = 0;
  bool closed = false;

  void enter() {
    const std::lock_guard lock(mutex);
    FUSER_CHECK(!closed, Unsupported, "interpreter-exit",
                "no kernel is compiled while the interpreter exits");
    ++inside;
  }
  void leave() {
    const std::lock_guard lock(mutex);
    --inside;
    left.notify_all();
  }
  void close() {
    std::unique_lock lock(mutex);
    closed = true;
    left.wait(lock, [&] { return inside == 0; });
  }
};

// Returns the gate. It is leaked, and replaced in a forked child, which has only the forking
// thread.
Gate& gate() {
  static Gate* current = nullptr;
  static const int registered = [] {
    current = new Gate;
    return pthread_atfork(nullptr, nullptr, [] { current = new Gate; });
  }();
  (void)registered;
  return *current;
}

template <class Call>
auto call_python(const Call& call) {
  Gate& through = gate();
  through.enter();
  const std::shared_ptr<void> leave(nullptr, [&](void*) { through.leave(); });
  const py::gil_scoped_acquire gil;
  try {
    return call();
  } catch (const py::error_already_set& error) {
    throw Raised(error.value());
  }
}

// Waits for running compilers, and prevents new ones.
void stop_compiling() {
  stop_background();
  gate().close();
}

// Delivers an item (index, (payload, registers, local bytes, shared bytes)) or (index, exception).
void hand_over(const py::handle& item, const Target& target, const Toolchain::Deliver& deliver) {
  const auto [index, result] = item.cast<std::tuple<size_t, py::object>>();
  Toolchain::Outcome outcome;
  if (PyExceptionInstance_Check(result.ptr())) {
    outcome = std::make_exception_ptr(Raised(result));
  } else {
    const auto built = result.cast<std::tuple<py::bytes, int, int, int>>();
    outcome = Binary{.kind = target.is_host() ? BinaryKind::HostObject : BinaryKind::Cubin,
                     .registers = std::get<1>(built),
                     .local_bytes = std::get<2>(built),
                     .shared_bytes = std::get<3>(built),
                     .payload = std::get<0>(built)};
  }
  const py::gil_scoped_release release;
  deliver(index, std::move(outcome));
}

void build(PyObject* toolchain, const Target& target, std::span<const KernelText> texts,
           const Toolchain::Deliver& deliver) {
  py::list list;
  for (const KernelText& t : texts) list.append(t);
  for (const py::handle item : py::handle(toolchain).attr("build")(target, list))
    hand_over(item, target, deliver);
}

void translate(std::exception_ptr pointer) {
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (const Raised& raised) {
    // Each raise appends its own callers to the traceback, so reset it first.
    PyException_SetTraceback(raised.error.get(),
                             raised.traceback ? raised.traceback.get() : Py_None);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(raised.error.get())), raised.error.get());
  }
}

}  // namespace

void bind_kernels(py::module_& m) {
  py::class_<Target>(m, "Target", "What kernels are built for.")
      .def_property_readonly("host", &Target::is_host, "The C++ compiler builds its kernels.")
      .def_property_readonly(
          "isa",
          [](const Target& t) {
            return std::string(t.kind == Device::Kind::Cpu ? to_string(t.isa) : "");
          },
          "Instruction set of CPU kernels; empty: kernels of a GPU.")
      .def_readonly("arch", &Target::arch)
      .def_readonly("debug", &Target::debug);
  py::register_exception_translator(&translate);
  m.def(
      "set_toolchain",
      [](const py::object& toolchain) {
        // Leaked: kernels may be requested until the process ends, and a reference must not be
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
                [object](const Target& target, std::span<const KernelText> texts,
                         const Toolchain::Deliver& deliver) {
                  call_python([&] { build(object, target, texts, deliver); });
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
      "Sets the object whose fingerprint(target) -> bytes and build(target, texts) -> iterator of "
      "(index, (payload, registers, local_bytes, shared_bytes) or CompileError) compile kernels.");
  m.def("wait_for_background", &wait_for_background, py::call_guard<py::gil_scoped_release>(),
        "Waits until all background compilations have finished.");
  m.def("stop_compiling", &stop_compiling, py::call_guard<py::gil_scoped_release>(),
        "Disables compilation and waits until running compilations have finished, for the "
        "interpreter's exit.");
}

}  // namespace fuser::bind
