// Scalar ops: one row each in ops.def. Frontend, type rules, cost model and codegen use only the
// row.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "ir/dtype.h"

namespace fuser::ir {

// Rules for the result dtype, given the promoted compute dtype of the operands.
enum class ResultRule : uint8_t {
  Same,       // the compute dtype: bf16 + bf16 -> float32, int32 + int32 -> int32
  Float,      // Bool and Int operands become float32 first: exp, truediv
  Predicate,  // computed in the common dtype, returns bool: eq, isnan, logical_and
  Real,       // complex gives the dtype of its real part, other types as Common: abs, real, imag
  Complex,    // two real floats give a complex: complex
  Condition,  // operand 0 is bool, the other operands are selected, in their common type: where
  Common,     // as Same, and the result has the common type, half types too: clamp, neg, ceil
};

// Kinds of compute dtypes that a row accepts, as bits.
enum Accepts : uint8_t {
  kBool = 1,
  kInt = 2,
  kFloat = 4,
  kComplex = 8,
  kUnsigned = 16,  // uint16, uint32 and uint64, which kInt excludes
  kReal = kBool | kInt | kFloat,
  kNumber = kInt | kFloat | kComplex,
  kAny = kBool | kInt | kFloat | kComplex,
};

struct OpRow {
  const char* name;  // frontend and IR name: "add"
  uint8_t arity;     // 1, 2 or 3
  ResultRule rule;
  uint8_t accepts;           // Accepts bits, after ResultRule::Float converted ints to floats
  uint8_t cost;              // issue slots of one float32 result on sm_90; 0 if free
  float ulp;                 // error bound of a float32 result in ULP; 0 = correctly rounded
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
// Returns false if no op has this name.
bool find_op(std::string_view name, Op& op);

// Returns the row `<op>_half`, which replaces `op` if each use of its float32 result is a cast to a
// float of 16 bits or fewer. Its relative error is below 2^-13 (at most an eighth of half a float16
// ULP), and results below 2^-100 may be 0. Returns `op` itself if there is no such row.
Op half_form(Op op);

// Returns the kernel text of `op` computed in `compute`, or nullptr if the row does not accept it.
const char* op_text(Op op, DType compute);

}  // namespace fuser::ir
