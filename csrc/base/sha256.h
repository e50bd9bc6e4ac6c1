// SHA-256 (FIPS 180-4), used to name the entries of the disk store and to seal their bytes.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace fuser {

using Digest = std::array<uint8_t, 32>;

struct Sha256 {
  void update(std::string_view bytes);
  // Returns the digest of all bytes given so far. The object cannot be used for another message.
  Digest finish();

  std::array<uint32_t, 8> state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                   0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> block = {};  // bytes of the unfinished block
  uint64_t length = 0;                 // bytes so far
};

Digest sha256(std::string_view bytes);

// Returns the digest of a list. Each part is preceded by its length, so ("ab", "c") and ("a", "bc")
// differ.
Digest sha256_of_parts(std::initializer_list<std::string_view> parts);

// Returns 64 lower-case digits.
std::string hex(const Digest& digest);

}  // namespace fuser
