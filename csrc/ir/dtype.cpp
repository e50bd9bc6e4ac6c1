#include "ir/dtype.h"

#include <algorithm>

#include "base/error.h"

namespace fuser::ir {
namespace {

constexpr DTypeRow rows[] = {
#define FUSER_DTYPE(name, member, torch, device, bytes, kind, compute) \
  {#member, #torch, #device, bytes, Kind::kind, DType::compute},
#include "ir/dtypes.def"
#undef FUSER_DTYPE
};

}  // namespace

std::span<const DTypeRow> dtype_rows() { return rows; }

const DTypeRow& row(DType dtype) { return rows[static_cast<int>(dtype)]; }

DType real_type(DType dtype) {
  if (dtype == DType::Complex64) return DType::Float32;
  if (dtype == DType::Complex128) return DType::Float64;
  return dtype;
}

DType complex_type(DType dtype) {
  if (kind_of(dtype) == Kind::Complex) return dtype;
  return dtype == DType::Float64 ? DType::Complex128 : DType::Complex64;
}

DType promote_types(DType a, DType b) {
  if (a == b) return a;
  if (kind_of(a) > kind_of(b)) std::swap(a, b);  // b has the higher kind
  if (kind_of(b) == Kind::Complex) {
    const bool wide = a == DType::Float64 || a == DType::Complex128 || b == DType::Complex128;
    return wide ? DType::Complex128 : DType::Complex64;
  }
  if (kind_of(a) != kind_of(b)) return b;
  FUSER_CHECK(!is_wide_unsigned(a) && !is_wide_unsigned(b), DType, "promote-1", row(a).torch,
              " and ", row(b).torch, " have no common type\n  hint: cast one to the other's");
  const DType low = std::min(a, b), high = std::max(a, b);
  if (low == DType::UInt8 && high == DType::Int8) return DType::Int16;
  // Two different floats of at most 16 bits: neither holds all values of the other, so torch gives
  // float32.
  if (kind_of(a) == Kind::Float && high <= DType::BFloat16) return DType::Float32;
  return high;
}

int64_t wrap(DType dtype, int64_t v) {
  switch (dtype) {
    case DType::Bool:
      return v != 0;
    case DType::UInt8:
      return static_cast<uint8_t>(v);
    case DType::Int8:
      return static_cast<int8_t>(v);
    case DType::Int16:
      return static_cast<int16_t>(v);
    case DType::Int32:
      return static_cast<int32_t>(v);
    case DType::UInt16:
      return static_cast<uint16_t>(v);
    case DType::UInt32:
      return static_cast<uint32_t>(v);
    default:
      return v;
  }
}

}  // namespace fuser::ir
