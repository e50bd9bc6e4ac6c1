// What a plan may know about the processor it is made for: plain data, filled in from the driver,
// from the host executor's description, or from a table of known GPUs for compiling without one.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace fuser {

// Of every GPU.
inline constexpr int warp = 32;            // threads
inline constexpr int vector_bytes = 16;    // of the widest access of a thread
inline constexpr int most_threads = 1024;  // of a block

struct Device {
  int arch = 0;                     // 10 * major + minor: 90 for sm_90
  int processors = 0;               // streaming multiprocessors
  int threads_per_processor = 0;    // resident at once
  int blocks_per_processor = 0;     // resident at once
  int registers_per_processor = 0;  // of 32 bits
  int shared_per_processor = 0;     // bytes
  int shared_per_block = 0;         // bytes, with the opt-in
  int l2_bytes = 0;
  int64_t bandwidth = 0;  // bytes a second to memory, from the data sheet or the memory clock
  bool clusters = false;  // thread block clusters, distributed shared memory
  // Clusters of 2, 4, 8 and 16 blocks that are resident at once, with a processor for each block: a
  // cluster does not leave its group of processors, and groups are of different sizes.
  std::array<int, 4> resident_clusters = {};
  bool cooperative = false;  // grid barriers
  bool host = false;         // the host executor

  // Where it is and what it is called; no plan depends on these two.
  int ordinal = 0;
  std::string name;
};

// Equal for plans: all fields but ordinal and name. Two boards of one model share plans and
// kernels.
bool operator==(const Device& a, const Device& b);
uint64_t hash_of(const Device& device);

// The same for a device that could not be asked: groups of processors, of which there are eight or
// so with an even number in each, leave half a cluster over.
std::array<int, 4> likely_clusters(int processors);
// Clusters of so many blocks, a power of two; of one block as many as there are processors.
int resident_clusters(const Device& device, int blocks);

// One line: "NVIDIA H200 (sm_90, 132 processors, 60 MB L2, 4800 GB/s)".
std::string to_string(const Device& device);

// A representative GPU of an architecture: 70, 75, 80, 86, 89, 90, 100 or 120 (known_archs()).
// Raises Unsupported "device-arch" for another one.
Device known_device(int arch);
std::vector<int> known_archs();
// The newest known GPU that is not newer than `arch`.
Device nearest_known_device(int arch);

// The host executor dressed as a GPU with the features of sm_70, 80 or 90: two processors and
// little shared memory, so that grids of several waves and cooperative ones stay small.
Device host_device(int like_arch);

}  // namespace fuser
