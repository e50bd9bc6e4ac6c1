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
#include "fusion/work.h"
#include "schedulers/across_tile.h"
#include "schedulers/dims.h"
#include "schedulers/legal.h"
#include "schedulers/on_chip.h"
#include "schedulers/schedulers.h"
#include "schedulers/stretch.h"

namespace fuser {
namespace {

constexpr int block_threads = 128;  // threads per block for rows of at most a warp
// Threads per block with a staging tile, doubled from large_tile bytes on because few large blocks
// fit an SM.
constexpr int tile_threads = 256, large_tile = 48 << 10;
constexpr int most_tile_steps = 8;  // steps per thread with a staging tile, at most
// Resident blocks per SM with a staging tile, so that copies and computation overlap.
constexpr int resident_tiles = 3;
constexpr int tile_waves = 2;  // blocks per SM below which staging tiles are not enlarged
// Elements per thread of rows without vectors; few kernels serve all lengths.
constexpr int elements = 4;
constexpr int skewed_steps = 5;  // steps of a peeled row in registers with at most 256 threads
constexpr int grid_row = 4096;   // elements of a row from which few rows are split over the grid
constexpr int grid_waves = 4;    // blocks per SM that a split aims at
// Fraction of a kernel's memory time from which recomputation is cached in registers. Below the
// memory time recomputation is not free: a loop that waits for the previous one hides only some of
// its instructions. The exponentials of a softmax stay below this fraction.
constexpr double repeated = 0.25;

// Returns whether the access moves elements of the rows themselves. Weights, which vary over R
// alone, and values per row, which vary over K alone, are not rows.
bool is_row(Problem& p, const MemoryAccess& a) {
  const AxisSet axes = axes_of(p, a);
  const bool single = kept_axes(p).empty();
  return (axes & p.reduced) && !is_loaded(a) && (single || (axes & ~p.reduced));
}

Run rows_of(Problem& p) { return run_of(p, reduced_axes(p), is_row); }

// Returns the start of a row modulo `unit` elements. All vectorized accesses of a peeled loop must
// agree modulo the vector length.
Expr skew_of(Problem& p, const MemoryAccess& a, int unit) {
  if (!a.strides) return nullptr;
  Exprs& exprs = p.refined.exprs;
  return exprs.mod(offset_along(p, a, kept_axes(p)), exprs.constant(unit));
}

// Returns the number of elements of a row before its first line-aligned element. A line is 128
// bytes of the widest type, or less if the smallest block has fewer threads than a line has
// elements. Warps of loops that start there move complete lines.
Expr head_of(Problem& p, const MemoryAccess& a, int vector) {
  Exprs& exprs = p.refined.exprs;
  const int line = std::min(8 * vector, 2 * warp);
  Expr start = skew_of(p, a, line);
  return start ? exprs.mod(exprs.sub(exprs.constant(line), start), exprs.constant(line)) : nullptr;
}

// Returns the vectorized accesses of a peeled loop, and in `skew` the start of their rows modulo
// the vector length. Empty if no access can move vectors.
AccessSet skewed(Problem& p, const Run& r, const Hints& hints, Expr& skew) {
  AccessSet wide;
  skew = nullptr;
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    const AxisSet axes = axes_of(p, a);
    if (!(axes & p.reduced)) continue;
    // A peeled loop has only the linear index of its row, which coordinates must not divide.
    if (is_loaded(a) || !coefficient(p, a, r.axes)) return {};
    if (!coefficient(p, a, r.axes)->is_constant(1) || !hints.aligned[a.buffer]) continue;
    Expr mine = skew_of(p, a, r.vector);
    if (!skew && ((axes & ~p.reduced) || kept_axes(p).empty())) skew = mine;
    if (mine == skew) wide.insert(i);
  }
  return skew ? wide : AccessSet();
}

bool is_linear(Problem& p, const Run& r) {
  return std::all_of(p.accesses.begin(), p.accesses.end(), [&](const MemoryAccess& a) {
    return !(axes_of(p, a) & p.reduced) || (!is_loaded(a) && coefficient(p, a, r.axes));
  });
}

bool takes_places(const Problem& p) {
  return std::any_of(p.refined.values.begin(), p.refined.values.end(), [](const Value& v) {
    const auto* r = std::get_if<Reduced>(&v.how);
    return r && row(r->op).operands > 1;
  });
}

bool has_coordinates(const Problem& p) {
  return std::any_of(p.refined.values.begin(), p.refined.values.end(), [&](const Value& v) {
    const auto* read = std::get_if<Read>(&v.how);
    return (std::holds_alternative<Coordinate>(v.how) || std::holds_alternative<Choose>(v.how) ||
            (read && !read->in.bounds.empty())) &&
           (v.axes & p.reduced);
  });
}

// Returns the unaligned reads: neighbouring elements that are not at multiples of a vector. Two
// aligned vectors and a shift produce each of their vectors.
AccessSet shifted(Problem& p, const Run& r, const Hints& hints, const AccessSet& wide) {
  AccessSet out;
  if (wide.empty()) return out;
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    if (a.store || !(axes_of(p, a) & p.reduced) || is_loaded(a) || wide.contains(i)) continue;
    if (!a.in.bounds.empty()) continue;
    Expr along = coefficient(p, a, r.axes);
    if (along && along->is_constant(1) && hints.aligned[a.buffer] &&
        r.vector * size_of(a.dtype) >= 4 && r.vector * size_of(a.dtype) <= vector_bytes)
      out.insert(i);
  }
  return out;
}

// Returns whether all persistent reads can be copied to shared memory asynchronously.
bool copied(Problem& p, const AccessSet& wide, int vector) {
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    if (a.store || !moves_rows(p, a) || is_loaded(a)) continue;
    if (!wide.contains(i) || vector * size_of(a.dtype) < 4) return false;
  }
  return true;
}

// Returns the streaming accesses: complete rows that bypass L1. Copies of rows into shared memory
// bypass it in any case.
AccessSet once_of(const Problem& p, OnChip::Once once) {
  AccessSet out;
  if (once == OnChip::Once::None) return out;
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    const bool wanted = a.store || once == OnChip::Once::Rows;
    if (wanted && moves_rows(p, a) && !is_loaded(a)) out.insert(i);
  }
  return out;
}

Problem& used(Problem& p, bool single_pass) { return single_pass ? *p.single_pass : p; }

// Returns the shape of the single-pass form if the problem has one, else of the problem. The
// single-pass form may store in its last phase a value that the two-pass form stores in an earlier
// one, e.g. x - mean(x) next to var(x).
Shape shortest_of(Problem& p) { return shape_of(used(p, p.single_pass != nullptr)); }

// The choices for the rows, made step by step; the plan lists them.
struct Rows {
  Run run;
  Shape shape, shortest;
  int64_t length = 0, count = 0;
  int64_t vectors = 0;  // vectors per row
  int vector = 1;
  AccessSet wide;        // vectorized accesses
  AccessSet shifted;     // unaligned reads
  bool skew = false;     // True if the row length is not a multiple of the vector length
  bool stays = false;    // True if a row has several reduction loops and can be persistent
  bool busy = false;     // True if issue slots dominate the memory time
  bool repeats = false;  // True if so, or if recomputed values are worth a register
  bool places = false;   // True if a partial result holds a position next to its element
  OnChip on;             // placement of the row
  bool single_pass = false;
  // True if a loop runs over the row; True if a loop runs over rows in shared memory.
  bool serial = false, rolled = false;
  bool split = false;  // True if rows are split over the grid
  AccessSet stretch;   // accesses of packed rows, which cross shared memory
  int threads_y = 0;   // rows per block at once
  int turns = 0;       // rows per thread, of rows in shared memory
  AcrossTile tile;     // staging tile of uncoalesced operands
};

// Chooses the vectorized accesses, and whether loops are peeled.
Rows rows_to_plan(Problem& p, const Hints& hints) {
  Rows o{.run = rows_of(p), .shape = shape_of(p), .shortest = shortest_of(p)};
  const Run& r = o.run;
  o.length = hints.at_most(extent_of(p, r.axes));
  o.count = hints.at_most(extent_of(p, kept_axes(p)));
  if (r.vector > 1 && hints.divides(extent_of(p, r.inner), r.vector)) {
    o.wide = wide_accesses(p, p.reduced, r.inner, hints, r.vector);
  } else if (r.vector > 1 && r.whole && !has_coordinates(p) && o.length > 4 * r.vector * warp) {
    Expr unused;
    o.wide = skewed(p, r, hints, unused);
    o.skew = !o.wide.empty();
  }
  o.vector = o.wide.empty() ? 1 : r.vector;
  o.vectors = (o.length + o.vector - 1) / o.vector;
  o.shifted = shifted(p, r, hints, o.wide);
  // Use the single-pass form if no store depends on both phases, because it combines only once. Not
  // for short rows: combining its larger partial results costs more than a second loop over
  // registers.
  o.single_pass = p.single_pass && !o.shape.stores_last && o.vectors > 16 * warp;
  o.stays = (o.single_pass ? o.shortest : o.shape).walks > 1;
  const WalkWork work = work_of_walks(p);
  o.busy = o.stays && time_of(work.bytes, work.slots) > time_of(work.bytes, 0.0);
  o.repeats = o.busy || (o.stays && work.again >= repeated * time_of(work.bytes, 0.0));
  o.places = takes_places(p);
  return o;
}

// Plans packed rows, for rows without vectors of their own. Returns false if rows are not packed.
bool in_stretch(Problem& p, const Hints& hints, const Device& device, Rows& o) {
  if (!o.wide.empty()) return false;
  const PackedRows s = stretch_of(p, o.run, hints, device, o.length, o.count);
  if (s.accesses.empty()) return false;
  o.stretch = s.accesses;
  o.turns = s.turns;
  o.threads_y = s.threads_y;
  o.vector = s.vector;
  if (s.vector > 1) o.wide = wide_accesses(p, p.reduced, o.run.inner, hints, s.vector);
  o.shifted = {};
  o.single_pass = false;  // loops over shared memory cost little
  o.serial = o.rolled = true;
  o.on = {.place = Place::Shared, .threads_x = s.threads_x, .unroll = s.unroll};
  return true;
}

// Chooses the threads and steps of a row in registers.
void share_out(Rows& o) {
  const int64_t vectors = o.vectors;
  const bool odd = o.skew && vectors > 8 * warp && vectors <= skewed_steps * 256;
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
    x = vectors <= skewed_steps * 128 ? 128 : 256;
  } else if (vectors <= 16 * warp) {  // two to four vectors per thread
    x = ceil_pow2(vectors) / 2;
  } else {
    x = vectors <= 32 * warp ? 256 : 512;
    // Combining elements with positions takes as many instructions per step as three elements, so
    // half as many threads are faster.
    if (o.places && !o.skew) x /= 2;
  }
  int& unroll = o.on.unroll;
  unroll = static_cast<int>(((o.skew ? vectors : ceil_pow2(vectors)) + x - 1) / x);
  // Rows of few elements share kernels, and so do peeled rows in registers.
  if (o.vector == 1)
    unroll = std::max(unroll, elements);
  else if (odd)
    unroll = skewed_steps;
}

// Chooses the placement of a row with several reduction loops.
void place(Problem& p, const Device& device, Rows& o) {
  if (!o.stays) {
    o.on.place = Place::Reload;
    return;
  }
  const WalkedRow row = {.vectors = o.vectors,
                         .vector = o.vector,
                         .busy = o.busy,
                         .skew = o.skew,
                         .shifted_reads = o.shifted.count(),
                         .can_copy = o.vector > 1 && copied(p, o.wide, o.vector),
                         .linear = is_linear(p, o.run)};
  o.on = on_chip(device, o.shape, row, o.on);
  if (p.single_pass && o.on.waits) o.single_pass = true;
}

// Plans a staging tile for uncoalesced operands, with the row itself in registers. Returns false if
// the operands are small or do not fit.
bool beside_tile(Problem& p, const Hints& hints, const Device& device, Rows& o) {
  if (o.vector == 1 || o.skew || !lies_across(p, hints)) return false;
  Rows t = o;
  const int64_t bytes =
      std::min(device.shared_per_processor / resident_tiles, device.shared_per_block);
  t.tile = across_tile_of(p, hints,
                          {.length = o.length,
                           .count = o.count,
                           .tiles = int64_t{tile_waves} * device.processors,
                           .bytes = bytes,
                           .most_bytes = bytes});
  if (t.tile.accesses.empty()) return false;
  for (size_t i = 0; i < p.accesses.size(); ++i)
    if (!p.accesses[i].store && t.tile.accesses.contains(i)) --t.shape.staged;
  place(p, device, t);
  const bool reads_again = t.stays && t.on.place != Place::Registers;
  if (reads_again || t.on.cluster > 1 || t.vectors > most_tile_steps * warp) return false;
  t.on.threads_x = threads_beside_tile(t.vectors);
  t.on.unroll = static_cast<int>((t.vectors + t.on.threads_x - 1) / t.on.threads_x);
  const int threads = t.tile.bytes > large_tile ? 2 * tile_threads : tile_threads;
  t.threads_y = std::min(t.tile.rows, threads / t.on.threads_x);
  t.turns = t.tile.rows / t.threads_y;
  t.on.once = OnChip::Once::None;
  o = t;
  return true;
}

// Handles few long rows, which would leave SMs idle with one block per row. If the kernel has one
// reduction loop, then the rows are split over the grid. Else it returns false if kernel fission
// with a kernel per loop is preferred. The host executor prefers fission for any number of long
// rows: a thread that meets others in a loop is a fiber, and switching costs more than loads.
bool few_rows_fit(Problem& p, const Hints& hints, const Device& device, Rows& o) {
  const int rows_a_block = std::max(1, block_threads / o.on.threads_x);
  const int64_t blocks = (o.count + rows_a_block - 1) / rows_a_block * o.on.cluster;
  const bool fission = o.shortest.walks > 1 && hints.pieces != Pieces::None && o.length > 1 << 16;
  if (device.host && fission) return false;
  if (blocks >= device.processors || o.length < grid_row) return true;
  if (o.shortest.walks > 1) return !fission;
  o.single_pass = p.single_pass != nullptr;
  o.split = true;
  o.on.place = Place::Reload;
  o.on.cluster = 1;
  o.on.threads_x = 256;
  return true;
}

// Chooses the loops over rows that are reloaded or in shared memory.
void loop_over(const Problem& p, Rows& o) {
  if (o.on.place == Place::Reload) {
    o.on.min_blocks = 0;
    o.on.ring = 0;
    o.on.once = OnChip::Once::None;
    o.single_pass = o.single_pass || (o.stays && p.single_pass != nullptr);
    // Four steps in flight suffice if several tensors are read, or if a single-pass reduction
    // accumulates whole vectors.
    const bool several = o.vector > 1 && (o.shape.staged > 1 || (o.single_pass && !o.split));
    const int most = several ? 4 : 8;
    if (o.on.unroll > most || o.split) {
      o.serial = true;
      o.on.unroll = o.split ? most : 4;
      if (o.skew && o.single_pass) o.on.threads_x = 256;
    }
  } else if (o.on.place == Place::Shared && !o.on.ring) {
    o.serial = o.rolled = true;  // as many iterations as the row has steps
    const bool long_parts = o.on.cluster >= 8 && (o.skew || o.single_pass);
    if (long_parts) o.on.threads_x = 256;
    // Unroll little, because more resident blocks use the registers better. Exception: peeled rows
    // of 4-byte elements with two unaligned reads per step wait for these loads, and unroll three
    // steps.
    const bool waits = long_parts && o.shifted.count() > 1 && o.vector * 4 <= vector_bytes;
    o.on.unroll = waits ? 3 : o.skew || o.on.threads_x == most_threads ? 1 : 2;
  }
}

// Returns whether values that a later loop would recompute are cached next to the row.
bool keeps(Problem& p, const Rows& o) {
  if (!o.repeats || o.on.place != Place::Registers || o.vector == 1 || o.skew || o.serial)
    return false;
  const auto again = static_cast<int>(computed_again(used(p, o.single_pass)).size());
  return again && again * o.on.unroll * o.vector <= register_elements;
}

int64_t blocks_of(const Device& device, const Rows& o) {
  if (o.split) return grid_waves * device.processors;
  if (o.on.ring) return resident_clusters(device, o.on.cluster) * o.on.cluster * o.on.min_blocks;
  return 0;
}

}  // namespace

Verdict match_inner(Problem& p) {
  Verdict verdict;
  if (!p.reduced) return refuse("inner-1", "it reduces nothing");
  if (p.columns) return refuse("inner-2", "it also reduces the kept axes");
  if (!p.order.empty() && !(p.reduced >> p.order.back() & 1))
    return refuse("inner-3", "the innermost axis is kept");
  const Run r = rows_of(p);
  ask_rows(p, verdict, r);
  ask_stretch(p, verdict, r);
  ask_across_tile(p, verdict);
  return verdict;
}

Plan plan_inner(Problem& p, const Hints& hints, const Device& device) {
  Rows o = rows_to_plan(p, hints);
  if (!in_stretch(p, hints, device, o)) {
    share_out(o);
    if (!beside_tile(p, hints, device, o)) {
      if (copies_across(p, hints)) return {.scheduler = "pieces", .fields = {}};
      place(p, device, o);
      if (!few_rows_fit(p, hints, device, o)) return {.scheduler = "pieces", .fields = {}};
      loop_over(p, o);
    }
  }
  if (!o.threads_y) o.threads_y = std::max(1, block_threads / o.on.threads_x);
  const Run& r = o.run;
  const int whole =
      o.vector > 1 && !o.skew ? axes_of_lanes(p, r.axes, r.inner, hints, o.vector) : 0;
  return {.scheduler = "inner",
          .fields = {{"threads_x", o.on.threads_x},
                     {"threads_y", o.threads_y},
                     {"unroll", o.on.unroll},
                     {"vector", o.vector},
                     {"serial", o.serial},
                     {"rolled", o.rolled},
                     {"place", static_cast<int64_t>(o.on.place)},
                     {"cluster", o.on.cluster},
                     {"ring", o.on.ring},
                     {"blocks", blocks_of(device, o)},
                     {"min_blocks", o.on.min_blocks},
                     {"once", once_of(p, o.on.once)},
                     {"stretch", o.stretch},
                     {"turns", o.turns},
                     {"across", o.tile.accesses},
                     {"run", o.tile.run},
                     {"single_pass", o.single_pass},
                     {"keep", keeps(p, o)},
                     {"skew", o.skew},
                     {"whole", whole},
                     {"wide", o.wide},
                     {"shifted", o.shifted}}};
}

Schedule schedule_inner(Problem& both, const Plan& plan) {
  const bool single_pass = plan.get("single_pass") != 0;
  Problem& p = used(both, single_pass);
  Exprs& exprs = p.refined.exprs;
  const int vector = static_cast<int>(plan.get("vector"));
  const int64_t x = plan.get("threads_x"), unroll = plan.get("unroll");
  const int64_t blocks = plan.get("blocks");
  enum { K, R };
  Schedule s = start_of_reduction(p, plan);
  s.single_pass = single_pass;
  s.min_blocks = static_cast<int>(plan.get("min_blocks"));
  s.rolled = static_cast<int>(plan.get("rolled"));
  s.once = plan.set("once");
  const AccessSet& crossing = plan.set("stretch");
  s.stretch = !crossing.empty();
  s.across = plan.set("across");
  s.run = static_cast<int>(plan.get("run"));
  if (plan.get("keep"))
    for (ValueId v : computed_again(p)) s.stored.push_back({v, Place::Registers});
  s.tail = plan.get("skew") != 0;
  s.shifted = plan.set("shifted");
  if (s.tail)
    for (size_t i = 0; i < p.accesses.size() && !s.dims[R].skew; ++i)
      if (s.widths[i] > 1 && axes_of(p, p.accesses[i]) & ~p.reduced)
        s.dims[R].skew = head_of(p, p.accesses[i], vector);  // not set for a single row
  Stage stage;
  const auto loop = [&](DimId dim, Bind bind, int64_t extent, Expr count = nullptr) {
    stage.loops.push_back({.dim = dim, .extent = extent, .bind = bind, .count = count});
  };
  s.ring = static_cast<int>(plan.get("ring"));
  if (plan.get("serial")) loop(R, Bind::Serial, 0);
  Expr tiles = exprs.ceil_div(extent_of(p, kept_axes(p)), plan.get("threads_y"));
  if (s.ring) {
    loop(K, Bind::Serial, 0);
    loop(K, Bind::Grid, 0, persistent_blocks(p, blocks / plan.get("cluster"), tiles));
  } else {
    loop(K, Bind::Grid, 0);
  }
  if (plan.get("turns") > 1) loop(K, Bind::Serial, plan.get("turns"));
  if (blocks && !s.ring) {
    Expr steps = exprs.ceil_div(extent_of(p, reduced_axes(p)), x * unroll * vector);
    loop(R, Bind::Grid, 0, blocks_a_tile(p, blocks, tiles, steps));
    s.finish = Finish::LastBlock;
  }
  loop_along_rows(stage, plan);
  s.stages.push_back(std::move(stage));
  const auto place = static_cast<Place>(plan.get("place"));
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    const bool stays =
        s.stretch ? crossing.contains(i) : !a.store && moves_rows(p, a) && !is_loaded(a);
    const bool turns = s.across.contains(i);
    s.places.push_back(turns ? Place::Shared : stays ? place : Place::Reload);
  }
  verify(s, static_cast<int>(p.refined.axes.size()));
  return s;
}

void check_inner(Problem& p, const Plan& planned, const Plan& wanted) {
  const int64_t x = planned.get("threads_x"), y = planned.get("threads_y");
  const int64_t turns = planned.get("turns"), blocks = planned.get("blocks");
  const bool serial = planned.get("serial") != 0, rolled = planned.get("rolled") != 0;
  const bool stretch = !planned.set("stretch").empty(), alone = planned.get("cluster") > 1;
  // Each element of a peeled row that no vector holds has a thread: at most a line and two vectors.
  const int64_t least = !planned.get("skew") ? 1 : serial ? std::min<int64_t>(3 * warp, x) : x;
  AccessSet once = planned.set("once");
  once |= once_of(used(p, planned.get("single_pass") != 0), OnChip::Once::Rows);
  check_subset(planned, wanted, "once", once);
  Plan numbers = wanted;  // the numbers, for check_fields()
  for (auto& [name, value] : numbers.fields)
    if (name == "once") value = planned.set("once");
  check_fields(planned, numbers,
               {{"keep", 0, planned.get("keep")},
                {"threads_x", least, most_threads},
                // Packed rows of neighbouring threads are a power of two apart. The blocks of a
                // cluster combine all of their threads for one row.
                {"threads_y", 1,
                 alone     ? 1
                 : stretch ? 2 * y
                           : most_threads,
                 stretch ? Field::Power : Field::Any},
                {"unroll", 1, rolled ? 8 : 64},
                {"min_blocks", 0, 8},
                {"rolled", rolled ? 1 : 0, rolled ? 16 : 0},
                {"turns", std::min<int64_t>(1, turns), 2 * turns},
                {"blocks", blocks ? 1 : 0, blocks ? 1 << 20 : 0}});
  const int64_t threads = wanted.get("threads_x"), rows = wanted.get("threads_y");
  const int64_t taken = threads * wanted.get("unroll");
  expect(planned, std::has_single_bit(static_cast<uint64_t>(threads)) || rows == 1,
         text("threads_x=", threads), "a power of two, or threads_y=1");
  expect(planned, serial || taken >= x * planned.get("unroll"), text("threads_x * unroll=", taken),
         text("at least ", x * planned.get("unroll"), ", for the row"));
  // The packed rows of a block must start at a multiple of a vector and fit shared memory.
  const int64_t together = std::min<int64_t>(y, vector_bytes);
  expect(planned, !stretch || (threads <= warp && rows % together == 0),
         text("threads_x=", threads, ", threads_y=", rows),
         text("up to ", warp, ", and a multiple of ", together, " up to ", 2 * y));
  check_across_tile(planned, wanted);
  // A warp takes part in the reductions of one row or of several, and must be complete.
  expect(planned, threads * rows % warp == 0 && threads * rows <= most_threads,
         text("threads_x * threads_y=", threads * rows),
         text("a multiple of ", warp, " up to ", most_threads));
}

}  // namespace fuser
