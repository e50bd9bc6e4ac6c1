// Element types: one table (dtypes.def), and promotion as torch does it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace fuser {

enum class DType : uint8_t {
#define FUSER_DTYPE(name, member, torch, device, bytes, kind, compute) name,
#include "ir/dtypes.def"
#undef FUSER_DTYPE
};

enum class Kind : uint8_t { Bool, Int, Float, Complex };

struct DTypeRow {
  const char* member;  // frontend name: "BFloat16"
  const char* torch;   // torch name: "bfloat16"
  const char* device;  // name in kernel text: "bf16"
  int bytes;
  Kind kind;
  DType compute;
};

std::span<const DTypeRow> dtype_rows();
const DTypeRow& row(DType dtype);
inline int size_of(DType dtype) { return row(dtype).bytes; }
inline Kind kind_of(DType dtype) { return row(dtype).kind; }
// uint16, uint32 and uint64, for which torch has few ops.
inline bool is_wide_unsigned(DType dtype) {
  return dtype == DType::UInt16 || dtype == DType::UInt32 || dtype == DType::UInt64;
}
inline DType compute_type(DType dtype) { return row(dtype).compute; }
// complex64 -> float32, complex128 -> float64, others unchanged.
DType real_type(DType dtype);
// float32 -> complex64, float64 -> complex128; real dtypes below float64 give complex64.
DType complex_type(DType dtype);
// The dtype that torch.promote_types gives. float8 with float8 (different) promotes to float32
// here, where torch refuses. Raises DTypeError `promote-1` for a wide unsigned integer with another
// integer.
DType promote_types(DType a, DType b);
// What is left of an integer in an integer dtype or bool, wrapping as the device does it. Other
// dtypes keep it.
int64_t wrap(DType dtype, int64_t value);

}  // namespace fuser
