// Text between Python and C++ that may not be valid UTF-8. For bytes of a path or the environment
// that its locale cannot decode, Python uses lone surrogates, which UTF-8 cannot encode.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <string_view>

namespace fuser::bind {

// Returns str(value) for messages and names; a lone surrogate becomes an escape.
inline std::string to_text(pybind11::handle value) {
  const pybind11::str text(value);
  Py_ssize_t size = 0;
  if (const char* utf8 = PyUnicode_AsUTF8AndSize(text.ptr(), &size)) return {utf8, size_t(size)};
  PyErr_Clear();
  PyObject* escaped = PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace");
  if (!escaped) throw pybind11::error_already_set();
  return pybind11::reinterpret_steal<pybind11::bytes>(escaped);
}

// Returns a message for Python, which may name a path; an invalid UTF-8 byte becomes an escape.
inline pybind11::str from_text(std::string_view text) {
  PyObject* decoded =
      PyUnicode_DecodeUTF8(text.data(), Py_ssize_t(text.size()), "backslashreplace");
  if (!decoded) throw pybind11::error_already_set();
  return pybind11::reinterpret_steal<pybind11::str>(decoded);
}

// Returns a path or environment value in the system's encoding: os.fsencode(value). Characters that
// the locale cannot encode become UTF-8.
inline std::string to_system(pybind11::handle value) {
  PyObject* path = PyOS_FSPath(value.ptr());
  if (!path) throw pybind11::error_already_set();
  const auto held = pybind11::reinterpret_steal<pybind11::object>(path);
  if (PyBytes_Check(path)) return pybind11::reinterpret_borrow<pybind11::bytes>(path);
  PyObject* bytes = PyUnicode_EncodeFSDefault(path);
  if (!bytes) {
    PyErr_Clear();
    return to_text(path);
  }
  return pybind11::reinterpret_steal<pybind11::bytes>(bytes);
}

// Returns the inverse of to_system(): os.fsdecode(value).
inline pybind11::str from_system(std::string_view value) {
  PyObject* text = PyUnicode_DecodeFSDefaultAndSize(value.data(), Py_ssize_t(value.size()));
  if (!text) throw pybind11::error_already_set();
  return pybind11::reinterpret_steal<pybind11::str>(text);
}

}  // namespace fuser::bind
