// SHA-256 (FIPS 180-4): names the entries of the disk store and seals their bytes.
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
  // The digest of everything given so far. The state is spent: use a new one for the next message.
  Digest finish();

  std::array<uint32_t, 8> state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                   0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> block = {};  // the bytes of the unfinished block
  uint64_t length = 0;                 // bytes so far
};

Digest sha256(std::string_view bytes);

// Digest of a list: each part is preceded by its length, so ("ab", "c") and ("a", "bc") differ.
Digest sha256_of_parts(std::initializer_list<std::string_view> parts);

// 64 lower-case digits.
std::string hex(const Digest& digest);

}  // namespace fuser
