// Memory bandwidth of this CPU, measured for predicted times.
#pragma once

#include <cstdint>

namespace fuser::host {

// Returns the bytes per second, reads plus writes, of a copy of `bytes` bytes by all cores: the
// best of a few copies within some milliseconds.
double copy_bandwidth(int64_t bytes);

}  // namespace fuser::host
