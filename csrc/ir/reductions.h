// Reductions: one row each in reductions.def, with its operands, fields, dtypes and device types.
#pragma once

#include <span>
#include <string_view>

#include "ir/ops.h"

namespace fuser {

struct ReductionRow {
  const char* name;  // frontend and IR name: "sum"
  uint8_t operands;  // values per element; after the first, int64 positions
  uint8_t results;   // fields of the state, in order
  uint8_t accepts;   // Accepts bits of the compute dtype
  const char* combine;
  const char* state;  // "" if a state is one value
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

}  // namespace fuser
