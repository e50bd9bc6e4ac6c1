// Cost model: the time of work on a machine, by limiting factor. The segmenter and the schedulers
// compare time_of() per element; explain and report print predict() of whole kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cost/tuning.h"

namespace fuser::cost {

// Returns the time in issue slots of bytes and instructions that overlap, on any machine.
inline double time_of(double bytes, double slots) {
  return std::max(slots, bytes * model::machine_balance);
}

// Work of a kernel: bytes read and stored, and issue slots of all elements.
struct Work {
  double bytes = 0.0, slots = 0.0;
};

// A GPU or a CPU as predictions see it.
struct Machine {
  struct Cache {
    int64_t bytes;
    double bandwidth;  // bytes per second
  };
  double copy_bandwidth = 0.0;  // bytes per second, reads plus writes
  double slots = 0.0;           // issue slots per second
  double launch_us = 0.0;
  std::vector<Cache> caches{};  // of a CPU, smallest first

  // Returns the copy bandwidth of the smallest memory that holds these bytes.
  double bandwidth(double bytes) const;
};

// Times in microseconds if launch, bytes or instructions alone limited a kernel.
struct Parts {
  double launch, bytes, instructions;
  // Bytes and instructions overlap, and follow the launch.
  double together() const { return launch + std::max(bytes, instructions); }
};
Parts predict(const Work& work, const Machine& machine);

}  // namespace fuser::cost
