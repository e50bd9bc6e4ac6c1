// Reductions: one row each in reductions.def, with its operands, fields, dtypes and device types.
// No other file of the compiler asks for a reduction by name, except to match a pattern of ops.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "ir/ops.h"

namespace fuser::ir {

// Traits of a reduction, as bits.
enum ReductionTraits : uint8_t {
  kPlain = 0,
  // The result is one of the elements. Its method has the dtype of the operand, and no elements are
  // an error.
  kSelects = 1,
  kAmortizes = 2,  // an array of elements costs less than its elements one by one
};

struct ReductionRow {
  const char* name;         // frontend and IR name: "sum"
  uint8_t operands;         // values per element; after the first, int64 positions
  std::string_view fields;  // dtypes of the fields of the state, in order
  uint8_t accepts;          // Accepts bits of the compute dtype
  const char* combine;
  const char* state;       // "" if a state is one value
  std::optional<Op> pair;  // the scalar op that combines two elements
  uint8_t traits;          // ReductionTraits bits

  constexpr int results() const { return static_cast<int>(fields.size()); }
  constexpr bool has_state() const { return *state != '\0'; }
  constexpr bool takes_positions() const { return operands > 1; }
  constexpr bool selects() const { return traits & kSelects; }
  constexpr bool amortizes() const { return traits & kAmortizes; }
  constexpr bool adds() const { return pair == Op::add; }
  constexpr bool multiplies() const { return pair == Op::mul; }
  // True if each element adds a rounding error to the result.
  constexpr bool rounds() const { return adds() || multiplies(); }
};

enum class ReduceOp : uint8_t {
#define FUSER_REDUCTION(name, ...) name,
#include "ir/reductions.def"
#undef FUSER_REDUCTION
};

std::span<const ReductionRow> reduction_rows();
inline const ReductionRow& row(ReduceOp op) { return reduction_rows()[static_cast<int>(op)]; }
// Returns false if no reduction has this name.
bool find_reduction(std::string_view name, ReduceOp& op);

// Returns the dtype of a field of the state of a reduction that is computed in `compute`.
DType result_dtype(ReduceOp op, DType compute, int result);
// Returns the bytes of one state.
int state_bytes(ReduceOp op, DType compute);

}  // namespace fuser::ir
