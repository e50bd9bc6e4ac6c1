// Division by an invariant as multiplication: the host side of csrc/device/fast_div.cuh.
#pragma once

#include <cstdint>

#include "base/error.h"

namespace fuser::ir {

// x / divisor == (mul_hi(x, magic) + x) >> shift for 0 <= x < 2^31. Passed to kernels in this form.
struct FastDiv {
  uint32_t divisor, magic, shift;
};

// shift = ceil(log2 divisor) and magic = floor(2^32 (2^shift - divisor) / divisor) + 1, so that
// 2^32 + magic exceeds 2^(32 + shift) / divisor by less than 2^shift / 2^32 of itself: exact for
// every x below 2^32.
inline FastDiv make_fast_div(uint32_t divisor) {
  FUSER_ASSERT(divisor >= 1 && divisor <= (1u << 31), "divisor ", divisor);
  uint32_t shift = 0;
  while ((uint64_t{1} << shift) < divisor) ++shift;
  const uint64_t magic = (((uint64_t{1} << shift) - divisor) << 32) / divisor + 1;
  return {divisor, static_cast<uint32_t>(magic), shift};
}

}  // namespace fuser::ir
