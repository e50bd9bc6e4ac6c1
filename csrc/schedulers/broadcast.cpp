// Pointwise kernels that read more along their columns than per element: a batch norm with its
// statistics, weights and biases. A thread loads and computes the values of its columns once, keeps
// them in registers, and processes several rows. All loads of the rows precede all stores.
//
// Without this schedule every 16-byte vector of a row needs 128 bytes of float32 statistics from L1
// and their arithmetic, which takes longer than the memory access.
#include <algorithm>

#include "base/error.h"
#include "cost/tuning.h"
#include "schedule/verify_schedule.h"
#include "schedulers/analysis/coalescing.h"
#include "schedulers/analysis/collapse.h"
#include "schedulers/analysis/vectorize.h"
#include "schedulers/legal.h"
#include "schedulers/schedulers.h"

namespace fuser::schedulers {

using namespace fusion;
using namespace ir;
using namespace schedule;
using namespace cost::broadcast;

namespace {

enum { K, R };

struct Columns {
  Dims dims;  // K and R
  int vector = 1;
};

// Collapses all axes into two dims: the innermost axes that all accesses address by one index (K),
// and the remaining axes (R). nullopt if the axes do not collapse or the ratio is too small.
std::optional<Columns> columns_of(const Problem& p) {
  Dims runs = collapse(p, p.order, all_accesses(p));
  if (runs.size() != 2) return std::nullopt;
  Columns c{.dims = {std::move(runs[1]), std::move(runs[0])}};
  AxisSet k = 0, r = 0;
  for (AxisId a : c.dims[K]) k |= AxisSet{1} << a;
  for (AxisId a : c.dims[R]) r |= AxisSet{1} << a;
  int moved = 0, kept = 0, widest = 1;
  for (const MemoryAccess& a : p.accesses) {
    const AxisSet axes = axes_of(p, a);
    const bool element = (axes & k) && (axes & r);
    if (is_loaded(a) || (a.store && !element)) return std::nullopt;
    if (element) {
      moved += size_of(a.dtype);
      widest = std::max(widest, size_of(a.dtype));
    } else if (axes & k) {
      kept += size_of(a.dtype);
    }
  }
  if (kept < least_ratio * moved) return std::nullopt;
  c.vector = std::max(1, vector_bytes / widest);
  while (c.vector > 1 && kept * c.vector / 4 > column_registers) c.vector /= 2;
  return c;
}

}  // namespace

MatchResult match_broadcast(const Problem& p) {
  if (p.reduced) return refuse("broadcast-1", "the kernel has reductions");
  if (!columns_of(p))
    return refuse("broadcast-2", "the kernel reads too little data that is shared by rows");
  return accept;
}

Decision plan_broadcast(const Problem& p, SizeHints& hints, const Device&) {
  const Columns c = *columns_of(p);
  Expr width = extent_of(p, hints.exprs(), c.dims[K]);
  int vector = c.vector;
  AccessSet vectorized;
  if (hints.divides(width, vector))
    vectorized = vectorized_accesses(p, ~AxisSet{0}, c.dims[K], hints, vector);
  if (vectorized.empty()) vector = 1;
  int threads_x = 1;
  while (threads_x < warp && int64_t{threads_x} * vector < hints.at_most(width)) threads_x *= 2;
  return to_plan(BroadcastPlan{
      .threads_x = threads_x,
      .threads_y = block_threads / threads_x,
      .unroll = vector > 1 ? rows_in_flight : 2 * rows_in_flight,
      .vector = vector,
      .reverse_grid = reads_earlier(p),
      .vectorized = vectorized,
  });
}

Schedule schedule_broadcast(Problem& p, const Plan& plan) {
  const auto fields = typed<BroadcastPlan>(plan);
  Schedule s;
  const auto vector = static_cast<int>(fields.vector);
  const int64_t x = fields.threads_x, y = fields.threads_y;
  Columns c = *columns_of(p);
  for (auto& axes : c.dims) s.dims.push_back({.axes = std::move(axes)});
  s.launch = {.threads = static_cast<int>(x * y), .reverse_grid = fields.reverse_grid};
  s.accesses.resize(p.accesses.size());
  vectorize(s, fields.vectorized, VectorKind::Aligned, vector);
  LoopNest& nest = s.nests.emplace_back();
  const auto loop = [&](DimId dim, Bind bind, int64_t extent) {
    nest.loops.push_back({.dim = dim, .extent = extent, .bind = bind});
  };
  loop(R, Bind::Grid, 0);
  loop(K, Bind::Grid, 0);
  loop(R, Bind::Unroll, fields.unroll);
  loop(R, Bind::ThreadY, y);
  loop(K, Bind::ThreadX, x);
  if (vector > 1) loop(K, Bind::Vector, vector);
  verify(p, s);
  return s;
}

void check_broadcast(const Problem&, const Plan& planned, const Plan& wanted) {
  const int64_t x = typed<BroadcastPlan>(planned).threads_x;
  check_fields(planned, wanted, {{"threads_y", 1, most_threads / x}});
  const int64_t y = typed<BroadcastPlan>(wanted).threads_y;
  expect(planned, x * y % warp == 0, text("threads_y=", y),
         text("a multiple of ", std::max<int64_t>(1, warp / x),
              ", because a block consists of whole warps"));
}

}  // namespace fuser::schedulers
