#include "schedule/device.h"

#include <algorithm>
#include <array>
#include <bit>
#include <tuple>

#include "base/error.h"

namespace fuser::schedule {
namespace {

constexpr int kKiB = 1024;
constexpr int kMiB = 1024 * kKiB;
constexpr int64_t kGB = 1'000'000'000;

struct KnownRow {
  int arch;
  const char* name;
  int sms, threads, blocks;  // the last two per SM
  int shared_per_sm, shared_per_block;
  int l2_bytes;
  int64_t bandwidth;
  bool clusters;
};

// Threads, blocks and shared memory are from the table "Technical Specifications per Compute
// Capability" of the CUDA C++ Programming Guide. From sm_80 on the system reserves 1 KiB of shared
// memory per block. Every GPU here has 65536 registers per SM and grid barriers. SM count, L2 size
// and bandwidth are from NVIDIA's data sheets and architecture white papers of the named board; the
// L2 sizes of the H200 and the B200 are values that the driver reports.
constexpr std::array<KnownRow, 8> kKnown = {{
    {70, "Tesla V100-SXM2", 80, 2048, 32, 96 * kKiB, 96 * kKiB, 6 * kMiB, 900 * kGB, false},
    {75, "Tesla T4", 40, 1024, 16, 64 * kKiB, 64 * kKiB, 4 * kMiB, 320 * kGB, false},
    {80, "A100-SXM4-80GB", 108, 2048, 32, 164 * kKiB, 163 * kKiB, 40 * kMiB, 2039 * kGB, false},
    {86, "A10", 72, 1536, 16, 100 * kKiB, 99 * kKiB, 6 * kMiB, 600 * kGB, false},
    {89, "L40S", 142, 1536, 24, 100 * kKiB, 99 * kKiB, 96 * kMiB, 864 * kGB, false},
    {90, "H200", 132, 2048, 32, 228 * kKiB, 227 * kKiB, 60 * kMiB, 4800 * kGB, true},
    {100, "B200", 148, 2048, 32, 228 * kKiB, 227 * kKiB, 126 * kMiB, 8000 * kGB, true},
    {120, "GeForce RTX 5090", 170, 1536, 24, 100 * kKiB, 99 * kKiB, 96 * kMiB, 1792 * kGB, true},
}};
constexpr int kRegistersPerSm = 65536;

auto plan_fields(const Device& d) {
  return std::tie(d.kind, d.arch, d.sms, d.threads_per_sm, d.blocks_per_sm, d.registers_per_sm,
                  d.shared_per_sm, d.shared_per_block, d.l2_bytes, d.bandwidth, d.clusters,
                  d.resident_clusters, d.cooperative, d.isa, d.simd_bytes, d.l1_bytes, d.l3_bytes);
}

}  // namespace

bool operator==(const Device& a, const Device& b) { return plan_fields(a) == plan_fields(b); }

uint64_t hash_of(const Device& device) {
  return std::apply(
      [](auto... fields) {
        uint64_t hash = 0;
        // One round of splitmix64 per field.
        const auto mix = [&hash](uint64_t field) {
          uint64_t z = (hash ^ field) + 0x9e3779b97f4a7c15;
          z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
          z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
          hash = z ^ (z >> 31);
        };
        const auto mix_all = [&mix](auto field) {
          if constexpr (requires { field.size(); })
            for (int each : field) mix(uint64_t(each));
          else
            mix(uint64_t(field));
        };
        (mix_all(fields), ...);
        return hash;
      },
      plan_fields(device));
}

std::array<int, 4> likely_clusters(int sms) {
  constexpr int groups = 8;
  std::array<int, 4> out = {sms / 2};
  for (size_t i = 1; i < out.size(); ++i) {
    const int blocks = 2 << i;
    out[i] = std::max(0, (sms - blocks / 2 * groups) / blocks);
  }
  return out;
}

int resident_clusters(const Device& device, int blocks) {
  if (blocks == 1) return device.sms;
  FUSER_ASSERT(std::has_single_bit(unsigned(blocks)) && blocks <= 16, "clusters of ", blocks);
  return device.resident_clusters[std::countr_zero(unsigned(blocks)) - 1];
}

std::string to_string(const Device& device) {
  if (device.kind == Device::Kind::Cpu)
    return text(device.name, " (", to_string(device.isa), ", ", device.cores, " cores, ",
                device.l2_bytes / kKiB, " KB L2 each, ", device.l3_bytes / kMiB, " MB L3)");
  return text(device.name, " (sm_", device.arch, ", ", device.sms, " SMs, ", device.l2_bytes / kMiB,
              " MB L2, ", device.bandwidth / kGB, " GB/s)");
}

Device known_device(int arch) {
  const auto found = std::find_if(kKnown.begin(), kKnown.end(),
                                  [&](const KnownRow& row) { return row.arch == arch; });
  FUSER_CHECK(found != kKnown.end(), Unsupported, "device-arch", "unknown architecture sm_", arch,
              "; expected one of ", joined(known_archs()));
  Device device;
  device.arch = arch;
  device.sms = found->sms;
  device.threads_per_sm = found->threads;
  device.blocks_per_sm = found->blocks;
  device.registers_per_sm = kRegistersPerSm;
  device.shared_per_sm = found->shared_per_sm;
  device.shared_per_block = found->shared_per_block;
  device.l2_bytes = found->l2_bytes;
  device.bandwidth = found->bandwidth;
  device.clusters = found->clusters;
  if (device.clusters) device.resident_clusters = likely_clusters(device.sms);
  device.cooperative = true;
  device.name = found->name;
  return device;
}

std::vector<int> known_archs() {
  std::vector<int> archs;
  for (const KnownRow& row : kKnown) archs.push_back(row.arch);
  return archs;
}

Device nearest_known_device(int arch) {
  int nearest = kKnown.front().arch;
  for (const KnownRow& row : kKnown)
    if (row.arch <= arch) nearest = row.arch;
  return known_device(nearest);
}

Device host_device(int like_arch) {
  FUSER_CHECK(like_arch == 70 || like_arch == 80 || like_arch == 90, Unsupported, "host-arch",
              "the host executor emulates sm_70, sm_80 or sm_90, not sm_", like_arch);
  Device device = known_device(like_arch);
  device.sms = 2;
  if (device.clusters) device.resident_clusters = {1, 1, 1, 1};  // host clusters run as fibers
  device.shared_per_sm = 48 * kKiB;
  device.shared_per_block = 48 * kKiB;
  device.l2_bytes = 1 * kMiB;
  device.bandwidth = 20 * kGB;
  device.kind = Device::Kind::Emulated;
  device.name = text("host executor, like sm_", like_arch);
  return device;
}

Device native_device(Isa isa) {
  const Processor& cpu = processor();
  Device device;
  device.kind = Device::Kind::Cpu;
  device.isa = isa;
  device.simd_bytes = simd_bytes(isa);
  device.l1_bytes = cpu.l1_bytes;
  device.l2_bytes = cpu.l2_bytes;
  device.l3_bytes = cpu.l3_bytes;
  device.cores = cpu.cores;
  device.name = cpu.name;
  return device;
}

}  // namespace fuser::schedule
