// Reductions along the innermost axis: one group of threads per row.
//
// A row with several reduction loops is persistent: it stays in registers, in shared memory, or
// split over the blocks of a cluster. Clusters are persistent if operands common to all rows
// outweigh the row. The longest rows are reloaded, through L2. If the row length is not a multiple
// of the vector length, loops are peeled: they start at the first line-aligned element of the row,
// so that vectors are aligned and a warp touches as few lines as possible. The elements at both
// ends have a thread each. Few rows are split over the grid, and the last block of each row merges.
//
// Thread and step counts are tuned for rows of 256 to 262,144 elements. They aim at 16 to 64 bytes
// in flight per thread and at two or more blocks per SM.
#include <algorithm>
#include <bit>

#include "base/error.h"
#include "cost/model.h"
#include "schedule/verify_schedule.h"
#include "schedulers/analysis/coalescing.h"
#include "schedulers/analysis/collapse.h"
#include "schedulers/analysis/packed_rows.h"
#include "schedulers/analysis/placement.h"
#include "schedulers/analysis/reduction_shape.h"
#include "schedulers/analysis/staging_tile.h"
#include "schedulers/analysis/vectorize.h"
#include "schedulers/legal.h"
#include "schedulers/schedulers.h"

namespace fuser::schedulers {

using namespace fusion;
using namespace ir;
using namespace schedule;
using namespace cost::inner;

namespace {

// Returns whether the access moves elements of the rows themselves. Weights, which vary over R
// alone, and values per row, which vary over K alone, are not rows.
bool is_row(const Problem& p, const MemoryAccess& a) {
  const AxisSet axes = axes_of(p, a);
  const bool single = kept_axes(p).empty();
  return (axes & p.reduced) && !is_loaded(a) && (single || (axes & ~p.reduced));
}

VectorAxes rows_of(const Problem& p) { return vector_axes_of(p, reduced_axes(p), is_row); }

// Returns the start of a row modulo `unit` elements. All vectorized accesses of a peeled loop must
// agree modulo the vector length.
Expr peel_of(const Problem& p, Exprs& exprs, const MemoryAccess& a, int unit) {
  if (!a.strides) return nullptr;
  return exprs.mod(offset_along(exprs, a, kept_axes(p)), exprs.constant(unit));
}

// Returns the elements of a memory line at which the loops of a peeled row start, so that warps
// move complete lines. A line is 128 bytes of the widest type, or less if the smallest block has
// fewer threads than a line has elements.
int line_of(int vector) { return std::min(8 * vector, 2 * warp); }

// Returns the vectorized accesses of a peeled loop, and in `peel` the start of their rows modulo
// the vector length. Empty if no access can move vectors.
AccessSet peeled(const Problem& p, const VectorAxes& r, SizeHints& hints, Expr& peel) {
  AccessSet vectorized;
  peel = nullptr;
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    const AxisSet axes = axes_of(p, a);
    if (!(axes & p.reduced)) continue;
    // A peeled loop has only the linear index of its row, which coordinates must not divide.
    if (is_loaded(a) || !coefficient(p, a, r.axes)) return {};
    if (!coefficient(p, a, r.axes)->is_constant(1) || !hints.aligned(a.buffer)) continue;
    Expr mine = peel_of(p, hints.exprs(), a, r.vector);
    if (!peel && ((axes & ~p.reduced) || kept_axes(p).empty())) peel = mine;
    if (mine == peel) vectorized.insert(i);
  }
  return peel ? vectorized : AccessSet();
}

bool is_linear(const Problem& p, const VectorAxes& r) {
  return std::all_of(p.accesses.begin(), p.accesses.end(), [&](const MemoryAccess& a) {
    return !(axes_of(p, a) & p.reduced) || (!is_loaded(a) && coefficient(p, a, r.axes));
  });
}

bool takes_positions(const Problem& p) {
  return std::any_of(p.refined.values.begin(), p.refined.values.end(), [](const Value& v) {
    const auto* r = std::get_if<Reduced>(&v.how);
    return r && row(r->op).takes_positions();
  });
}

bool has_coordinates(const Problem& p) {
  return std::any_of(p.refined.values.begin(), p.refined.values.end(), [&](const Value& v) {
    const auto* read = std::get_if<Read>(&v.how);
    return (std::holds_alternative<Coordinate>(v.how) || std::holds_alternative<Select>(v.how) ||
            (read && !read->in.bounds.empty())) &&
           (v.axes & p.reduced);
  });
}

// Returns the unaligned reads: neighbouring elements that are not at multiples of a vector. Two
// aligned vectors and a shift produce each of their vectors.
AccessSet unaligned(const Problem& p, const VectorAxes& r, SizeHints& hints,
                    const AccessSet& vectorized) {
  AccessSet out;
  if (vectorized.empty()) return out;
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    if (a.store || !(axes_of(p, a) & p.reduced) || is_loaded(a) || vectorized.contains(i)) continue;
    if (!a.in.bounds.empty()) continue;
    Expr along = coefficient(p, a, r.axes);
    if (along && along->is_constant(1) && hints.aligned(a.buffer) &&
        r.vector * size_of(a.dtype) >= 4 && r.vector * size_of(a.dtype) <= vector_bytes)
      out.insert(i);
  }
  return out;
}

// Returns whether all persistent reads can be copied to shared memory asynchronously.
bool copied(const Problem& p, const AccessSet& vectorized, int vector) {
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    if (a.store || !moves_rows(p, a) || is_loaded(a)) continue;
    if (!vectorized.contains(i) || vector * size_of(a.dtype) < 4) return false;
  }
  return true;
}

// Returns the streaming accesses: complete rows that bypass L1. Copies of rows into shared memory
// bypass it in any case.
AccessSet streaming_of(const Problem& p, RowPlacement::Streaming streaming) {
  AccessSet out;
  if (streaming == RowPlacement::Streaming::None) return out;
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    const bool wanted = a.store || streaming == RowPlacement::Streaming::Rows;
    if (wanted && moves_rows(p, a) && !is_loaded(a)) out.insert(i);
  }
  return out;
}

const Problem& used(const Problem& p, bool single_pass) { return single_pass ? *p.single_pass : p; }
Problem& used(Problem& p, bool single_pass) { return single_pass ? *p.single_pass : p; }

// Returns the shape of the single-pass form if the problem has one, else of the problem. The
// single-pass form may store in its last phase a value that the two-pass form stores in an earlier
// one, e.g. x - mean(x) next to var(x).
ReductionShape shortest_of(const Problem& p) {
  return reduction_shape_of(used(p, p.single_pass != nullptr));
}

// The choices for the rows, made step by step; the plan lists them.
struct Rows {
  VectorAxes vector_axes;
  ReductionShape shape, shortest;
  int64_t length = 0, count = 0;
  int64_t vectors = 0;  // vectors per row
  int vector = 1;
  AccessSet vectorized;    // vectorized accesses
  AccessSet unaligned;     // unaligned reads
  bool peel = false;       // True if the row length is not a multiple of the vector length
  bool stays = false;      // True if a row has several reduction loops and can be persistent
  bool busy = false;       // True if issue slots dominate the memory time
  bool repeats = false;    // True if so, or if recomputed values are worth a register
  bool positions = false;  // True if a partial result holds a position next to its element
  RowPlacement on;         // placement of the row
  bool single_pass = false;
  // True if a loop runs over the row; True if a loop runs over rows in shared memory.
  bool looped = false, smem_unroll = false;
  bool split = false;       // True if rows are split over the grid
  AccessSet packed;         // accesses of packed rows, which cross shared memory
  int threads_y = 0;        // rows per block at once
  int rows_per_thread = 0;  // rows per thread, of rows in shared memory
  StagingTile tile;         // staging tile of uncoalesced operands
};

// Chooses the vectorized accesses, and whether loops are peeled.
Rows rows_to_plan(const Problem& p, SizeHints& hints) {
  Rows o{.vector_axes = rows_of(p), .shape = reduction_shape_of(p), .shortest = shortest_of(p)};
  const VectorAxes& r = o.vector_axes;
  o.length = hints.at_most(extent_of(p, hints.exprs(), r.axes));
  o.count = hints.at_most(extent_of(p, hints.exprs(), kept_axes(p)));
  if (r.vector > 1 && hints.divides(extent_of(p, hints.exprs(), r.inner), r.vector)) {
    o.vectorized = vectorized_accesses(p, p.reduced, r.inner, hints, r.vector);
  } else if (r.vector > 1 && r.complete && !has_coordinates(p) && o.length > 4 * r.vector * warp) {
    Expr unused;
    o.vectorized = peeled(p, r, hints, unused);
    o.peel = !o.vectorized.empty();
  }
  o.vector = o.vectorized.empty() ? 1 : r.vector;
  o.vectors = (o.length + o.vector - 1) / o.vector;
  o.unaligned = unaligned(p, r, hints, o.vectorized);
  // Use the single-pass form if no store depends on both phases, because it combines only once. Not
  // for short rows: combining its larger partial results costs more than a second loop over
  // registers.
  o.single_pass = p.single_pass && !o.shape.stores_last && o.vectors > 16 * warp;
  o.stays = (o.single_pass ? o.shortest : o.shape).loops > 1;
  const RowWork work = row_work(p);
  o.busy = o.stays && cost::time_of(work.bytes, work.slots) > cost::time_of(work.bytes, 0.0);
  o.repeats = o.busy || (o.stays && work.again >= repeated * cost::time_of(work.bytes, 0.0));
  o.positions = takes_positions(p);
  return o;
}

// Plans packed rows, for rows without vectors of their own. Returns false if rows are not packed.
bool in_packed_rows(const Problem& p, SizeHints& hints, const Device& device, Rows& o) {
  if (!o.vectorized.empty()) return false;
  const PackedRows s = packed_rows_of(p, o.vector_axes, hints, device, o.length, o.count);
  if (s.accesses.empty()) return false;
  o.packed = s.accesses;
  o.rows_per_thread = s.rows_per_thread;
  o.threads_y = s.threads_y;
  o.vector = s.vector;
  if (s.vector > 1)
    o.vectorized = vectorized_accesses(p, p.reduced, o.vector_axes.inner, hints, s.vector);
  o.unaligned = {};
  o.single_pass = false;  // loops over shared memory cost little
  o.looped = o.smem_unroll = true;
  o.on = {.persistent_in = Place::Shared, .threads_x = s.threads_x, .unroll = s.unroll};
  return true;
}

// Chooses the threads and steps of a row in registers.
void share_out(Rows& o) {
  const int64_t vectors = o.vectors;
  const bool odd = o.peel && vectors > 8 * warp && vectors <= peeled_steps * 256;
  int& x = o.on.threads_x;
  if (o.vector == 1 && vectors <= 32 * warp) {
    for (x = 1; x * elements < vectors;) x *= elements;
  } else if (vectors <= 2 * warp) {
    // Two vectors per thread halve the partial results to combine and double the bytes in flight.
    // Exception: if a stored row has at most two vectors, neighbouring threads must store
    // neighbouring vectors.
    const bool one = vectors <= 2 && o.shape.stores_rows;
    x = one ? ceil_pow2(vectors) : std::max(1, ceil_pow2(vectors) / 2);
  } else if (odd) {
    x = vectors <= peeled_steps * 128 ? 128 : 256;
  } else if (vectors <= 16 * warp) {  // two to four vectors per thread
    x = ceil_pow2(vectors) / 2;
  } else {
    x = vectors <= 32 * warp ? 256 : 512;
    // Combining elements with positions takes as many instructions per step as three elements, so
    // half as many threads are faster.
    if (o.positions && !o.peel) x /= 2;
  }
  int& unroll = o.on.unroll;
  unroll = static_cast<int>(((o.peel ? vectors : ceil_pow2(vectors)) + x - 1) / x);
  // Rows of few elements share kernels, and so do peeled rows in registers.
  if (o.vector == 1)
    unroll = std::max(unroll, elements);
  else if (odd)
    unroll = peeled_steps;
}

// Chooses the placement of a row with several reduction loops.
void choose_placement(const Problem& p, const Device& device, Rows& o) {
  if (!o.stays) {
    o.on.persistent_in = Place::Reload;
    return;
  }
  const RowTraits row = {.vectors = o.vectors,
                         .vector = o.vector,
                         .busy = o.busy,
                         .peel = o.peel,
                         .unaligned_reads = o.unaligned.count(),
                         .can_copy = o.vector > 1 && copied(p, o.vectorized, o.vector),
                         .linear = is_linear(p, o.vector_axes)};
  o.on = place_row(device, o.shape, row, o.on);
  if (p.single_pass && o.on.waits) o.single_pass = true;
}

// Plans a staging tile for uncoalesced operands, with the row itself in registers. Returns false if
// the operands are small or do not fit.
bool beside_tile(const Problem& p, SizeHints& hints, const Device& device, Rows& o) {
  if (o.vector == 1 || o.peel || !has_uncoalesced(p, hints)) return false;
  Rows t = o;
  const int64_t bytes = std::min(device.shared_per_sm / resident_tiles, device.shared_per_block);
  t.tile = staging_tile_of(p, hints,
                           {.length = o.length,
                            .count = o.count,
                            .tiles = int64_t{tile_waves} * device.sms,
                            .bytes = bytes,
                            .most_bytes = bytes});
  if (t.tile.accesses.empty()) return false;
  for (size_t i = 0; i < p.accesses.size(); ++i)
    if (!p.accesses[i].store && t.tile.accesses.contains(i)) --t.shape.persistent;
  choose_placement(p, device, t);
  const bool reads_again = t.stays && t.on.persistent_in != Place::Registers;
  if (reads_again || t.on.cluster > 1 || t.vectors > most_tile_steps * warp) return false;
  t.on.threads_x = threads_beside_tile(t.vectors);
  t.on.unroll = static_cast<int>((t.vectors + t.on.threads_x - 1) / t.on.threads_x);
  const int threads = t.tile.bytes > large_tile ? 2 * tile_threads : tile_threads;
  t.threads_y = std::min(t.tile.rows, threads / t.on.threads_x);
  t.rows_per_thread = t.tile.rows / t.threads_y;
  t.on.streaming = RowPlacement::Streaming::None;
  o = t;
  return true;
}

// Handles few long rows, which would leave SMs idle with one block per row. If the kernel has one
// reduction loop, then the rows are split over the grid. Else it returns false if kernel fission
// with a kernel per loop is preferred. The host executor prefers fission for any number of long
// rows: a thread that meets others in a loop is a fiber, and switching costs more than loads.
bool few_rows_fit(const Problem& p, const SizeHints& hints, const Device& device, Rows& o) {
  const int rows_a_block = std::max(1, block_threads / o.on.threads_x);
  const int64_t blocks = (o.count + rows_a_block - 1) / rows_a_block * o.on.cluster;
  const bool fission =
      o.shortest.loops > 1 && hints.fission() != Fission::None && o.length > 1 << 16;
  if (device.kind == Device::Kind::Emulated && fission) return false;
  if (blocks >= device.sms || o.length < grid_row) return true;
  if (o.shortest.loops > 1) return !fission;
  o.single_pass = p.single_pass != nullptr;
  o.split = true;
  o.on.persistent_in = Place::Reload;
  o.on.cluster = 1;
  o.on.threads_x = 256;
  return true;
}

// Chooses the loops over rows that are reloaded or in shared memory.
void loop_over(const Problem& p, Rows& o) {
  if (o.on.persistent_in == Place::Reload) {
    o.on.min_blocks_per_sm = 0;
    o.on.num_stages = 0;
    o.on.streaming = RowPlacement::Streaming::None;
    o.single_pass = o.single_pass || (o.stays && p.single_pass != nullptr);
    // Four steps in flight suffice if several tensors are read, or if a single-pass reduction
    // accumulates whole vectors.
    const bool several = o.vector > 1 && (o.shape.persistent > 1 || (o.single_pass && !o.split));
    const int most = several ? 4 : 8;
    if (o.on.unroll > most || o.split) {
      o.looped = true;
      o.on.unroll = o.split ? most : 4;
      if (o.peel && o.single_pass) o.on.threads_x = 256;
    }
  } else if (o.on.persistent_in == Place::Shared && !o.on.num_stages) {
    o.looped = o.smem_unroll = true;  // as many iterations as the row has steps
    const bool long_parts = o.on.cluster >= 8 && (o.peel || o.single_pass);
    if (long_parts) o.on.threads_x = 256;
    // Unroll little, because more resident blocks use the registers better. Exception: peeled rows
    // of 4-byte elements with two unaligned reads per step wait for these loads, and unroll three
    // steps.
    const bool waits = long_parts && o.unaligned.count() > 1 && o.vector * 4 <= vector_bytes;
    o.on.unroll = waits ? 3 : o.peel || o.on.threads_x == most_threads ? 1 : 2;
  }
}

// Returns whether values that a later loop would recompute are cached next to the row.
bool keeps(const Problem& p, const Rows& o) {
  if (!o.repeats || o.on.persistent_in != Place::Registers || o.vector == 1 || o.peel || o.looped)
    return false;
  const auto again = static_cast<int>(computed_again(used(p, o.single_pass)).size());
  return again && again * o.on.unroll * o.vector <= cost::placement::register_elements;
}

int64_t blocks_of(const Device& device, const Rows& o) {
  if (o.split) return grid_waves * device.sms;
  if (o.on.num_stages)
    return resident_clusters(device, o.on.cluster) * o.on.cluster * o.on.min_blocks_per_sm;
  return 0;
}

}  // namespace

MatchResult match_inner(const Problem& p) {
  if (!p.reduced) return refuse("inner-1", "the kernel has no reductions");
  if (p.columns) return refuse("inner-2", "the kernel also reduces its kept axes");
  if (!p.order.empty() && !(p.reduced >> p.order.back() & 1))
    return refuse("inner-3", "the innermost axis is kept, not reduced");
  return accept;
}

Decision plan_inner(const Problem& p, SizeHints& hints, const Device& device) {
  Rows o = rows_to_plan(p, hints);
  if (!in_packed_rows(p, hints, device, o)) {
    share_out(o);
    if (!beside_tile(p, hints, device, o)) {
      if (can_transpose_operands(p, hints)) return UseFission{};
      choose_placement(p, device, o);
      if (!few_rows_fit(p, hints, device, o)) return UseFission{};
      loop_over(p, o);
    }
  }
  if (!o.threads_y) o.threads_y = std::max(1, block_threads / o.on.threads_x);
  const VectorAxes& r = o.vector_axes;
  const int lane_axes =
      o.vector > 1 && !o.peel ? lane_axes_of(p, r.axes, r.inner, hints, o.vector) : 0;
  return to_plan(InnerPlan{
      .threads_x = o.on.threads_x,
      .threads_y = o.threads_y,
      .unroll = o.on.unroll,
      .vector = o.vector,
      .looped = o.looped,
      .smem_unroll = o.smem_unroll,
      .persistent_in = static_cast<int64_t>(o.on.persistent_in),
      .cluster_size = o.on.cluster,
      .num_stages = o.on.num_stages,
      .grid_blocks = blocks_of(device, o),
      .min_blocks_per_sm = o.on.min_blocks_per_sm,
      .streaming = streaming_of(p, o.on.streaming),
      .packed = o.packed,
      .rows_per_thread = o.rows_per_thread,
      .staged = o.tile.accesses,
      .rows_per_vector = o.tile.rows_per_vector,
      .single_pass = o.single_pass,
      .cache_computed = keeps(p, o),
      .peel = o.peel,
      .lane_axes = lane_axes,
      .vectorized = o.vectorized,
      .unaligned = o.unaligned,
  });
}

Schedule schedule_inner(Problem& both, const Plan& plan) {
  const auto fields = typed<InnerPlan>(plan);
  Problem& p = used(both, fields.single_pass);
  const int vector = static_cast<int>(fields.vector);
  const int stages = static_cast<int>(fields.num_stages);
  const int64_t blocks = fields.grid_blocks;
  enum { K, R };
  Schedule s = start_of_reduction(p, fields);
  s.single_pass = fields.single_pass;
  for (size_t i = 0; i < p.accesses.size(); ++i)
    if (fields.streaming.contains(i)) s.accesses[i].cache = CachePolicy::Streaming;
  if (fields.cache_computed)
    for (ValueId v : computed_again(p)) s.stagings.push_back({.value = v});
  LoopNest& nest = s.nests.back();
  nest.lanes.tail = vector > 1 && fields.peel;
  for (size_t i = 0; nest.lanes.tail && i < p.accesses.size(); ++i)
    if (s.accesses[i].kind == VectorKind::Aligned && p.accesses[i].strides &&
        axes_of(p, p.accesses[i]) & ~p.reduced) {  // not for a single row
      s.dims[R].line = {.access = static_cast<AccessId>(i), .elements = line_of(vector)};
      break;
    }
  vectorize(s, fields.unaligned, VectorKind::Unaligned, vector);
  const auto loop = [&](DimId dim, Bind bind, int64_t extent, int unroll = 0) {
    nest.loops.push_back({.dim = dim, .extent = extent, .bind = bind, .unroll = unroll});
  };
  if (fields.looped) loop(R, Bind::Serial, 0, static_cast<int>(fields.smem_unroll));
  if (stages) loop(K, Bind::Serial, 0);
  loop(K, Bind::Grid, stages ? std::max<int64_t>(1, blocks / fields.cluster_size) : 0);
  if (fields.rows_per_thread > 1) loop(K, Bind::Serial, fields.rows_per_thread);
  if (blocks && !stages) {
    loop(R, Bind::Grid, blocks);
    s.reductions.back().finish = Finish::LastBlock;
  }
  loop_along_rows(nest, fields);
  const auto persistent_in = static_cast<Place>(fields.persistent_in);
  stage_tiles(p, s, fields.staged, fields.rows_per_vector, false);
  for (size_t i = 0; i < p.accesses.size() && persistent_in != Place::Reload; ++i) {
    const MemoryAccess& a = p.accesses[i];
    if (fields.staged.contains(i)) continue;
    if (fields.packed.contains(i))
      s.stagings.push_back({.access = static_cast<AccessId>(i),
                            .place = persistent_in,
                            .shape = StagingShape::PackedRows});
    else if (fields.packed.empty() && !a.store && moves_rows(p, a) && !is_loaded(a))
      s.stagings.push_back({.access = static_cast<AccessId>(i),
                            .place = persistent_in,
                            .stages = persistent_in == Place::Shared ? std::max(1, stages) : 1});
  }
  verify(both, s);
  return s;
}

void check_inner(const Problem& p, const Plan& planned, const Plan& wanted) {
  const auto was = typed<InnerPlan>(planned), is = typed<InnerPlan>(wanted);
  const int64_t x = was.threads_x, y = was.threads_y;
  const bool packed = !was.packed.empty(), alone = was.cluster_size > 1;
  // Each element of a peeled row that no vector holds has a thread: at most a line and two vectors.
  const int64_t least = !was.peel ? 1 : was.looped ? std::min<int64_t>(3 * warp, x) : x;
  AccessSet streaming = was.streaming;
  streaming |= streaming_of(used(p, was.single_pass), RowPlacement::Streaming::Rows);
  check_subset(planned, "streaming", was.streaming, is.streaming, streaming);
  // Packed rows of neighbouring threads are a power of two apart. The blocks of a cluster combine
  // all of their threads for one row.
  Limits threads_y{"threads_y", 1, most_threads};
  if (packed)
    threads_y = {"threads_y", 1, 2 * y, FieldRange::Values::Power,
                 "rows of neighbouring threads are a power of two apart"};
  if (alone) threads_y = {"threads_y", 1, 1, {}, "all threads of a cluster combine for one row"};
  check_fields(
      planned, wanted,
      {{"cache_computed", 0, was.cache_computed},
       {"threads_x",
        least,
        most_threads,
        {},
        least > 1 ? "each element outside of the vectors of a row needs a thread" : nullptr},
       threads_y,
       {"unroll", 1, was.smem_unroll ? 8 : 64},
       {"smem_unroll", was.smem_unroll ? 1 : 0, was.smem_unroll ? 16 : 0},
       {"rows_per_thread", std::min<int64_t>(1, was.rows_per_thread), 2 * was.rows_per_thread},
       {"grid_blocks", was.grid_blocks ? 1 : 0, was.grid_blocks ? 1 << 20 : 0}});
  const int64_t threads = is.threads_x, rows = is.threads_y, taken = threads * is.unroll;
  expect(planned, std::has_single_bit(static_cast<uint64_t>(threads)) || rows == 1,
         text("threads_x=", threads),
         "a power of two, or threads_y=1, because lanes of a warp combine");
  expect(
      planned, was.looped || taken >= x * was.unroll, text("threads_x * unroll=", taken),
      text("at least ", x * was.unroll, ", because the threads of a row hold all of its elements"));
  // The packed rows of a block must start at a multiple of a vector and fit shared memory.
  const int64_t together = std::min<int64_t>(y, vector_bytes);
  expect(planned, !packed || (threads <= warp && rows % together == 0),
         text("threads_x=", threads, ", threads_y=", rows),
         text("threads_x up to ", warp, " and threads_y a multiple of ", together, " up to ", 2 * y,
              ", because packed rows move as whole vectors"));
  check_staging_tile(planned, was, is);
  // A warp takes part in the reductions of one row or of several, and must be complete.
  expect(planned, threads * rows % warp == 0 && threads * rows <= most_threads,
         text("threads_x * threads_y=", threads * rows),
         text("a multiple of ", warp, " up to ", most_threads,
              ", because a block consists of whole warps"));
}

}  // namespace fuser::schedulers
