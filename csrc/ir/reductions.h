// Reductions: one row each in reductions.def. Nothing else in the compiler knows one by name.
#pragma once

#include <span>
#include <string_view>

#include "ir/ops.h"

namespace fuser {

struct ReductionRow {
  const char* name;  // frontend and IR name: "sum"
  uint8_t operands;  // values per element; behind the first, int64 positions
  uint8_t results;   // fields of the state, in order
  uint8_t accepts;   // Accepts bits of the compute dtype
  const char* combine;
  const char* state;  // "" where a state is one value
};

enum class ReduceOp : uint8_t {
#define FUSER_REDUCTION(name, ...) name,
#include "ir/reductions.def"
#undef FUSER_REDUCTION
};

std::span<const ReductionRow> reduction_rows();
inline const ReductionRow& row(ReduceOp op) { return reduction_rows()[static_cast<int>(op)]; }
// Returns false when no reduction has that name.
bool find_reduction(std::string_view name, ReduceOp& op);

// Dtype of a field of the state of a reduction that is computed in `compute`.
DType result_dtype(ReduceOp op, DType compute, int result);
// Bytes of one state.
int state_bytes(ReduceOp op, DType compute);

}  // namespace fuser
