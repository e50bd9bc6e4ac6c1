// Device: the properties of a GPU or a CPU that a plan may depend on, as plain data. The driver
// fills it in for a GPU that is present, host_device() for a GPU that the host executor emulates,
// and native_device() for the CPU. A table of known GPUs (known_device()) serves compilation
// without a GPU.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/processor.h"

namespace fuser::schedule {

// Limits that all supported GPUs share.
inline constexpr int warp = 32;            // threads of a warp
inline constexpr int vector_bytes = 16;    // bytes of the widest memory access of a thread
inline constexpr int most_threads = 1024;  // threads of the largest block

struct Device {
  // Emulated: a small GPU whose kernels run on the CPU, thread by thread. Cpu: target of CPU
  // kernels (docs/design/cpu.md), which have none of a GPU's properties.
  enum class Kind : uint8_t { Gpu, Emulated, Cpu };
  Kind kind = Kind::Gpu;

  int arch = 0;              // 10 * major + minor version: 90 for sm_90; 0 for a CPU
  int sms = 0;               // number of streaming multiprocessors (SMs)
  int threads_per_sm = 0;    // resident threads of an SM, at most
  int blocks_per_sm = 0;     // resident blocks of an SM, at most
  int registers_per_sm = 0;  // 32-bit registers of an SM
  int shared_per_sm = 0;     // bytes of shared memory of an SM
  int shared_per_block = 0;  // bytes of shared memory of a block, with the opt-in
  int l2_bytes = 0;          // bytes of the L2 cache; on a CPU, that of one core
  int64_t bandwidth = 0;     // bytes per second to memory, from the data sheet or the memory clock
  bool clusters = false;     // True if it has thread block clusters and distributed shared memory
  // Resident clusters of 2, 4, 8 and 16 blocks if each block has an SM for itself. A cluster stays
  // within one group of SMs, and groups differ in size, so these are not quotients of the SM count.
  std::array<int, 4> resident_clusters = {};
  bool cooperative = false;  // True if it has grid barriers

  // Fields of a CPU.
  Isa isa{};
  int simd_bytes = 0;  // bytes of a vector register
  int l1_bytes = 0;    // bytes of the data cache of one core
  int64_t l3_bytes = 0;

  // Index and name of the device, and cores of a CPU. Plans do not depend on these three fields.
  int ordinal = 0;
  int cores = 0;
  std::string name;

  bool is_gpu() const { return kind == Kind::Gpu; }
};

// Compares all fields except ordinal, cores and name, so two boards of one model share plans and
// kernels.
bool operator==(const Device& a, const Device& b);
uint64_t hash_of(const Device& device);

// Estimates resident_clusters for a device that is not present. Assumes eight groups of SMs with an
// even number in each, of which each leaves half a cluster unused.
std::array<int, 4> likely_clusters(int sms);
// Returns the number of resident clusters of `blocks` blocks, a power of two. For one block it is
// the number of SMs.
int resident_clusters(const Device& device, int blocks);

// One line: "NVIDIA H200 (sm_90, 132 processors, 60 MB L2, 4800 GB/s)".
std::string to_string(const Device& device);

// Returns a representative GPU of an architecture of known_archs(). Raises Unsupported
// "device-arch" for any other architecture.
Device known_device(int arch);
std::vector<int> known_archs();
// Returns the newest known GPU that is not newer than `arch`.
Device nearest_known_device(int arch);

// Describes the host executor as a GPU with the features of sm_70, sm_80 or sm_90. It has two SMs
// and little shared memory, so that tests run several waves and cooperative grids with small sizes.
Device host_device(int like_arch);
// Describes this CPU with the given instruction set, which it need not have.
Device native_device(Isa isa);

}  // namespace fuser::schedule
