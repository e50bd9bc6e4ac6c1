// The kernels of a shape that is run often, with its sizes as constants.
//
// A specialized kernel has the plan, the loops and the arithmetic of the generic one: its text
// differs in that parameters which follow from sizes are declared as constants. Its results are
// therefore the same bits, and a record with specialized kernels may take the place of the generic
// one between any two calls.
#pragma once

#include <atomic>
#include <cstdint>

#include "driver/launch.h"

namespace fuser {

// The record with every kernel specialized to its sizes, compiled and loaded; nullptr where no
// kernel of it has a size to be told. Raises what load_kernels() raises.
RecordRef with_constant_sizes(const Record& record);

struct SpecializationCounters {
  std::atomic<int64_t> kernels{0};   // specialized, in records
  std::atomic<int64_t> failures{0};  // records that keep their generic kernels
};
SpecializationCounters& specialization_counters();

}  // namespace fuser
