#include "driver/cuda/binary.h"

#include <bit>
#include <cstring>

#include "base/error.h"

namespace fuser::driver {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the header is written in its memory layout");

constexpr std::array<char, 8> kMagic = {'f', 'u', 's', 'e', 'r', 'b', 'i', 'n'};
constexpr uint32_t kFormat = 3;

struct Header {
  std::array<char, 8> magic;
  uint32_t format;
  Digest digest;  // digest of the key and of every byte behind this field
  uint32_t kind;
  int32_t registers;
  int32_t local_bytes;
  int32_t shared_bytes;
  uint32_t name_bytes;
  uint64_t payload_bytes;
};
constexpr size_t kSealed = offsetof(Header, kind);
static_assert(sizeof(Header) == 72 && kSealed == 44, "the format on disk has no padding");

Digest digest_of(const Digest& key, std::string_view bytes) {
  return sha256_of_parts(
      {{reinterpret_cast<const char*>(key.data()), key.size()}, bytes.substr(kSealed)});
}

}  // namespace

std::string seal(const Digest& key, const Binary& binary) {
  Header header = {kMagic,
                   kFormat,
                   {},
                   uint32_t(binary.kind),
                   binary.registers,
                   binary.local_bytes,
                   binary.shared_bytes,
                   uint32_t(binary.name.size()),
                   binary.payload.size()};
  std::string bytes(sizeof header, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  bytes += binary.name + binary.payload;
  header.digest = digest_of(key, bytes);
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

std::optional<Binary> unseal(const Digest& key, std::string_view bytes, std::string& reason) {
  Header header;
  if (bytes.size() < sizeof header) {
    reason = text("truncated: ", bytes.size(), " bytes, the header alone has ", sizeof header);
    return std::nullopt;
  }
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kMagic || header.format != kFormat) {
    reason = "not an entry of this format";
    return std::nullopt;
  }
  const std::string_view rest = bytes.substr(sizeof header);
  const uint64_t expected = header.name_bytes + header.payload_bytes;
  if (rest.size() != expected || header.name_bytes > rest.size()) {
    reason =
        text("truncated or extended: ", rest.size(), " bytes of payload, ", expected, " expected");
    return std::nullopt;
  }
  if (digest_of(key, bytes) != header.digest || header.kind > uint32_t(BinaryKind::HostObject)) {
    reason = "altered: the digest does not match";
    return std::nullopt;
  }
  return Binary{.kind = BinaryKind(header.kind),
                .registers = header.registers,
                .local_bytes = header.local_bytes,
                .shared_bytes = header.shared_bytes,
                .name = std::string(rest.substr(0, header.name_bytes)),
                .payload = std::string(rest.substr(header.name_bytes))};
}

}  // namespace fuser::driver
