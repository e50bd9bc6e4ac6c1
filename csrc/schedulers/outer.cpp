// Reductions along outer axes. A column is the elements that are reduced together. Each lane of a
// thread accumulates one column, and the threads along ThreadY divide the column among them.
//
// A warp reads 32 neighbouring vectors along the kept axes. The reduced axes are divided over
// ThreadY, the unrolled steps of a thread and, if there are few columns, over the grid. Then the
// last block of each tile merges in a fixed order. A short column with several reduction loops
// stays in registers. A longer one is computed by kernel fission, or is read again.
#include <algorithm>

#include "base/error.h"
#include "cost/tuning.h"
#include "schedule/verify_schedule.h"
#include "schedulers/analysis/coalescing.h"
#include "schedulers/analysis/collapse.h"
#include "schedulers/analysis/reduction_shape.h"
#include "schedulers/analysis/vectorize.h"
#include "schedulers/legal.h"
#include "schedulers/schedulers.h"

namespace fuser::schedulers {

using namespace fusion;
using namespace ir;
using namespace schedule;
using namespace cost::outer;

namespace {

bool takes_arrays(const Problem& p) {
  return std::any_of(p.refined.values.begin(), p.refined.values.end(), [](const Value& v) {
    const auto* r = std::get_if<Reduced>(&v.how);
    return r && row(r->op).amortizes();
  });
}

VectorAxes columns_of(const Problem& p) {
  return vector_axes_of(p, kept_axes(p), [](const Problem& p, const MemoryAccess& a) {
    return (axes_of(p, a) & ~p.reduced) && !is_loaded(a);
  });
}

// Returns the unaligned reads for a kept extent that is not a multiple of the vector length; the
// last vector is partial. Only for long columns without full-rank stores. Lines along the kept axes
// must be adjacent in memory, so that a read past the end of one line reads the next.
AccessSet unaligned_columns(const Problem& p, const VectorAxes& c, SizeHints& hints) {
  if (c.vector == 1 || c.inner.size() != c.axes.size() || reduction_shape_of(p).stores_rows ||
      hints.at_most(extent_of(p, hints.exprs(), reduced_axes(p))) <= resident_rows ||
      hints.at_most(extent_of(p, hints.exprs(), c.axes)) < least_vectors * c.vector)
    return {};
  AccessSet unaligned;
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    if (a.store || !moves_rows(p, a) || is_loaded(a) || !a.in.bounds.empty()) continue;
    if (coefficient(p, a, reduced_axes(p)) != extent_of(p, hints.exprs(), c.axes)) continue;
    Expr along = coefficient(p, a, c.inner);
    const int bytes = c.vector * size_of(a.dtype);
    if (along && along->is_constant(1) && hints.aligned(a.buffer) && bytes >= 4 &&
        bytes <= vector_bytes)
      unaligned.insert(i);
  }
  return unaligned;
}

// Returns the longest vector length to which every line along the kept axes is aligned, for all
// accesses that move complete columns. The last vector may run past the end of the line. 1 if no
// vector length fits or the kept extent is small.
int starting_vector(const Problem& p, const VectorAxes& c, SizeHints& hints) {
  if (c.inner.size() != c.axes.size() ||
      hints.at_most(extent_of(p, hints.exprs(), c.axes)) < least_vectors * c.vector)
    return 1;
  int vector = c.vector;
  const auto fits = [&](const MemoryAccess& a) {
    return !moves_rows(p, a) || is_loaded(a) || can_vector(p, a, c.inner, hints, vector);
  };
  while (vector > 1 && !std::all_of(p.accesses.begin(), p.accesses.end(), fits)) vector /= 2;
  return vector;
}

// Loop structure for columns that are too long for registers.
struct ColumnLoop {
  int threads_y, unroll;
  bool looped;
  int64_t blocks = 0;         // of the grid, 0: as many as there are tiles
  int min_blocks_per_sm = 0;  // resident blocks per processor, 0: the compiler's choice
};

// Inputs of column_loop_of(). A tile is the columns of a block.
struct Columns {
  int64_t length, tiles;
  int threads_x, vector;
  bool unaligned;
};

ColumnLoop column_loop_of(const Problem& p, const ReductionShape& shape, const Device& device,
                          const Columns& c) {
  const bool takes = takes_arrays(p), many_registers = takes || shape.persistent > 1;
  const bool cut = shape.loops == 1 && c.tiles < 4 * device.sms;
  // One block merges the partial results of all blocks of a tile. Larger blocks leave fewer of
  // them.
  const bool large = cut && many_registers && c.threads_x < warp && 4 * c.tiles <= device.sms;
  int threads = large ? 2 * block_threads : block_threads;
  while (threads > 64 && threads / c.threads_x > c.length) threads /= 2;
  ColumnLoop w{.threads_y = std::max(1, threads / c.threads_x)};
  // Stores inside the loop dominate its time. More blocks with fewer steps balance them better.
  const bool stores = cut && shape.stores_rows && !many_registers;
  int most = shape.persistent > 1 || stores ? most_steps / 2 : most_steps;
  if (takes)
    most = std::min(most, std::max(2, taken_elements / c.vector));
  else if (c.unaligned)
    most = std::min(most, unaligned_elements / c.vector);
  const int64_t steps = (c.length + w.threads_y - 1) / w.threads_y;
  w.unroll = static_cast<int>(std::clamp<int64_t>(ceil_pow2(steps), 1, most));
  w.looped = int64_t{w.threads_y} * w.unroll < c.length;
  // The grid is one wave of resident blocks: a second wave would leave most SMs idle. The launch
  // bounds keep registers within it, but for stores, which hide the latency of a second wave.
  const int resident = large ? 1 : many_registers ? 2 : stores ? 8 : 4;
  if (w.looped && cut) {
    w.blocks = resident * device.sms;
    if (!stores && shape.widest <= 4) w.min_blocks_per_sm = resident;  // 8 bytes take two registers
  }
  return w;
}

}  // namespace

MatchResult match_outer(const Problem& p) {
  if (!p.reduced) return refuse("outer-1", "the kernel has no reductions");
  if (p.columns) return refuse("outer-2", "the kernel also reduces its kept axes");
  if (p.order.empty() || (p.reduced >> p.order.back() & 1))
    return refuse("outer-3", "the innermost axis is reduced, not kept");
  return accept;
}

Decision plan_outer(const Problem& p, SizeHints& hints, const Device& device) {
  if (can_transpose_operands(p, hints)) return UseFission{};
  const VectorAxes c = columns_of(p);
  const int64_t length = hints.at_most(extent_of(p, hints.exprs(), reduced_axes(p)));
  const int64_t width = hints.at_most(extent_of(p, hints.exprs(), c.axes));
  int vector = c.vector;
  const auto divides = [&] { return hints.divides(extent_of(p, hints.exprs(), c.inner), vector); };
  const AccessSet unaligned = divides() ? AccessSet() : unaligned_columns(p, c, hints);
  if (!divides() && unaligned.empty()) vector = starting_vector(p, c, hints);
  const AccessSet vectorized =
      unaligned.empty() ? vectorized_accesses(p, ~p.reduced, c.inner, hints, vector) : AccessSet();
  if (vectorized.empty() && unaligned.empty()) vector = 1;
  const bool tail = vector > 1 && !divides();
  const int lane_axes =
      !vectorized.empty() && !tail ? lane_axes_of(p, c.axes, c.inner, hints, vector) : 0;

  ReductionShape shape = reduction_shape_of(p);
  bool single_pass = false;
  // If there are few columns, use narrower tiles (128 bytes along the kept axes), so that more
  // blocks merge in parallel.
  const int64_t vectors = (width + vector - 1) / vector;
  const int threads_x =
      static_cast<int>(std::min<int64_t>(vectors < 8 * warp ? 8 : warp, ceil_pow2(vectors)));
  Place persistent_in = Place::Reload;
  int threads_y, unroll;
  bool looped = false;
  int64_t blocks = 0;
  int min_blocks_per_sm = 0;
  if (shape.loops > 1 && length <= resident_rows) {
    persistent_in = Place::Registers;
    threads_y = static_cast<int>(std::min<int64_t>(8, ceil_pow2((length + 3) / 4)));
    unroll = ceil_pow2((length + threads_y - 1) / threads_y);
  } else {
    if (shape.loops > 1 && p.single_pass) {
      single_pass = true;
      shape = reduction_shape_of(*p.single_pass);
    }
    const int64_t tiles = (width + threads_x * vector - 1) / (threads_x * vector);
    if (shape.loops > 1 && hints.fission() != Fission::None && tiles < 2 * device.sms)
      return UseFission{};
    const ColumnLoop column_loop = column_loop_of(single_pass ? *p.single_pass : p, shape, device,
                                                  {.length = length,
                                                   .tiles = tiles,
                                                   .threads_x = threads_x,
                                                   .vector = vector,
                                                   .unaligned = !unaligned.empty()});
    threads_y = column_loop.threads_y;
    unroll = column_loop.unroll;
    looped = column_loop.looped;
    blocks = column_loop.blocks;
    min_blocks_per_sm = column_loop.min_blocks_per_sm;
  }
  return to_plan(OuterPlan{
      .threads_x = threads_x,
      .threads_y = threads_y,
      .unroll = unroll,
      .vector = vector,
      .looped = looped,
      .persistent_in = static_cast<int64_t>(persistent_in),
      .grid_blocks = blocks,
      .min_blocks_per_sm = min_blocks_per_sm,
      .single_pass = single_pass,
      .tail = tail,
      .lane_axes = lane_axes,
      .vectorized = vectorized,
      .unaligned = unaligned,
  });
}

Schedule schedule_outer(Problem& both, const Plan& plan) {
  const auto fields = typed<OuterPlan>(plan);
  Problem& p = fields.single_pass ? *both.single_pass : both;
  const auto vector = static_cast<int>(fields.vector);
  enum { K, R };
  Schedule s = start_of_reduction(p, fields);
  s.single_pass = fields.single_pass;
  vectorize(s, fields.unaligned, VectorKind::Unaligned, vector);
  LoopNest& nest = s.nests.back();
  nest.lanes.tail = vector > 1 && fields.tail;
  const auto loop = [&](DimId dim, Bind bind, int64_t extent) {
    nest.loops.push_back({.dim = dim, .extent = extent, .bind = bind});
  };
  if (fields.looped) loop(R, Bind::Serial, 0);
  if (fields.grid_blocks) {
    loop(R, Bind::Grid, fields.grid_blocks);
    s.reductions.back().finish = Finish::LastBlock;
  }
  loop(K, Bind::Grid, 0);
  loop(R, Bind::Unroll, fields.unroll);
  loop(R, Bind::ThreadY, fields.threads_y);
  loop(K, Bind::ThreadX, fields.threads_x);
  if (vector > 1) loop(K, Bind::Vector, vector);
  const auto persistent_in = static_cast<Place>(fields.persistent_in);
  for (size_t i = 0; i < p.accesses.size() && persistent_in != Place::Reload; ++i) {
    const MemoryAccess& a = p.accesses[i];
    if (!a.store && moves_rows(p, a) && !is_loaded(a))
      s.stagings.push_back({.access = static_cast<AccessId>(i), .place = persistent_in});
  }
  verify(both, s);
  return s;
}

void check_outer(const Problem&, const Plan& planned, const Plan& wanted) {
  const auto was = typed<OuterPlan>(planned);
  const int64_t x = was.threads_x;
  check_fields(planned, wanted,
               {{"threads_y", 1, most_threads / x},
                {"grid_blocks", was.grid_blocks ? 1 : 0, was.grid_blocks ? 1 << 20 : 0}});
  const auto is = typed<OuterPlan>(wanted);
  const int64_t y = is.threads_y, steps = was.threads_y * was.unroll;
  expect(planned, x * y % warp == 0, text("threads_y=", y),
         text("a multiple of ", std::max<int64_t>(1, warp / x),
              ", because a block consists of whole warps"));
  // Without a loop, threads and steps must cover a column.
  expect(planned, was.looped || y * is.unroll >= steps, text("threads_y * unroll=", y * is.unroll),
         text(steps, " or more, because a block holds a complete column"));
}

}  // namespace fuser::schedulers
