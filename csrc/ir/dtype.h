// Element types: one table (dtypes.def), and type promotion as in torch.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace fuser::ir {

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
// True for uint16, uint32 and uint64, for which torch has few ops.
inline bool is_wide_unsigned(DType dtype) {
  return dtype == DType::UInt16 || dtype == DType::UInt32 || dtype == DType::UInt64;
}
inline DType compute_type(DType dtype) { return row(dtype).compute; }
// Returns float32 for complex64 and float64 for complex128; other dtypes are unchanged.
DType real_type(DType dtype);
// Returns complex64 for float32 and complex128 for float64; real dtypes below float64 give
// complex64.
DType complex_type(DType dtype);
// Returns the dtype that torch.promote_types gives. Two different float8 types promote to float32
// here, while torch rejects them. Raises DTypeError `promote-1` for a wide unsigned integer with
// another integer.
DType promote_types(DType a, DType b);
// Returns the value wrapped to an integer dtype or bool, as on the device. Other dtypes keep the
// value.
int64_t wrap(DType dtype, int64_t value);

}  // namespace fuser::ir
