// A compiled kernel as bytes, with the resources that it uses, and its sealed form on disk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/sha256.h"

namespace fuser::driver {

enum class BinaryKind : uint32_t {
  Cubin,       // machine code of one architecture, or PTX that the driver compiles
  HostObject,  // shared object of the host executor
};

struct Binary {
  BinaryKind kind = BinaryKind::Cubin;
  int registers = 0;     // registers per thread, maximum over the kernels of the payload
  int local_bytes = 0;   // bytes per thread of spills and stack
  int shared_bytes = 0;  // bytes of static shared memory per block
  std::string name;      // name of the function
  std::string payload;

  bool operator==(const Binary&) const = default;
};

// Returns magic | format version | SHA-256 | metadata | name | payload. The digest covers the key
// too, so an entry that was renamed or copied to another key is rejected like one with a flipped
// bit.
std::string seal(const Digest& key, const Binary& binary);

// Inverts seal(). Returns nullopt and sets `reason` if a byte is missing, added or altered.
std::optional<Binary> unseal(const Digest& key, std::string_view bytes, std::string& reason);

}  // namespace fuser::driver
