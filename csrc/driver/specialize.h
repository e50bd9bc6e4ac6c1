// Specialized kernels: kernels of a shape that runs often, with its sizes as constants.
//
// A specialized kernel has the plan, the loops and the arithmetic of the generic kernel. Its text
// only declares parameters that follow from sizes as constants. Its results are therefore bitwise
// equal, and a record with specialized kernels may replace the generic record between any two
// calls.
#pragma once

#include <atomic>
#include <cstdint>

#include "driver/launch.h"

namespace fuser::driver {

// Returns the record with every kernel specialized to its sizes, compiled and loaded. Returns
// nullptr if no kernel has a parameter that follows from sizes. Raises the errors of
// load_kernels().
RecordRef with_constant_sizes(const Record& record);

struct SpecializationCounters {
  std::atomic<int64_t> kernels{0};   // specialized kernels in records
  std::atomic<int64_t> failures{0};  // records that keep their generic kernels
};
SpecializationCounters& specialization_counters();

}  // namespace fuser::driver
