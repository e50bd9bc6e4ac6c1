// Text between Python and C++ where it may be none of UTF-8. Python holds bytes that its locale
// cannot read, of a path or of the environment, as lone surrogates, which have no UTF-8.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <string_view>

namespace fuser {

// str(value) as UTF-8, for messages and names: a lone surrogate becomes an escape.
inline std::string to_text(pybind11::handle value) {
  const pybind11::str text(value);
  Py_ssize_t size = 0;
  if (const char* utf8 = PyUnicode_AsUTF8AndSize(text.ptr(), &size)) return {utf8, size_t(size)};
  PyErr_Clear();
  PyObject* escaped = PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace");
  if (!escaped) throw pybind11::error_already_set();
  return pybind11::reinterpret_steal<pybind11::bytes>(escaped);
}

// A message for Python, which may name a path: a byte that is no UTF-8 becomes an escape.
inline pybind11::str from_text(std::string_view text) {
  PyObject* decoded =
      PyUnicode_DecodeUTF8(text.data(), Py_ssize_t(text.size()), "backslashreplace");
  if (!decoded) throw pybind11::error_already_set();
  return pybind11::reinterpret_steal<pybind11::str>(decoded);
}

// Bytes of a path or of an environment variable, as os.fsencode(value) gives them. Characters that
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

// The same back: os.fsdecode(value).
inline pybind11::str from_system(std::string_view value) {
  PyObject* text = PyUnicode_DecodeFSDefaultAndSize(value.data(), Py_ssize_t(value.size()));
  if (!text) throw pybind11::error_already_set();
  return pybind11::reinterpret_steal<pybind11::str>(text);
}

}  // namespace fuser
