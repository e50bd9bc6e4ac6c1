// Pointwise kernels whose rows have values or conditions in common. Either they read values along
// the columns alone, e.g. the angles of rotary embeddings for all heads. Or their masks and
// coordinates cost more than the elements, e.g. in a pad whose rows are not a multiple of 16 bytes.
// A thread takes equal columns of several rows: common values are loaded and computed once, and the
// step to the next row is one addition. All loads of a thread precede its stores.
//
// If neither pays at the given sizes, then plan_pointwise() plans the kernel.
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
using namespace cost::rows;

namespace {

struct Rows {
  Dims dims;        // outermost first, the columns last
  DimId along = 0;  // dim whose neighbouring rows a thread takes
  int kept = 0;     // bytes per column of the reads that do not vary along that dim
  int loaded = 0;   // bytes per element of the accesses that vary along both dims
  int moved = 0;    // bytes per element of these accesses, each tensor counted once
  int vector = 1;   // vector length: 16 bytes of the widest element
};

std::optional<Rows> rows_of(const Problem& p) {
  Rows r{.dims = collapse(p, p.order, all_accesses(p))};
  const auto dims = static_cast<DimId>(r.dims.size());
  if (dims < 2) return std::nullopt;
  const auto over = [&](const MemoryAccess& a, DimId d) {
    const AxisSet axes = axes_of(p, a);
    return std::any_of(r.dims[d].begin(), r.dims[d].end(),
                       [&](AxisId axis) { return (axes >> axis & 1) != 0; });
  };
  for (const MemoryAccess& a : p.accesses) {
    if (is_loaded(a)) return std::nullopt;
    for (DimId d = 0; a.store && d < dims; ++d)
      if (!over(a, d)) return std::nullopt;
  }
  r.along = dims - 2;
  for (DimId d = dims - 1; d-- > 0;) {
    int kept = 0;
    for (const MemoryAccess& a : p.accesses)
      if (over(a, dims - 1) && !over(a, d)) kept += size_of(a.dtype);
    if (kept > r.kept) {
      r.kept = kept;
      r.along = d;
    }
  }
  std::vector<bool> seen(p.buffers.size(), false);
  for (const MemoryAccess& a : p.accesses) {
    if (!over(a, dims - 1) || !over(a, r.along)) continue;
    r.loaded += size_of(a.dtype);
    if (!seen[a.buffer]) r.moved += size_of(a.dtype);
    seen[a.buffer] = true;
  }
  r.vector = pointwise_vector(p);
  return r;
}

bool keeps_much(const Rows& r) { return r.kept >= least_ratio * r.moved; }

// Returns the shortest vector that pays. Half-filled vectors pay if masks cost more than elements.
int least_vector(const Problem& p, const Rows& r) { return is_conditional(p) ? 2 : r.vector; }

// Returns the longest vector length that divides a row and with which every store is vectorized; 1
// if vectors do not pay.
int vector_of(const Problem& p, const Rows& r, SizeHints& hints) {
  const std::vector<AxisId>& columns = r.dims.back();
  for (int vector = r.vector; vector >= std::max(2, least_vector(p, r)); vector /= 2) {
    const bool stored =
        std::all_of(p.accesses.begin(), p.accesses.end(), [&](const MemoryAccess& a) {
          return !a.store || can_vector(p, a, columns, hints, vector);
        });
    if (stored && hints.divides(extent_of(p, hints.exprs(), columns), vector)) return vector;
  }
  return 1;
}

}  // namespace

MatchResult match_rows(const Problem& p) {
  if (p.reduced) return refuse("rows-1", "the kernel has reductions");
  const auto r = rows_of(p);
  if (!r || (!is_conditional(p) && !keeps_much(*r)))
    return refuse("rows-2", "the rows of the kernel share too few values");
  return accept;
}

Decision plan_rows(const Problem& p, SizeHints& hints, const Device&) {
  const Rows r = *rows_of(p);
  const std::vector<AxisId>& columns = r.dims.back();
  const int vector = vector_of(p, r, hints);
  if (vector == 1 || (vector == r.vector && !keeps_much(r)))
    return Delegate{plan_pointwise(p, p.order, hints), p.order};
  const int64_t most_columns = hints.at_most(extent_of(p, hints.exprs(), columns));
  const int64_t most_rows = hints.at_most(extent_of(p, hints.exprs(), r.dims[r.along]));
  int x = 1, y = 1;
  int unroll = vector == r.vector ? rows_that_keep : rows_of_a_vector * r.vector / vector;
  while (x < block_threads && int64_t{x} * vector < most_columns) x *= 2;
  while (unroll > 1 &&
         (unroll > most_rows || (unroll * r.loaded + r.kept) * vector / 4 > live_registers))
    unroll /= 2;
  while (x * y < block_threads && int64_t{y} * unroll < most_rows) y *= 2;
  return to_plan(RowsPlan{
      .threads_x = x,
      .threads_y = y,
      .threads_z = std::max(1, warp / (x * y)),
      .unroll = unroll,
      .vector = vector,
      .vectorized = vectorized_accesses(p, ~AxisSet{0}, columns, hints, vector),
      .uniform_select = uniform_select(p, columns, hints, vector),
  });
}

Schedule schedule_rows(Problem& p, const Plan& plan) {
  const auto fields = typed<RowsPlan>(plan);
  Rows r = *rows_of(p);
  Schedule s;
  const int64_t x = fields.threads_x, y = fields.threads_y, z = fields.threads_z;
  const auto vector = static_cast<int>(fields.vector);
  // Limits the kernel to one resident block per SM for the register allocation. By default the
  // compiler serializes the loads, or spills, to fit one more block.
  s.launch = {.threads = static_cast<int>(x * y * z),
              .min_blocks_per_sm = 1,
              .reverse_grid = reads_earlier(p)};
  s.accesses.resize(p.accesses.size());
  vectorize(s, fields.vectorized, VectorKind::Aligned, vector);
  const auto columns = static_cast<DimId>(r.dims.size()) - 1;
  // The dim for the remaining threads of a block: a third dim, or the rows.
  const DimId rest = columns < 2 ? r.along : r.along == columns - 1 ? columns - 2 : columns - 1;
  LoopNest& nest = s.nests.emplace_back();
  nest.lanes.uniform_select = fields.uniform_select;
  const auto loop = [&](DimId dim, Bind bind, int64_t extent) {
    if (extent != 1) nest.loops.push_back({.dim = dim, .extent = extent, .bind = bind});
  };
  for (DimId d = 0; d <= columns; ++d) {
    s.dims.push_back({.axes = std::move(r.dims[d])});
    loop(d, Bind::Grid, 0);
  }
  loop(rest, Bind::ThreadY, z);
  loop(r.along, Bind::Unroll, fields.unroll);
  loop(r.along, Bind::ThreadY, y);
  nest.loops.push_back({.dim = columns, .extent = x, .bind = Bind::ThreadX});
  loop(columns, Bind::Vector, vector);
  for (size_t v = 0; v < p.refined.values.size(); ++v)
    nest.computed.push_back(static_cast<ValueId>(v));
  for (size_t i = 0; i < p.refined.stores.size(); ++i) nest.stores.push_back(static_cast<int>(i));
  verify(p, s);
  return s;
}

void check_rows(const Problem&, const Plan& planned, const Plan& wanted) {
  check_fields(planned, wanted);
  const auto is = typed<RowsPlan>(wanted);
  const int64_t threads = is.threads_x * is.threads_y * is.threads_z;
  expect(planned, threads % warp == 0 && threads <= most_threads,
         text("threads_y=", is.threads_y, ", threads_z=", is.threads_z),
         text(is.threads_x, " * threads_y * threads_z a multiple of ", warp, " up to ",
              most_threads, ", because a block consists of whole warps"));
}

}  // namespace fuser::schedulers
