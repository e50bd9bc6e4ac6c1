// base/sha256.h
#include "base/sha256.h"

#include <pybind11/stl.h>

#include <vector>

#include "bind/bind.h"

namespace py = pybind11;

namespace fuser::bind {
namespace {

py::bytes to_bytes(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

void bind_sha256(py::module_& m) {
  m.def(
      "sha256", [](std::string_view bytes) { return to_bytes(sha256(bytes)); }, py::arg("bytes"),
      "The digest of one message: 32 bytes.");
  m.def(
      "sha256_chunks",
      [](const std::vector<std::string_view>& chunks) {
        Sha256 hash;
        for (const std::string_view chunk : chunks) hash.update(chunk);
        return to_bytes(hash.finish());
      },
      py::arg("chunks"), "Returns the digest of the concatenated chunks.");
  m.def(
      "sha256_of_parts",
      [](std::string_view first, std::string_view second) {
        return to_bytes(sha256_of_parts({first, second}));
      },
      py::arg("first"), py::arg("second"),
      "Returns the digest of two parts, which depends on the boundary between them.");
  m.def(
      "sha256_hex", [](std::string_view bytes) { return hex(sha256(bytes)); }, py::arg("bytes"),
      "Returns the digest of one message as 64 hexadecimal digits.");
}

}  // namespace fuser::bind
