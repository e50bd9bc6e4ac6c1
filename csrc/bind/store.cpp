// driver/cache/store.h and driver/cuda/binary.h
#include "driver/cache/store.h"

#include <pybind11/stl.h>

#include <cstring>

#include "base/error.h"
#include "bind/bind.h"
#include "bind/text.h"

namespace py = pybind11;

namespace fuser::bind {

using namespace driver;

namespace {

Digest to_digest(std::string_view bytes) {
  Digest digest;
  FUSER_CHECK(bytes.size() == digest.size(), User, "store-key", "key: expected ", digest.size(),
              " bytes, got ", bytes.size());
  std::memcpy(digest.data(), bytes.data(), digest.size());
  return digest;
}

}  // namespace

void bind_store(py::module_& m) {
  py::enum_<BinaryKind>(m, "BinaryKind", "Kind of the payload of a Binary.")
      .value("Cubin", BinaryKind::Cubin)
      .value("HostObject", BinaryKind::HostObject);

  py::class_<Binary>(m, "Binary", "A compiled kernel as bytes, with its resource use.")
      .def(py::init([](BinaryKind kind, int registers, int local_bytes, int shared_bytes,
                       std::string name, std::string payload) {
             return Binary{kind,         registers,       local_bytes,
                           shared_bytes, std::move(name), std::move(payload)};
           }),
           py::kw_only(), py::arg("kind") = BinaryKind::Cubin, py::arg("registers") = 0,
           py::arg("local_bytes") = 0, py::arg("shared_bytes") = 0, py::arg("name") = "",
           py::arg("payload"))
      .def_readonly("kind", &Binary::kind)
      .def_readonly("registers", &Binary::registers, "Per thread.")
      .def_readonly("local_bytes", &Binary::local_bytes, "Per thread: spills and stack.")
      .def_readonly("shared_bytes", &Binary::shared_bytes, "Per block, static.")
      .def_readonly("name", &Binary::name, "Name of the function.")
      .def_property_readonly("payload", [](const Binary& b) { return py::bytes(b.payload); })
      .def(
          "__eq__", [](const Binary& a, const Binary& b) { return a == b; }, py::is_operator());

  py::class_<StoreCounters>(m, "StoreCounters", "Counters of a Store.")
      .def_readonly("hits", &StoreCounters::hits)
      .def_readonly("misses", &StoreCounters::misses)
      .def_readonly("puts", &StoreCounters::puts)
      .def_readonly("evicted", &StoreCounters::evicted)
      .def_readonly("bad", &StoreCounters::bad);

  using Unlocked = py::call_guard<py::gil_scoped_release>;
  py::class_<DiskStore>(m, "Store", "The disk cache of compiled kernels.")
      .def(py::init([](const py::object& directory, int64_t capacity_bytes) {
             return std::make_unique<DiskStore>(to_system(directory), capacity_bytes);
           }),
           py::arg("directory"), py::arg("capacity_bytes") = DiskStore::kDefaultCapacity)
      .def(
          "get", [](DiskStore& store, std::string_view key) { return store.get(to_digest(key)); },
          py::arg("key"), Unlocked(), "Returns the entry of a 32-byte key, or None.")
      .def(
          "put",
          [](DiskStore& store, std::string_view key, const Binary& binary) {
            store.put(to_digest(key), binary);
          },
          py::arg("key"), py::arg("binary"), Unlocked(),
          "Stores an entry if the folder is writable.")
      .def("clear", &DiskStore::clear, Unlocked(), "Removes every entry.")
      .def_property_readonly("directory",
                             [](const DiskStore& store) { return from_system(store.directory()); })
      .def("counters", &DiskStore::counters);

  m.def(
      "store_directory",
      [](const py::str& option) { return from_system(store_directory(to_system(option))); },
      py::arg("option"), "Where the cache lives: the option, or a default from the environment.");
}

}  // namespace fuser::bind
