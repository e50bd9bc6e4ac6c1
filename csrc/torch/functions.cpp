#include "torch/functions.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>

#include "torch/direct.h"
#include "torch/python_executor.h"

namespace py = pybind11;

namespace fuser::bridge {

using namespace driver;

namespace {

using Given = PyObject* const*;

// Calls `function`. A Python exception that passed through autograd is raised unchanged.
template <class F>
PyObject* guarded(F function) noexcept {
  try {
    return function();
  } catch (python_error& error) {
    error.restore();
  } catch (...) {
    py::detail::try_translate_exceptions();
  }
  return nullptr;
}

// Returns a C function whose `self` is a capsule; the capsule owns the callee.
py::object bound(PyMethodDef& definition, const py::capsule& self) {
  PyObject* const function = PyCFunction_New(&definition, self.ptr());
  if (!function) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(function);
}

template <class T>
struct Bound {
  py::object owner;
  T* object;
};

template <class T>
py::capsule capsule_of(py::object owner) {
  T* const object = owner.cast<T*>();
  return py::capsule(new Bound<T>{std::move(owner), object},
                     [](void* p) { delete static_cast<Bound<T>*>(p); });
}

template <class T>
T& in(PyObject* capsule) {
  return *static_cast<T*>(PyCapsule_GetPointer(capsule, nullptr));
}

template <class F>
PyMethodDef method(const char* name, F function, const char* doc) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)),
          METH_FASTCALL, doc};
}

PyObject* run_definition(PyObject* self, Given given, Py_ssize_t count) noexcept {
  return guarded([&] {
    if (count < 1 || count > 3) throw py::type_error("expected (inputs, device=None, plan=None)");
    return in<Bound<PythonExecutor>>(self)
        .object->execute(given[0], count > 1 ? given[1] : Py_None, count > 2 ? given[2] : Py_None)
        .release()
        .ptr();
  });
}

// ---- regions

struct Region {
  py::object owner;
  PythonExecutor* executor;
  std::vector<int> results;
  py::object other;
  bool failed = false;
};

py::tuple run_kernels(const Region& self, Given given, size_t count) {
  PythonExecutor& executor = *self.executor;
  executor.check_count(count);
  TorchArguments arguments = executor.reserved();
  for (size_t i = 0; i < count; ++i) executor.add(arguments, i, given[i]);
  const RecordRef record = prepare(executor.executor, arguments, {});
  Results made = run_for_python(*record, arguments);
  py::tuple out(self.results.size());
  size_t next = 0;
  for (size_t i = 0; i < self.results.size(); ++i)
    PyTuple_SET_ITEM(out.ptr(), i,
                     self.results[i] < 0 ? THPVariable_Wrap(std::move(made[next++]))
                                         : Py_NewRef(given[self.results[i]]));
  return out;
}

// Returns the exception that is being handled as a Python object.
py::object error_of_python() {
  py::detail::try_translate_exceptions();
  return py::error_already_set().value();
}

PyObject* run_region(PyObject* capsule, Given given, Py_ssize_t count) noexcept {
  return guarded([&] {
    auto& self = in<Region>(capsule);
    py::object error = py::none();
    if (!self.failed && !python_runs_graphs().load(std::memory_order_relaxed)) {
      try {
        return run_kernels(self, given, static_cast<size_t>(count)).release().ptr();
      } catch (...) {
        error = error_of_python();
      }
    }
    py::list arguments(count);
    for (Py_ssize_t i = 0; i < count; ++i) PyList_SET_ITEM(arguments.ptr(), i, Py_NewRef(given[i]));
    py::object results = self.other(arguments, error);
    if (!error.is_none()) self.failed = true;
    return results.release().ptr();
  });
}

// ---- functions with gradients

PyObject* call_traces(PyObject* self, Given given, Py_ssize_t count) noexcept {
  return guarded([&] {
    return in<Bound<DirectTraces>>(self).object->call(given, static_cast<size_t>(count));
  });
}

PyObject* call_switch(PyObject* self, Given given, Py_ssize_t count) noexcept {
  return guarded([&] {
    const DirectSwitch& to = *in<Bound<DirectSwitch>>(self).object;
    if (!to.function) return PyObject_Vectorcall(to.wrapped.ptr(), given, count, nullptr);
    const DirectFunctionRef function = *to.function;
    return call_direct(function, given, static_cast<size_t>(count)).release().ptr();
  });
}

}  // namespace

py::object run_function(py::object executor) {
  static PyMethodDef definition =
      method("execute", run_definition,
             "execute(inputs, device=None, plan=None)\n--\n\nRuns the definition on the inputs.");
  return bound(definition, capsule_of<PythonExecutor>(std::move(executor)));
}

py::object region_function(py::object executor, std::vector<int> results, py::object other) {
  static PyMethodDef definition = method("region", run_region, "A region of a graph.");
  auto* const run = executor.cast<PythonExecutor*>();
  return bound(definition, py::capsule(new Region{std::move(executor), run, std::move(results),
                                                  std::move(other)},
                                       [](void* p) { delete static_cast<Region*>(p); }));
}

py::object traces_function(py::object traces) {
  static PyMethodDef definition =
      method("call", call_traces, "Calls the function if a trace matches the arguments.");
  return bound(definition, capsule_of<DirectTraces>(std::move(traces)));
}

py::object switch_function(py::object direct_switch) {
  static PyMethodDef definition = method("call", call_switch, "The function.");
  return bound(definition, capsule_of<DirectSwitch>(std::move(direct_switch)));
}

}  // namespace fuser::bridge
