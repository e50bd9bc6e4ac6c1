// A compiled kernel as bytes, with what was measured when it was built, and its sealed form on
// disk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/sha256.h"

namespace fuser {

enum class BinaryKind : uint32_t {
  Cubin,       // machine code of one architecture, or PTX that the driver finishes
  HostObject,  // shared object of the host executor
};

struct Binary {
  BinaryKind kind = BinaryKind::Cubin;
  int registers = 0;     // per thread, the largest over the kernels of the payload
  int local_bytes = 0;   // per thread: spills and stack
  int shared_bytes = 0;  // per block, static
  std::string name;      // of the function
  std::string payload;

  bool operator==(const Binary&) const = default;
};

// magic | format version | SHA-256 | metadata | name | payload. The digest covers the key too, so
// an entry that was renamed or copied to another key is as bad as one with a flipped bit.
std::string seal(const Digest& key, const Binary& binary);

// The inverse; nothing, with the reason, when a byte is missing, added or altered.
std::optional<Binary> unseal(const Digest& key, std::string_view bytes, std::string& reason);

}  // namespace fuser
