#include "cost/model.h"

namespace fuser::cost {

double Machine::bandwidth(double bytes) const {
  for (const Cache& cache : caches)
    if (bytes <= static_cast<double>(cache.bytes)) return cache.bandwidth;
  return copy_bandwidth;
}

Parts predict(const Work& work, const Machine& machine) {
  constexpr double us = 1e6;  // microseconds per second
  return {.launch = machine.launch_us,
          .bytes = work.bytes / machine.bandwidth(work.bytes) * us,
          .instructions = work.slots / machine.slots * us};
}

}  // namespace fuser::cost
