// The machine of the cost model that a Device is.
#pragma once

#include <functional>

#include "cost/model.h"
#include "schedule/device.h"

namespace fuser::schedule {

// Returns the machine of a GPU from its properties, of a CPU from measured bandwidths.
// `copy_bandwidth` returns the bytes per second of copies of so many bytes; GPUs do not need it.
cost::Machine machine_of(const Device& device,
                         const std::function<double(int64_t)>& copy_bandwidth);

}  // namespace fuser::schedule
