// Random number positions of a run, taken from torch's default generators.
#pragma once

#include <cstdint>

namespace fuser::bridge {

struct RandomPosition {
  int64_t seed = 0, offset = 0;
  // During capture of a CUDA graph: addresses whose values are added when the graph runs. Else
  // nullptr.
  const int64_t *seed_at = nullptr, *offset_at = nullptr;
};

// Reserves `ops` random ops in the default generator of the device, under its lock. On a GPU,
// returns the generator's seed and offset, and advances the offset by 4 per op, like torch's own
// ops. The CPU's generator has no offset: the seed is a random number, and one number is drawn per
// op.
//
// During capture of the device's current stream into a CUDA graph, raises Unsupported
// "rng-capture-1" if torch does not provide the addresses of its generator's state.
RandomPosition take_random_position(int device, int64_t ops);

}  // namespace fuser::bridge
