// Reductions along the innermost axis: one group of threads owns a row.
//
// A row that is walked more than once stays on chip: in registers as loaded, in shared memory, or
// cut over the blocks of a cluster, which are persistent where what all rows read outweighs the
// row; the largest ones are read again, through L2. Rows that are not multiples of a vector are
// walked from the first line of memory in them, so that all accesses are whole and a warp's lie in
// as few lines as they can; the elements at their ends have a thread each. Few rows are cut over
// the grid and the last block of each finishes.
//
// The numbers of threads and steps are those that were fastest on an H200 for rows of 256 to
// 262,144 elements: at least 16 to 64 bytes in flight a thread, two blocks or more a processor.
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

constexpr int block_threads = 128;  // of rows that a warp or less serves
// Of rows with a tile across them. Blocks are larger where shared memory leaves room for few.
constexpr int tile_threads = 256, large_tile = 48 << 10;
constexpr int most_tile_steps = 8;  // of a thread
constexpr int resident_tiles = 3;   // of a processor: while some blocks copy, others compute
constexpr int tile_waves = 2;       // of blocks, before these get fewer rows
constexpr int elements = 4;      // of a thread, of rows without vectors: few kernels serve them all
constexpr int skewed_steps = 5;  // of a skewed row in registers, 256 threads or less
constexpr int grid_row = 4096;   // elements from which few rows are cut
constexpr int grid_waves = 4;    // blocks a processor that a cut aims at
// Of the time of a kernel's bytes, from which computing again is seen although it would fit beside
// them: a walk that waits for the one before it does not hide all that it computes. Masks that are
// drawn twice before an RMS norm take 49 us, once 39 (8192 rows of 1024 float32 on an H200). The
// exponentials of a softmax are below it.
constexpr double repeated = 0.25;

// Is it of the rows themselves, not of something that all rows read (a weight) or that has one
// element a row?
bool is_row(Problem& p, const MemoryAccess& a) {
  const AxisSet axes = axes_of(p, a);
  const bool single = kept_axes(p).empty();
  return (axes & p.reduced) && !is_loaded(a) && (single || (axes & ~p.reduced));
}

Run rows_of(Problem& p) { return run_of(p, reduced_axes(p), is_row); }

// Where a row starts, from the multiple of `unit` elements before it: of a vector, the same for
// every access that moves vectors when rows are not multiples of one.
Expr skew_of(Problem& p, const MemoryAccess& a, int unit) {
  if (!a.strides) return nullptr;
  Exprs& exprs = p.refined.exprs;
  return exprs.mod(offset_along(p, a, kept_axes(p)), exprs.constant(unit));
}

// Elements of a row before the first line of memory in it: 128 bytes of the widest type, but no
// more elements than the smallest block has threads for. Walked from there, warps move whole lines.
Expr head_of(Problem& p, const MemoryAccess& a, int vector) {
  Exprs& exprs = p.refined.exprs;
  const int line = std::min(8 * vector, 2 * warp);
  Expr start = skew_of(p, a, line);
  return start ? exprs.mod(exprs.sub(exprs.constant(line), start), exprs.constant(line)) : nullptr;
}

// The accesses that move vectors in a skewed walk, and their skew; none where none can.
AccessSet skewed(Problem& p, const Run& r, const Hints& hints, Expr& skew) {
  AccessSet wide;
  skew = nullptr;
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    const AxisSet axes = axes_of(p, a);
    if (!(axes & p.reduced)) continue;
    // A walk that starts before its row has no coordinates to divide.
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

// Reads of neighbouring elements that do not lie at multiples of a vector: two vectors and a shift.
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

// Can all reads that stay on chip be copied to shared memory?
bool copied(Problem& p, const AccessSet& wide, int vector) {
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    if (a.store || !moves_rows(p, a) || is_loaded(a)) continue;
    if (!wide.contains(i) || vector * size_of(a.dtype) < 4) return false;
  }
  return true;
}

// Accesses that move whole rows and take no place in L1. Copies into shared memory bypass L1
// without being listed.
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

// How it looks in the form of the fewest walks. That one stores last what a walk that it has not
// stores on its way: x - mean(x) beside a variance.
Shape shortest_of(Problem& p) { return shape_of(used(p, p.single_pass != nullptr)); }

// What is chosen for rows, step by step; the plan is made of it.
struct Rows {
  Run run;
  Shape shape, shortest;
  int64_t length = 0, count = 0;
  int64_t vectors = 0;  // of a row
  int vector = 1;
  AccessSet wide;        // the accesses that move vectors
  AccessSet shifted;     // those that put them together
  bool skew = false;     // rows that are no multiples of a vector
  bool stays = false;    // a row, between its walks
  bool busy = false;     // instructions decide
  bool repeats = false;  // or what a walk computes again is worth a register
  bool places = false;   // a partial result holds a position beside its element
  OnChip on;             // where it lies, and who walks it
  bool single_pass = false;
  bool serial = false, rolled = false;  // walked in a loop; the same of rows in shared memory
  bool split = false;                   // over the grid
  AccessSet stretch;                    // what crosses shared memory, of rows in a stretch
  int threads_y = 0;                    // rows side by side
  int turns = 0;                        // rows of a thread, of those in shared memory
  AcrossTile tile;                      // what crosses it, across the rows
};

// Which accesses move vectors, and how rows that are not multiples of one are walked.
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
  // One walk takes the place of two where nothing waits for both, and combines once; to combine the
  // larger partial results of a short row costs more than a walk over registers.
  o.single_pass = p.single_pass && !o.shape.stores_last && o.vectors > 16 * warp;
  o.stays = (o.single_pass ? o.shortest : o.shape).walks > 1;
  const WalkWork work = work_of_walks(p);
  o.busy = o.stays && time_of(work.bytes, work.slots) > time_of(work.bytes, 0.0);
  o.repeats = o.busy || (o.stays && work.again >= repeated * time_of(work.bytes, 0.0));
  o.places = takes_places(p);
  return o;
}

// Rows without vectors of their own, where they follow each other in memory; false where not.
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
  o.single_pass = false;  // walks over shared memory cost little
  o.serial = o.rolled = true;
  o.on = {.place = Place::Shared, .threads_x = s.threads_x, .unroll = s.unroll};
  return true;
}

// Threads and steps of a row in registers.
void share_out(Rows& o) {
  const int64_t vectors = o.vectors;
  const bool odd = o.skew && vectors > 8 * warp && vectors <= skewed_steps * 256;
  int& x = o.on.threads_x;
  if (o.vector == 1 && vectors <= 32 * warp) {
    for (x = 1; x * elements < vectors;) x *= elements;
  } else if (vectors <= 2 * warp) {
    // Two vectors a thread: half as many partial results to combine, and twice as much in flight.
    // Sums of rows of 32 bfloat16 take 73.5 us, 86.5 with one (4 Mi rows on an H200). Not where two
    // are all of a row that is stored: neighbours would not store neighbours (softmax: 171 us, 131
    // with one).
    const bool one = vectors <= 2 && o.shape.stores_rows;
    x = one ? ceil_pow2(vectors) : std::max(1, ceil_pow2(vectors) / 2);
  } else if (odd) {
    x = vectors <= skewed_steps * 128 ? 128 : 256;
  } else if (vectors <= 16 * warp) {  // two to four vectors a thread
    x = ceil_pow2(vectors) / 2;
  } else {
    x = vectors <= 32 * warp ? 256 : 512;
    // To combine these takes 20 instructions a step, as much as three elements do: half as many
    // threads take argmax of 8192 elements of float32 from 105.7 to 96.0 us (a copy 88.6).
    if (o.places && !o.skew) x /= 2;
  }
  int& unroll = o.on.unroll;
  unroll = static_cast<int>(((o.skew ? vectors : ceil_pow2(vectors)) + x - 1) / x);
  // Rows of few elements share kernels, and so do odd ones in registers.
  if (o.vector == 1)
    unroll = std::max(unroll, elements);
  else if (odd)
    unroll = skewed_steps;
}

// Where a row lies that is walked several times.
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

// Something lies across the rows: their own elements stay in registers, beside a tile of it in
// shared memory; false where it is small, or they do not fit.
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

// Few long rows: one block each would leave processors idle. Where one walk is all that they take,
// they are cut over the grid; else over several kernels, one a walk: false.
bool few_rows_fit(Problem& p, const Hints& hints, const Device& device, Rows& o) {
  const int rows_a_block = std::max(1, block_threads / o.on.threads_x);
  const int64_t blocks = (o.count + rows_a_block - 1) / rows_a_block * o.on.cluster;
  if (blocks >= device.processors || o.length < grid_row) return true;
  if (o.shortest.walks > 1) return hints.pieces == Pieces::None || o.length <= (int64_t{1} << 16);
  o.single_pass = p.single_pass != nullptr;
  o.split = true;
  o.on.place = Place::Reload;
  o.on.cluster = 1;
  o.on.threads_x = 256;
  return true;
}

// Rows that are walked in loops: those that are read again, and those in shared memory.
void loop_over(const Problem& p, Rows& o) {
  if (o.on.place == Place::Reload) {
    o.on.min_blocks = 0;
    o.on.ring = 0;
    o.on.once = OnChip::Once::None;
    o.single_pass = o.single_pass || (o.stays && p.single_pass != nullptr);
    // What takes in several elements at once has enough to do with four steps side by side.
    const bool several = o.vector > 1 && (o.shape.staged > 1 || (o.single_pass && !o.split));
    const int most = several ? 4 : 8;
    if (o.on.unroll > most || o.split) {
      o.serial = true;
      o.on.unroll = o.split ? most : 4;
      if (o.skew && o.single_pass) o.on.threads_x = 256;
    }
  } else if (o.on.place == Place::Shared && !o.on.ring) {
    o.serial = o.rolled = true;  // as many steps as the row has
    const bool long_parts = o.on.cluster >= 8 && (o.skew || o.single_pass);
    if (long_parts) o.on.threads_x = 256;
    // Side by side: more take registers that more blocks use better. Odd rows of words with two
    // shifted vectors a step wait for these instead: a layer norm of 131,073 float32 on an H200
    // goes from 423 to 310 us.
    const bool waits = long_parts && o.shifted.count() > 1 && o.vector * 4 <= vector_bytes;
    o.on.unroll = waits ? 3 : o.skew || o.on.threads_x == most_threads ? 1 : 2;
  }
}

// Does what a later walk would compute again stay beside the row?
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
        s.dims[R].skew = head_of(p, p.accesses[i], vector);  // none with a single row
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
  // Of a skewed row, each element that no vector holds has a thread: at most a line and two
  // vectors.
  const int64_t least = !planned.get("skew") ? 1 : serial ? std::min<int64_t>(3 * warp, x) : x;
  AccessSet once = planned.set("once");
  once |= once_of(used(p, planned.get("single_pass") != 0), OnChip::Once::Rows);
  check_subset(planned, wanted, "once", once);
  Plan numbers = wanted;  // those that are left to check
  for (auto& [name, value] : numbers.fields)
    if (name == "once") value = planned.set("once");
  check_fields(planned, numbers,
               {{"keep", 0, planned.get("keep")},
                {"threads_x", least, most_threads},
                // Neighbours of a stretch lie apart in it by powers of two.
                // The blocks of a cluster combine all of their threads.
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
  // Rows of a stretch: those of a block start at a multiple of a vector, and lie in shared memory.
  const int64_t together = std::min<int64_t>(y, vector_bytes);
  expect(planned, !stretch || (threads <= warp && rows % together == 0),
         text("threads_x=", threads, ", threads_y=", rows),
         text("up to ", warp, ", and a multiple of ", together, " up to ", 2 * y));
  check_across_tile(planned, wanted);
  // A warp takes part in the reductions of one row or of several, and is whole.
  expect(planned, threads * rows % warp == 0 && threads * rows <= most_threads,
         text("threads_x * threads_y=", threads * rows),
         text("a multiple of ", warp, " up to ", most_threads));
}

}  // namespace fuser
