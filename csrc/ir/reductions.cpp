#include "ir/reductions.h"

#include <algorithm>

namespace fuser::ir {
namespace {

constexpr ReductionRow rows[] = {
#define FUSER_REDUCTION(name, operands, fields, accepts, combine, state, pair, traits) \
  {#name, operands, fields, accepts, combine, state, pair, traits},
#include "ir/reductions.def"
#undef FUSER_REDUCTION
};

}  // namespace

std::span<const ReductionRow> reduction_rows() { return rows; }

bool find_reduction(std::string_view name, ReduceOp& op) {
  const auto found = std::find_if(std::begin(rows), std::end(rows),
                                  [&](const ReductionRow& r) { return r.name == name; });
  if (found == std::end(rows)) return false;
  op = static_cast<ReduceOp>(found - std::begin(rows));
  return true;
}

DType result_dtype(ReduceOp op, DType compute, int result) {
  return row(op).fields[result] == 'i' ? DType::Int64 : compute;
}

int state_bytes(ReduceOp op, DType compute) {
  int bytes = 0, widest = 1;
  for (int i = 0; i < row(op).results(); ++i) {
    const int size = size_of(result_dtype(op, compute, i));
    bytes = (bytes + size - 1) / size * size + size;
    widest = std::max(widest, size);
  }
  return (bytes + widest - 1) / widest * widest;
}

}  // namespace fuser::ir
