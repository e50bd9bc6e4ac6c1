// Where the random numbers of a run start: torch's default generators.
#pragma once

#include <cstdint>

namespace fuser {

struct RandomPosition {
  int64_t seed = 0, offset = 0;
  // While a CUDA graph is captured: what lies there when it runs is added. nullptr elsewhere.
  const int64_t *seed_at = nullptr, *offset_at = nullptr;
};

// Takes the place of `ops` random ops from the default generator of the device, under its lock. On
// a GPU that is its seed and offset, which moves on by 4 an op, as torch's own ops move it. The
// CPU's generator has no offset: the seed is a number drawn from it, one is drawn for each op.
//
// Raises Unsupported "rng-capture-1" while the device's current stream is captured into a CUDA
// graph, if the installed torch does not give the addresses of its generator's state.
RandomPosition take_random_position(int device, int64_t ops);

}  // namespace fuser
