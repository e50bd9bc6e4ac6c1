// Scalar ops: one row each in ops.def. Nothing else in the compiler knows an op by name.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "ir/dtype.h"

namespace fuser {

// How the result dtype of an op follows from the promoted compute dtype of its operands.
enum class ResultRule : uint8_t {
  Same,       // the compute dtype: bf16 + bf16 -> float32, int32 + int32 -> int32
  Float,      // Bool and Int operands become float32 first: exp, truediv
  Predicate,  // computed in the common dtype, gives bool: eq, isnan, logical_and
  Real,       // complex gives its real part's dtype, others Same: abs, real, imag
  Complex,    // two real floats give a complex: complex
  Condition,  // operand 0 is bool, the rest are only chosen, in their common type: where
  Bounded,    // Same, and the result has the common type, half types too: clamp, threshold
};

// Which kinds of compute dtype a row accepts, as bits.
enum Accepts : uint8_t {
  kBool = 1,
  kInt = 2,
  kFloat = 4,
  kComplex = 8,
  kUnsigned = 16,  // uint16, uint32 and uint64, which are no kInt
  kReal = kBool | kInt | kFloat,
  kNumber = kInt | kFloat | kComplex,
  kAny = kBool | kInt | kFloat | kComplex,
};

struct OpRow {
  const char* name;  // frontend and IR name: "add"
  uint8_t arity;     // 1, 2 or 3
  ResultRule rule;
  uint8_t accepts;           // Accepts bits, after ResultRule::Float made ints floats
  uint8_t cost;              // issue slots of one float32 result on sm_90; 0 for free
  float ulp;                 // bound on the error of a float32 result; 0 = correctly rounded
  const char* real_text;     // for float32/float64, e.g. "$0 + $1", "exp_($0)"; nullptr = none
  const char* int_text;      // for integers and bool
  const char* complex_text;  // for complex64/complex128
};

enum class Op : uint8_t {
#define FUSER_OP(name, ...) name,
#include "ir/ops.def"
#undef FUSER_OP
};

std::span<const OpRow> op_rows();
inline const OpRow& row(Op op) { return op_rows()[static_cast<int>(op)]; }
// nullptr-free lookup: returns false when no op has that name.
bool find_op(std::string_view name, Op& op);

// The row `<op>_half`: what stands for `op` where each use of its float32 result is a cast to a
// float of 16 bits or fewer. Its relative error is below 2^-13 (an eighth of half a float16 ULP at
// most), and results below 2^-100 may be 0. `op` itself where there is no such row.
Op half_form(Op op);

// The kernel text of `op` computed in `compute`, or nullptr where the row does not accept it.
const char* op_text(Op op, DType compute);

}  // namespace fuser
