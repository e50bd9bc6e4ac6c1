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
#include "schedulers/dims.h"
#include "schedulers/schedulers.h"

namespace fuser {
namespace {

constexpr int warp = 32;
constexpr int block_threads = 128;  // of rows that a warp or less serves
constexpr int most_threads = 1024;
constexpr int elements = 4;  // of a thread, of rows without vectors: few kernels serve them all
constexpr int register_vectors = 8;     // of a thread: more leave no room for arithmetic
constexpr int register_elements = 32;   // of a thread, of rows that are combined once
constexpr int busy_elements = 16;       // of a thread, where instructions decide,
constexpr int busy_bytes = 96;          // and of all tensors that it reads of them
constexpr int skewed_steps = 5;         // of a skewed row in registers, 256 threads or less
constexpr int wide_steps = 3;           // of one that 512 threads serve
constexpr int least_cached = 48 << 10;  // bytes that L1 does not hold beside rows in shared memory
constexpr int least_crowded = 128 << 10;  // bytes beside which stores take no place in L1
constexpr int few_operations = 12;        // for which 40 registers do, 16 of them holding the row
constexpr int cluster_vectors = 5120;  // of a row that one block holds; more are cut over a cluster
constexpr int one_block_row = 80 << 10;  // bytes; a block of more has a processor for itself
constexpr int held_steps = 6, held_threads = 704;  // of a block that keeps what all rows read
constexpr int held_registers = 48;                 // of a thread, for that
// The same of floats of 32 bits and more, which lie in registers as they are computed with.
constexpr int wide_held_steps = 8, wide_held_threads = 512, wide_held_registers = 64;
constexpr int divided_row = 64 << 10;   // bytes, from which rows with divided coordinates are cut
constexpr int divided_part = 40 << 10;  // bytes of a block, of these
constexpr int grid_row = 4096;          // elements from which few rows are cut
constexpr int grid_waves = 4;           // blocks a processor that a cut aims at

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
  Expr start = a.strides->rest;
  for (AxisId k : kept_axes(p))
    start = exprs.add(start, exprs.mul(a.strides->coefficients[k], exprs.symbol(Symbol::Axis, k)));
  return exprs.mod(start, exprs.constant(unit));
}

// Elements of a row before the first line of memory in it: 128 bytes of the widest type, but no
// more elements than the smallest block has threads for. Walked from there, warps move whole lines.
Expr head_of(Problem& p, const MemoryAccess& a, int vector) {
  Exprs& exprs = p.refined.exprs;
  const int line = std::min(8 * vector, 2 * warp);
  Expr start = skew_of(p, a, line);
  return start ? exprs.mod(exprs.sub(exprs.constant(line), start), exprs.constant(line)) : nullptr;
}

// The accesses that move vectors in a skewed walk, as bits, and their skew; 0 where none can.
int64_t skewed(Problem& p, const Run& r, const Hints& hints, Expr& skew) {
  int64_t wide = 0;
  skew = nullptr;
  for (size_t i = 0; i < p.accesses.size() && i < 63; ++i) {
    const MemoryAccess& a = p.accesses[i];
    const AxisSet axes = axes_of(p, a);
    if (!(axes & p.reduced)) continue;
    // A walk that starts before its row has no coordinates to divide.
    if (is_loaded(a) || !coefficient(p, a, r.axes)) return 0;
    if (!coefficient(p, a, r.axes)->is_constant(1) || !hints.aligned[a.buffer]) continue;
    Expr mine = skew_of(p, a, r.vector);
    if (!skew && ((axes & ~p.reduced) || kept_axes(p).empty())) skew = mine;
    if (mine == skew) wide |= int64_t{1} << i;
  }
  return skew ? wide : 0;
}

bool is_linear(Problem& p, const Run& r) {
  return std::all_of(p.accesses.begin(), p.accesses.end(), [&](const MemoryAccess& a) {
    return !(axes_of(p, a) & p.reduced) || (!is_loaded(a) && coefficient(p, a, r.axes));
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
int64_t shifted(Problem& p, const Run& r, const Hints& hints, int64_t wide) {
  int64_t out = 0;
  for (size_t i = 0; i < p.accesses.size() && i < 63; ++i) {
    const MemoryAccess& a = p.accesses[i];
    if (a.store || !(axes_of(p, a) & p.reduced) || is_loaded(a) || !wide || (wide >> i & 1))
      continue;
    if (!a.in.bounds.empty()) continue;
    Expr along = coefficient(p, a, r.axes);
    if (along && along->is_constant(1) && hints.aligned[a.buffer] &&
        r.vector * size_of(a.dtype) >= 4 && r.vector * size_of(a.dtype) <= vector_bytes)
      out |= int64_t{1} << i;
  }
  return out;
}

// Can all reads that stay on chip be copied to shared memory?
bool copied(Problem& p, int64_t wide, int vector) {
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    if (a.store || !moves_rows(p, a) || is_loaded(a)) continue;
    if (i >= 63 || !(wide >> i & 1) || vector * size_of(a.dtype) < 4) return false;
  }
  return true;
}

// Blocks of a cluster. Those of 16 need as many processors side by side, as whole GPUs for data
// centers have them: half as much of a row in each block then leaves room for a second one.
int largest_cluster(const Device& device) {
  if (!device.clusters) return 1;
  return device.processors >= 100 && device.shared_per_processor >= 200 << 10 ? 16 : 8;
}

// Where a row of several walks lies between them, and who walks it.
struct OnChip {
  Place place = Place::Registers;
  int threads_x = 1, unroll = 1, cluster = 1;
  int ring = 0;  // rows on their way to shared memory in a persistent grid; 0: one row a block
  int min_blocks = 0;  // resident on a processor; 0: as many as its registers leave room for
  // For other blocks, or with no other block beside it: one walk less then gains more than it
  // costs.
  bool waits = false;
  // What takes no place in L1, which has too little for what all rows read.
  enum class Once { None, Stores, Rows } once = Once::None;
};

// The row over the smallest cluster whose blocks hold their parts in so many steps; false where it
// is too long. The last steps of shorter rows do nothing, so that rows of many lengths share
// kernels.
bool cut(OnChip& o, int64_t vectors, int steps, int threads, int largest) {
  o.threads_x = threads;
  o.unroll = steps;
  for (o.cluster = 2; o.cluster < largest && vectors > int64_t{o.cluster} * steps * threads;)
    o.cluster *= 2;
  return vectors <= int64_t{o.cluster} * steps * threads;
}

// Rows that would leave a processor to one block, which waits when it combines: over a cluster, of
// which a processor has two. Where all rows read more than a row is (a layer norm's weight and
// bias), the blocks are persistent and keep that in registers, or L2 would have to deliver three
// times the bytes of the rows. On an H200 layer norms go from 78 to 92% of a copy (262,144 elements
// of bfloat16), 84 to 88 (50,256), 87 to 90 (65,536 of float32); RMS norms from 89 to 95, 94 to 97
// and 89 to 97; softmax from 86 to 94 (262,144), 93 to 99 (65,536 of float32). Coordinates that are
// divided (group norms) would spill.
std::optional<OnChip> over_cluster(const Device& device, const Shape& shape, const OnChip& planned,
                                   int64_t vectors, int vector, int largest, bool can_copy) {
  OnChip o = planned;
  const int staged = std::max(1, shape.staged);
  if (shape.cached_bytes <= shape.staged_bytes) {
    o.place = Place::Registers;
    o.min_blocks = 2;
    o.waits = true;
    if (!cut(o, vectors, register_vectors / staged, most_threads / 2, largest)) return std::nullopt;
    return o;
  }
  o.place = Place::Shared;
  o.ring = 2;
  o.min_blocks = 1;
  o.once = OnChip::Once::Stores;
  const bool wide = vector * 4 <= vector_bytes;
  if (!can_copy || !cut(o, vectors, wide ? wide_held_steps : held_steps,
                        wide ? wide_held_threads : held_threads, largest))
    return std::nullopt;
  const int64_t bytes = int64_t{o.ring} * o.unroll * o.threads_x * vector * shape.staged_bytes;
  const int held = o.unroll * vector * shape.cached_bytes / 4;
  if (held > (wide ? wide_held_registers : held_registers) ||
      bytes > device.shared_per_block - 8 * 1024)
    return std::nullopt;
  return o;
}

// `planned`: as it would lie in registers. `busy`: instructions decide. `shifted_reads`: vectors
// beside the row's own that a step of a skewed walk puts together; two of them leave no registers
// for several steps. `linear`: all accesses walk rows by one index.
OnChip on_chip(const Device& device, const Shape& shape, const OnChip& planned, bool busy,
               int64_t vectors, int vector, bool skew, int shifted_reads, bool can_copy,
               bool linear) {
  OnChip o = planned;
  const int staged = std::max(1, shape.staged);
  const auto steps_of = [&](int threads) {
    return static_cast<int>((vectors + threads - 1) / threads);
  };
  const int64_t row_bytes = vectors * vector * shape.staged_bytes;
  const int64_t per_block = device.shared_per_processor / 2 - 2048;
  const bool crowded = shifted_reads > 1;
  // More threads rather than more registers: rows of two tensors, and rows of four vectors a
  // thread, gain 2 to 12% of a copy over rows in shared memory.
  const bool whole = vector > 1 && !skew;
  // The fewer threads, the fewer instructions to combine what they have: a softmax of 512 elements
  // with a mask and dropout takes 108 us with one warp a row, 116 with two, and in steps of four
  // elements 119, 122 and 148 us with one, two and four (H200, 50 million elements).
  // Two tensors of float32 would not leave them the registers: dropout, add and layer norm of 1024
  // take 35.4 us with 16 elements a thread, 34.0 with 8.
  const auto few = [&](int steps) {
    return steps * vector <= busy_elements && steps * vector * shape.staged_bytes <= busy_bytes;
  };
  if (whole && busy && few(o.unroll)) {
    for (; o.threads_x > warp && few(2 * o.unroll); o.threads_x /= 2) o.unroll *= 2;
    return o;
  }
  // What rows are only reduced to: combining costs more than reading, and fewer threads combine.
  if (whole && !shape.stores_rows && staged == 1 && o.threads_x == 256 && o.unroll == 2) {
    o.threads_x /= 2;
    o.unroll *= 2;
    return o;
  }
  while (whole && o.unroll > 1 && o.unroll * staged >= 4 && o.threads_x < 512) {
    o.threads_x *= 2;
    o.unroll = (o.unroll + 1) / 2;
  }
  if (whole && o.threads_x * o.unroll <= 32 * warp && o.unroll * staged <= 4) return o;
  // Combined once, so that there is less to wait for: an RMS norm of 16384 elements of float32 on
  // an H200 has 97% of a copy in registers, 94 in shared memory; one of 64 elements a thread 90
  // and 94.
  if (whole && staged == 1 && shape.phases == 1 && o.unroll > 4 &&
      o.unroll * vector <= register_elements)
    return o;
  if (skew && staged == 1 && o.threads_x <= 256) return o;
  // What all rows read comes from L1 where rows in shared memory do not take its place: a layer
  // norm of 16384 elements of bfloat16 goes from 91 to 96% of a copy with three blocks, to 94 with
  // two.
  if (vector > 1 && !skew && staged * o.unroll == 4 && o.threads_x == 512 &&
      shape.cached_bytes * vectors * vector > least_cached) {
    o.min_blocks = std::min(shape.operations <= few_operations ? 3 : 2,
                            device.threads_per_processor / o.threads_x);
    return o;
  }
  // The same in six steps, two blocks: of 24,576 elements from 88 to 95%.
  if (whole && staged == 1 && o.threads_x == 512 && steps_of(512) == 6 &&
      shape.operations <= few_operations && device.threads_per_processor >= 1024 &&
      shape.cached_bytes * vectors * vector > least_cached) {
    o.unroll = 6;
    o.min_blocks = 2;
    o.once = OnChip::Once::Stores;
    return o;
  }
  const int largest = can_copy ? largest_cluster(device) : 1;
  const bool one_block =
      row_bytes > per_block && steps_of(most_threads) * staged <= register_vectors;
  if (whole && linear && largest > 1 && row_bytes > one_block_row && !one_block &&
      o.unroll * staged > register_vectors)
    if (const auto cluster =
            over_cluster(device, shape, planned, vectors, vector, largest, can_copy))
      return *cluster;
  // Rows with divided coordinates: the smaller the blocks, the more of them are at different points
  // of their rows, some loading while others compute. On an H200 group norms with silu go from 85
  // to 90% of a copy (2048 rows of 80 KB) and 75 to 77 (512 of them), of float32 from 82 to 89.
  if (whole && !linear && staged == 1 && can_copy && largest > 1 && row_bytes > divided_row) {
    for (o.cluster = 2; o.cluster < largest && row_bytes / o.cluster > divided_part;)
      o.cluster *= 2;
    if (row_bytes / o.cluster <= per_block) {
      o.place = Place::Shared;
      o.threads_x = 256;
      return o;
    }
    o.cluster = 1;
  }
  if (o.unroll * staged >= (crowded ? 3 : 4) && can_copy && row_bytes <= per_block) {
    if (skew && !crowded && steps_of(o.threads_x) * staged <= wide_steps) {
      o.unroll = steps_of(o.threads_x);
      return o;
    }
    o.place = Place::Shared;
    // L1 has little beside the rows: a layer norm of 50,256 elements of bfloat16 goes from 81 to
    // 84% of a copy, of 32,768 from 89 to 90%; an RMS norm of half their weights loses 1%.
    if (skew ? crowded
             : shape.cached_bytes > shape.staged_bytes ||
                   shape.cached_bytes * vectors * vector >= least_crowded)
      o.once = OnChip::Once::Stores;
    // The fewer blocks a processor has room for, the more threads each needs all the same; the last
    // step of a skewed walk has little to do.
    const int64_t kib = row_bytes / 1024;
    if (row_bytes > one_block_row || (kib >= 64 && !skew && shape.phases == 1)) {
      // Combined once, with 1024 threads an RMS norm with a bias spills.
      o.threads_x = crowded && shape.phases == 1 ? 512 : most_threads;
      o.waits = crowded;
      // The compiler takes a few registers more where it knows the length, and one block remains.
      if (skew && staged == 1 && shape.operations <= few_operations)
        o.min_blocks = std::min(2, device.threads_per_processor / o.threads_x);
    } else if (skew) {
      o.threads_x = kib > 20 ? 512 : kib > 16 ? 256 : 128;
      // With two shifted vectors 40 registers are enough: a layer norm of 16,385 elements of
      // bfloat16 goes from 76 to 83% of a copy.
      if (crowded && o.threads_x == 512) {
        o.threads_x = 384;
        o.min_blocks = device.threads_per_processor * 3 / 4 / o.threads_x;
      }
    }
    return o;
  }
  if (o.unroll * staged <= register_vectors) return o;
  // Odd rows are cut over a cluster where there is one: few kernels serve them all.
  if (vector > 1 && !(skew && largest > 1) && steps_of(most_threads) * staged <= register_vectors) {
    o.threads_x = most_threads;
    o.unroll = steps_of(most_threads);
    // A layer norm of 65,536 elements of bfloat16 goes from 86 to 90% of a copy without its stores
    // there.
    if (shape.cached_bytes * vectors * vector > device.shared_per_processor)
      o.once = OnChip::Once::Rows;
    o.waits = o.once == OnChip::Once::None;
    return o;
  }
  int64_t part = row_bytes;
  while (o.cluster < largest && (part > per_block || vectors / o.cluster > cluster_vectors)) {
    o.cluster *= 2;
    part = row_bytes / o.cluster;
  }
  if (o.cluster > 1 && part <= device.shared_per_block - 2048) {
    o.place = Place::Shared;
    o.waits = true;
  } else {
    o.place = Place::Reload;
    o.cluster = 1;
  }
  return o;
}

// What moves whole rows and takes no place in L1, as bits by access. Rows in shared memory are
// copied past it as they are.
int64_t once_of(const Problem& p, OnChip::Once once) {
  int64_t out = 0;
  if (once == OnChip::Once::None) return out;
  for (size_t i = 0; i < p.accesses.size() && i < 63; ++i) {
    const MemoryAccess& a = p.accesses[i];
    const bool wanted = a.store || once == OnChip::Once::Rows;
    if (wanted && moves_rows(p, a) && !is_loaded(a)) out |= int64_t{1} << i;
  }
  return out;
}

Problem& used(Problem& p, bool single_pass) { return single_pass ? *p.single_pass : p; }

}  // namespace

Verdict match_inner(Problem& p) {
  Verdict verdict;
  if (!p.reduced) return refuse("inner-1", "it reduces nothing");
  if (p.columns) return refuse("inner-2", "it also reduces the kept axes");
  if (!p.order.empty() && !(p.reduced >> p.order.back() & 1))
    return refuse("inner-3", "the innermost axis is kept");
  const Run r = rows_of(p);
  ask_rows(p, verdict, r);
  return verdict;
}

Plan plan_inner(Problem& p, const Hints& hints, const Device& device) {
  if (copies_across(p, hints)) return {.scheduler = "pieces", .fields = {}};
  const Run r = rows_of(p);
  const Shape shape = shape_of(p);
  const int64_t length = hints.at_most(extent_of(p, r.axes));
  const int64_t rows = hints.at_most(extent_of(p, kept_axes(p)));

  // Which accesses move vectors, and how rows that are not multiples of one are walked.
  int vector = r.vector;
  bool skew = false;
  int64_t wide = 0;
  const bool divides = hints.divides(extent_of(p, r.inner), vector);
  if (vector > 1 && divides) {
    wide = wide_accesses(p, p.reduced, r.inner, hints, vector);
  } else if (vector > 1 && r.whole && !has_coordinates(p) && length > 4 * vector * warp) {
    Expr unused;
    wide = skewed(p, r, hints, unused);
    skew = wide != 0;
  }
  if (!wide) vector = 1;
  const int whole = vector > 1 && !skew ? axes_of_lanes(p, r.axes, r.inner, hints, vector) : 0;

  // Threads and steps of a row.
  const int64_t vectors = (length + vector - 1) / vector;
  // One walk is enough for what a long row is only reduced to; of a short one, combining the
  // larger partial results costs more than a walk over registers.
  bool single_pass = false;
  int ring = 0;
  Shape used_shape = shape;
  if (p.single_pass && !shape.stores_last && shape.walks > 1 && vectors > 16 * warp) {
    single_pass = true;
    used_shape = shape_of(*p.single_pass);
  }
  const bool stays = used_shape.walks > 1;
  int threads_x, cluster = 1, min_blocks = 0;
  if (vector == 1 && vectors <= 32 * warp) {
    threads_x = 1;
    while (threads_x * elements < vectors) threads_x *= elements;
  } else if (vectors <= 2 * warp) {
    // Two vectors a thread: half as many partial results to combine.
    threads_x = vectors > 1 ? std::max(4, ceil_pow2(vectors) / 2) : 1;
  } else if (skew && vectors > 8 * warp && vectors <= skewed_steps * 256) {
    threads_x = vectors <= skewed_steps * 128 ? 128 : 256;
  } else if (vectors <= 16 * warp) {  // two to four vectors a thread
    threads_x = ceil_pow2(vectors) / 2;
  } else if (vectors <= 32 * warp) {
    threads_x = 256;
  } else {
    threads_x = 512;
  }
  int unroll =
      static_cast<int>(((skew ? vectors : ceil_pow2(vectors)) + threads_x - 1) / threads_x);
  // Rows of few elements share kernels, and so do odd ones in registers.
  if (vector == 1)
    unroll = std::max(unroll, elements);
  else if (skew && vectors > 8 * warp && vectors <= skewed_steps * 256)
    unroll = skewed_steps;
  else if (vectors > 1)
    unroll = std::max(unroll, vectors <= 2 * warp ? 2 : 1);
  const bool busy = stays && instructions_decide(p);
  bool serial = false, split = false;
  OnChip::Once once = OnChip::Once::None;
  Place place = Place::Registers;
  if (stays) {
    const int shifts = std::popcount(static_cast<uint64_t>(shifted(p, r, hints, wide)));
    const OnChip kept =
        on_chip(device, shape, {.threads_x = threads_x, .unroll = unroll}, busy, vectors, vector,
                skew, shifts, vector > 1 && copied(p, wide, vector), is_linear(p, r));
    place = kept.place;
    threads_x = kept.threads_x;
    unroll = kept.unroll;
    cluster = kept.cluster;
    min_blocks = kept.min_blocks;
    ring = kept.ring;
    once = kept.once;
    if (p.single_pass && kept.waits) single_pass = true;
  } else {
    place = Place::Reload;
  }
  // Few long rows: one block each would leave processors idle.
  const int rows_a_block = std::max(1, block_threads / threads_x);
  const int64_t blocks = (rows + rows_a_block - 1) / rows_a_block * cluster;
  const bool few = blocks < device.processors && length >= grid_row;
  if (few && !shape.stores_last) {
    if (shape.phases > 1 && p.single_pass) single_pass = true;
    const int phases = single_pass ? shape_of(*p.single_pass).phases : shape.phases;
    split = phases == 1;
    if (split) {
      place = Place::Reload;
      cluster = 1;
      threads_x = 256;
    } else {
      single_pass = false;
    }
  } else if (few && hints.pieces && length > (int64_t{1} << 16)) {
    return {.scheduler = "pieces", .fields = {}};
  }
  if (place == Place::Reload) {
    min_blocks = 0;
    ring = 0;
    single_pass = single_pass || (stays && p.single_pass != nullptr);
    // What takes in several elements at once has enough to do with four steps side by side.
    const int most = vector > 1 && (shape.staged > 1 || (single_pass && !split)) ? 4 : 8;
    if (unroll > most || split) {
      serial = true;
      unroll = split ? most : 4;
      if (skew && single_pass) threads_x = 256;
    }
  }
  const int threads_y = std::max(1, block_threads / threads_x);
  int rolled = 0;
  if (place == Place::Shared && !ring) {  // walked in a loop, as many steps as the row has
    serial = true;
    rolled = 1;
    if (cluster >= 8 && (skew || single_pass)) threads_x = 256;
    // Side by side: more take registers that more blocks use better.
    unroll = skew || threads_x == most_threads ? 1 : 2;
  }
  // What a later walk would compute again stays beside the row.
  const Problem& walked = used(p, single_pass);
  const auto again = busy ? static_cast<int>(computed_again(walked).size()) : 0;
  const bool keep = place == Place::Registers && vector > 1 && !skew && !serial &&
                    again * unroll * vector <= register_elements && busy;
  return {.scheduler = "inner",
          .fields = {{"threads_x", threads_x},
                     {"threads_y", threads_y},
                     {"unroll", unroll},
                     {"vector", vector},
                     {"serial", serial},
                     {"rolled", rolled},
                     {"place", static_cast<int64_t>(place)},
                     {"cluster", cluster},
                     {"ring", ring},
                     {"blocks", split  ? grid_waves * device.processors
                                : ring ? resident_clusters(device, cluster) * cluster * min_blocks
                                       : 0},
                     {"min_blocks", min_blocks},
                     {"once", place == Place::Reload ? 0 : once_of(p, once)},
                     {"single_pass", single_pass},
                     {"keep", again && keep},
                     {"skew", skew},
                     {"whole", whole},
                     {"wide", wide},
                     {"shifted", shifted(p, r, hints, wide)}}};
}

Schedule schedule_inner(Problem& both, const Plan& plan) {
  Schedule s;
  s.single_pass = plan.get("single_pass") != 0;
  Problem& p = used(both, s.single_pass);
  Exprs& exprs = p.refined.exprs;
  const int vector = static_cast<int>(plan.get("vector"));
  const int64_t x = plan.get("threads_x"), y = plan.get("threads_y"), unroll = plan.get("unroll");
  const int64_t cluster = plan.get("cluster"), blocks = plan.get("blocks");
  enum { K, R };
  s.dims = {{.axes = kept_axes(p)}, {.axes = reduced_axes(p)}};
  s.threads = static_cast<int>(x * y);
  s.min_blocks = static_cast<int>(plan.get("min_blocks"));
  s.rolled = static_cast<int>(plan.get("rolled"));
  s.whole = static_cast<int>(plan.get("whole"));
  s.once = plan.get("once");
  if (plan.get("keep"))
    for (ValueId v : computed_again(p)) s.stored.push_back({v, Place::Registers});
  s.tail = plan.get("skew") != 0;
  s.widths = widths_of(p, plan.get("wide"), vector);
  s.shifted = plan.get("shifted");
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
  if (s.ring) {
    Expr tiles = exprs.ceil_div(extent_of(p, kept_axes(p)), y);
    Expr clusters = exprs.apply(Op::minimum, {exprs.constant(blocks / cluster), tiles});
    loop(K, Bind::Serial, 0);
    loop(K, Bind::Grid, 0, exprs.apply(Op::maximum, {clusters, exprs.constant(1)}));
  } else {
    loop(K, Bind::Grid, 0);
  }
  if (blocks && !s.ring) {
    // As many blocks a row as the grid has for it, each with at least one step.
    Expr tiles = exprs.ceil_div(extent_of(p, kept_axes(p)), y);
    Expr share =
        exprs.div(exprs.constant(blocks), exprs.apply(Op::maximum, {tiles, exprs.constant(1)}));
    Expr steps = exprs.ceil_div(extent_of(p, reduced_axes(p)), x * unroll * vector);
    Expr count = exprs.apply(Op::minimum, {share, steps});
    loop(R, Bind::Grid, 0, exprs.apply(Op::maximum, {count, exprs.constant(1)}));
    s.finish = Finish::LastBlock;
  }
  loop(R, Bind::Unroll, unroll);
  if (cluster > 1) loop(R, Bind::Cluster, cluster);
  loop(K, Bind::ThreadY, y);
  loop(R, Bind::ThreadX, x);
  if (vector > 1) loop(R, Bind::Vector, vector);
  s.stages.push_back(std::move(stage));
  const auto place = static_cast<Place>(plan.get("place"));
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    const bool stays = !a.store && moves_rows(p, a) && !is_loaded(a);
    s.places.push_back(stays ? place : Place::Reload);
  }
  verify(s, static_cast<int>(p.refined.axes.size()));
  return s;
}

void check_inner(const Plan& planned, const Plan& wanted) {
  const int64_t x = planned.get("threads_x");
  const bool serial = planned.get("serial") != 0;
  const bool rolled = planned.get("rolled") != 0;
  const int64_t unroll = planned.get("unroll");
  // Of a skewed row, each element that no vector holds has a thread: at most a line and two
  // vectors.
  const int64_t least = !planned.get("skew") ? 1 : serial ? std::min<int64_t>(3 * warp, x) : x;
  check_fields(planned, wanted,
               {{"once", 0, int64_t{1} << 62},
                {"keep", 0, planned.get("keep")},
                {"threads_x", least, most_threads},
                {"threads_y", 1, most_threads},
                {"unroll", 1, rolled ? 8 : 64},
                {"min_blocks", 0, 8},
                {"rolled", rolled ? 1 : 0, rolled ? 16 : 0},
                {"blocks", planned.get("blocks") ? 1 : 0, planned.get("blocks") ? 1 << 20 : 0}});
  const auto check = [&](bool ok, const std::string& is, const std::string& expected) {
    FUSER_CHECK(ok, User, "plan-1", "plan: ", is, " is not possible here; expected ", expected,
                "\n  planned: ", to_string(planned));
  };
  const int64_t threads = wanted.get("threads_x"), all = threads * wanted.get("threads_y");
  const int64_t taken = threads * wanted.get("unroll");
  check((threads & (threads - 1)) == 0 || threads == all, text("threads_x=", threads),
        "a power of two, or all threads of a block");
  check(serial || taken >= x * unroll, text("threads_x * unroll=", taken),
        text("at least ", x * unroll, ", for the row"));
  // A warp takes part in the reductions of one row or of several, and is whole.
  check(all % warp == 0 && all <= most_threads, text("threads_x * threads_y=", all),
        text("a multiple of ", warp, " up to ", most_threads));
}

}  // namespace fuser
