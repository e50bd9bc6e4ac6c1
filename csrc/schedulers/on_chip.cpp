// schedulers/on_chip.h
//
// The numbers of threads and steps are those that were fastest on an H200; beside each rule stands
// what it gains there.
#include "schedulers/on_chip.h"

#include <algorithm>
#include <optional>

namespace fuser {
namespace {

constexpr int register_vectors = 8;     // of a thread: more leave no room for arithmetic
constexpr int busy_elements = 16;       // of a thread, where instructions decide,
constexpr int busy_bytes = 96;          // and of all tensors that it reads of them
constexpr int wide_steps = 3;           // of one that 512 threads serve
constexpr int least_cached = 48 << 10;  // bytes that L1 does not hold beside rows in shared memory
constexpr int least_crowded = 128 << 10;  // bytes beside which stores take no place in L1
constexpr int few_operations = 12;        // for which 40 registers do, 16 of them holding the row
constexpr int cluster_vectors = 5120;  // of a row that one block holds; more are cut over a cluster
constexpr int fewest_threads = 128;    // of a block of such a cluster
constexpr int row_registers = 64;      // of a thread that holds register_vectors
constexpr int one_block_row = 80 << 10;  // bytes; a block of more has a processor for itself
// Rows of more bytes, or of more elements, have more blocks than two on a processor.
constexpr int small_blocks_row = 64 << 10, small_blocks_elements = 20 << 10;
constexpr int sharing_threads = 512;    // of a block, of those that find in L1 what all rows read:
constexpr int most_shared = 512 << 10;  // so many bytes,
constexpr int shared_registers = 8;     // and so many registers for that of a vector
constexpr int64_t outweighed_part = 64 << 10;  // bytes of a block, of a row beside more
// Of a block that has a part of a row in shared memory: they may take many registers and leave some
// for a second block.
constexpr int parted_threads = 256;
constexpr int held_steps = 6, held_threads = 704;  // of a block that keeps what all rows read
constexpr int held_registers = 48;                 // of a thread, for that
// The same of floats of 32 bits and more, which lie in registers as they are computed with.
constexpr int wide_held_steps = 8, wide_held_threads = 512, wide_held_registers = 64;
constexpr int divided_row = 64 << 10;  // bytes, from which rows with divided coordinates are cut
constexpr int64_t divided_part = 40 << 10;  // bytes of a block, of these

// Blocks of a cluster. Those of 16 need as many processors side by side, as whole GPUs for data
// centers have them: half as much of a row in each block then leaves room for a second one.
int largest_cluster(const Device& device) {
  if (!device.clusters) return 1;
  return device.processors >= 100 && device.shared_per_processor >= 200 << 10 ? 16 : 8;
}

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

// Do all rows read more than a row is (a layer norm's weight and bias)?
bool outweighs(const Shape& shape) { return shape.cached_bytes > shape.staged_bytes; }

// What the rules below ask of a row.
struct Asked {
  const Device& device;
  const Shape& shape;
  const WalkedRow& row;
  OnChip planned;
  int staged = std::max(1, shape.staged);
  int64_t row_bytes = row.vectors * row.vector * shape.staged_bytes;
  int64_t cached_bytes = shape.cached_bytes * row.vectors * row.vector;  // what all rows read
  int64_t per_block = device.shared_per_processor / 2 - 2048;
  int largest = row.can_copy ? largest_cluster(device) : 1;
  bool whole = row.vector > 1 && !row.skew;  // vectors
  bool crowded = row.shifted_reads > 1;
  // A long row to be cut, beside more that all rows read, or as much where it is combined twice.
  bool outweighed = whole && row.linear && largest > 1 && row_bytes > one_block_row &&
                    (outweighs(shape) ||
                     (shape.phases > 1 && shape.cached_bytes == shape.staged_bytes));
  int registers = std::max(row.vector, vector_bytes / 4);  // for a vector that is computed with
  bool few_cached = row.vector * shape.cached_bytes <= 4 * shared_registers;
  bool simple = shape.operations <= few_operations;

  int steps_of(int threads) const {
    return static_cast<int>((row.vectors + threads - 1) / threads);
  }
  int resident(int threads) const { return device.threads_per_processor / threads; }
};

// The row in registers of a cluster whose blocks have so many threads; false where it is too long.
bool cut_into_registers(const Asked& a, OnChip& o, int threads) {
  o.place = Place::Registers;
  o.min_blocks = a.device.registers_per_processor / (row_registers * threads);
  return cut(o, a.row.vectors, register_vectors / a.staged, threads, a.largest);
}

// The row in shared memory of the smallest cluster whose blocks have no more than `most` bytes of
// it; false where no cluster leaves each of two blocks room for its part.
bool cut_into_shared(const Asked& a, OnChip& o, int64_t most) {
  most = std::min(most, a.per_block);
  for (o.cluster = 2; o.cluster < a.largest && a.row_bytes / o.cluster > most;) o.cluster *= 2;
  o.place = Place::Shared;
  o.threads_x = parted_threads;
  return a.row_bytes / o.cluster <= a.per_block;
}

// The rules, in the order in which they are asked: each gives the row its place, or none. `o`: who
// walks it so far.

// The fewer threads, the fewer instructions to combine what they have: a softmax of 512 elements
// with a mask and dropout takes 108 us with one warp a row, 116 with two, and in steps of four
// elements 119, 122 and 148 us with one, two and four (H200, 50 million elements).
// Two tensors of float32 would not leave them the registers: dropout, add and layer norm of 1024
// take 35.4 us with 16 elements a thread, 34.0 with 8.
std::optional<OnChip> where_instructions_decide(const Asked& a, OnChip o) {
  const auto few = [&](int steps) {
    const int elements = steps * a.row.vector;
    return elements <= busy_elements && elements * a.shape.staged_bytes <= busy_bytes;
  };
  if (!a.whole || !a.row.busy || !few(o.unroll)) return std::nullopt;
  for (; o.threads_x > warp && few(2 * o.unroll); o.threads_x /= 2) o.unroll *= 2;
  return o;
}

// What rows are only reduced to: combining costs more than reading, and fewer threads combine.
std::optional<OnChip> only_reduced(const Asked& a, OnChip o) {
  if (!a.whole || a.shape.stores_rows || a.staged != 1 || o.threads_x != 256 || o.unroll != 2)
    return std::nullopt;
  o.threads_x /= 2;
  o.unroll *= 2;
  return o;
}

// More threads rather than more registers: rows of two tensors, and rows of four vectors a thread,
// gain 2 to 12% of a copy over rows in shared memory.
OnChip by_more_threads(const Asked& a, OnChip o) {
  while (a.whole && o.unroll > 1 && o.unroll * a.staged >= 4 && o.threads_x < 512) {
    o.threads_x *= 2;
    o.unroll = (o.unroll + 1) / 2;
  }
  return o;
}

std::optional<OnChip> in_registers(const Asked& a, OnChip o) {
  if (a.whole && o.threads_x * o.unroll <= 32 * warp && o.unroll * a.staged <= 4) return o;
  // A warp with a vector of each: shared memory would be a second way and a barrier.
  if (a.whole && o.threads_x <= warp && o.unroll == 1 && a.staged <= register_vectors) return o;
  // Combined once, so that there is less to wait for: an RMS norm of 16384 elements of float32 on
  // an H200 has 97% of a copy in registers, 94 in shared memory; one of 64 elements a thread 90
  // and 94.
  // Combined twice, two blocks, where rows in shared memory would take the place of what all rows
  // read in L1: layer norms of 16,384 elements of float32 go from 94 to 96% of a copy, of 10,000
  // from 92 to 97. A softmax gains nothing.
  if (a.whole && a.staged == 1 && o.unroll > 4 && o.unroll * a.registers <= register_elements &&
      (a.shape.phases == 1 || (a.shape.cached_bytes && a.simple))) {
    if (a.shape.phases > 1) o.min_blocks = std::min(2, a.resident(o.threads_x));
    return o;
  }
  if (a.row.skew && a.staged == 1 && o.threads_x <= 256) return o;
  return std::nullopt;
}

// What all rows read comes from L1 where rows in shared memory do not take its place: a layer norm
// of 16384 elements of bfloat16 goes from 91 to 96% of a copy with three blocks, to 94 with two.
std::optional<OnChip> beside_what_all_read(const Asked& a, OnChip o) {
  if (!a.whole || o.threads_x != 512 || a.cached_bytes <= least_cached) return std::nullopt;
  if (a.staged * o.unroll == 4) {
    o.min_blocks = std::min(a.simple ? 3 : 2, a.resident(o.threads_x));
    return o;
  }
  // The same in six steps, two blocks: of 24,576 elements from 88 to 95%.
  if (a.staged == 1 && a.steps_of(512) == 6 && a.simple && a.device.threads_per_processor >= 1024) {
    o.unroll = 6;
    o.min_blocks = 2;
    o.once = OnChip::Once::Stores;
    return o;
  }
  return std::nullopt;
}

// Where all rows read as much as a row is, or more, the blocks of a processor read the same parts
// of that, which stay in L1 where neither rows nor stores take the place. Layer norms on an H100,
// share of a copy, beside persistent clusters: bfloat16 of 42,000 elements 94% (88),
// 50,256 95 (89), 131,072 94 (93); float32 of 24,576 98 (94), 65,536 97 (95); longer ones lose 2 to
// 8%. Of the sum of two tensors, beside blocks of 128 threads and one walk: bfloat16 of 40,960
// elements 91% (78), 65,536 97 (93), 131,072 95 (84).
std::optional<OnChip> over_blocks_that_share(const Asked& a, OnChip) {
  if (!a.outweighed || a.row.busy || a.cached_bytes > most_shared || !a.few_cached)
    return std::nullopt;
  OnChip o = a.planned;
  o.once = OnChip::Once::Stores;
  if (!cut_into_registers(a, o, sharing_threads)) return std::nullopt;
  return o;
}

// The fewer threads a block has, the more of them a processor has, at different points of their
// rows. Eight of 128 rather than two of 512: softmax of 65,536 elements of bfloat16 99% of a copy
// (one block of 1024 threads: 94), of 262,144 97 (94), of 32,768 of float32 99 (96), of 32,768 of
// bfloat16 99 (97, two blocks with the row in shared memory); RMS norms of these gain 1 to 2%. On
// an H100 rows of 28,672 to 38,000 elements of bfloat16, and of 19,000 of float32, gain 1 to 3%.
std::optional<OnChip> over_small_blocks(const Asked& a, OnChip) {
  if (!a.whole || !a.row.linear || a.largest == 1 || a.outweighed || outweighs(a.shape) ||
      (a.row_bytes <= small_blocks_row && a.row.vectors * a.row.vector <= small_blocks_elements))
    return std::nullopt;
  OnChip o = a.planned;
  o.waits = true;
  for (int threads = fewest_threads; threads <= most_threads / 2; threads *= 2)
    if (cut_into_registers(a, o, threads)) return o;
  return std::nullopt;
}

// Where all rows read more than L1 holds, persistent blocks keep it in registers, or L2 would have
// to deliver three times the bytes of the rows. One block of so many threads that it holds the row
// would wait when it combines: on an H200 layer norms of 262,144 elements of bfloat16 go from 78 to
// 92% of a copy.
std::optional<OnChip> over_persistent_cluster(const Asked& a, OnChip) {
  if (!a.outweighed || a.row.busy || a.cached_bytes <= most_shared) return std::nullopt;
  OnChip o = a.planned;
  o.place = Place::Shared;
  o.ring = 2;
  o.min_blocks = 1;
  o.once = OnChip::Once::Stores;
  const bool wide = a.row.vector * 4 <= vector_bytes;
  if (!cut(o, a.row.vectors, wide ? wide_held_steps : held_steps,
           wide ? wide_held_threads : held_threads, a.largest))
    return std::nullopt;
  const int64_t bytes =
      int64_t{o.ring} * o.unroll * o.threads_x * a.row.vector * a.shape.staged_bytes;
  const int held = o.unroll * a.row.vector * a.shape.cached_bytes / 4;
  if (held > (wide ? wide_held_registers : held_registers) ||
      bytes > a.device.shared_per_block - 8 * 1024)
    return std::nullopt;
  return o;
}

// Where registers hold neither the row nor what all read, or each walk computes much: parts in
// shared memory, walked once before the last walk. Layer norms of bfloat16 with weights of float32
// on an H100, beside one block a row: 50,256 elements 91% (76), 65,536 93 (85); of a sum of two
// tensors 93%, where 512 threads leave one block room for its registers 62; behind a gelu 51 (38).
std::optional<OnChip> over_blocks_with_parts(const Asked& a, OnChip o) {
  if (!a.outweighed || !cut_into_shared(a, o, outweighed_part)) return std::nullopt;
  o.once = OnChip::Once::Stores;
  o.waits = true;
  return o;
}

// Rows with divided coordinates: the smaller the blocks, the more of them are at different points
// of their rows, some loading while others compute. On an H200 group norms with silu go from 85
// to 90% of a copy (2048 rows of 80 KB) and 75 to 77 (512 of them), of float32 from 82 to 89.
std::optional<OnChip> divided_over_cluster(const Asked& a, OnChip o) {
  if (!a.whole || a.row.linear || a.staged != 1 || !a.row.can_copy || a.largest == 1 ||
      a.row_bytes <= divided_row || !cut_into_shared(a, o, divided_part))
    return std::nullopt;
  return o;
}

// The fewer blocks a processor has room for, the more threads each needs all the same; the last
// step of a skewed walk has little to do.
void take_threads(const Asked& a, OnChip& o) {
  const int64_t kib = a.row_bytes / 1024;
  if (a.row_bytes > one_block_row || (kib >= 64 && !a.row.skew && a.shape.phases == 1)) {
    // Combined once, with 1024 threads an RMS norm with a bias spills.
    o.threads_x = a.crowded && a.shape.phases == 1 ? 512 : most_threads;
    o.waits = a.crowded;
    // The compiler takes a few registers more where it knows the length, and one block remains.
    if (a.row.skew && a.staged == 1 && a.simple)
      o.min_blocks = std::min(2, a.resident(o.threads_x));
  } else if (a.row.skew) {
    o.threads_x = kib > 20 ? 512 : kib > 16 ? 256 : 128;
    // With two shifted vectors 40 registers are enough: a layer norm of 16,385 elements of
    // bfloat16 goes from 76 to 83% of a copy.
    if (a.crowded && o.threads_x == 512) {
      o.threads_x = 384;
      o.min_blocks = a.device.threads_per_processor * 3 / 4 / o.threads_x;
    }
  }
}

std::optional<OnChip> in_shared_memory(const Asked& a, OnChip o) {
  if (o.unroll * a.staged < (a.crowded ? 3 : 4) || !a.row.can_copy || a.row_bytes > a.per_block)
    return std::nullopt;
  if (a.row.skew && !a.crowded && a.steps_of(o.threads_x) * a.staged <= wide_steps) {
    o.unroll = a.steps_of(o.threads_x);
    return o;
  }
  o.place = Place::Shared;
  // L1 has little beside the rows: a layer norm of 50,256 elements of bfloat16 goes from 81 to
  // 84% of a copy, of 32,768 from 89 to 90%; an RMS norm of half their weights loses 1%.
  if (a.row.skew ? a.crowded : outweighs(a.shape) || a.cached_bytes >= least_crowded)
    o.once = OnChip::Once::Stores;
  take_threads(a, o);
  return o;
}

std::optional<OnChip> in_registers_of_many(const Asked& a, OnChip o) {
  if (o.unroll * a.staged <= register_vectors) return o;
  // Two numbers of 64 bits are as many registers as four of 32, and take more to compute with.
  const int most = a.row.vector * 4 < vector_bytes ? register_vectors / 2 : register_vectors;
  // Odd rows are cut over a cluster where there is one: few kernels serve them all.
  if (a.row.vector == 1 || (a.whole && !a.few_cached) || (a.row.skew && a.largest > 1) ||
      a.steps_of(most_threads) * a.staged > most)
    return std::nullopt;
  o.threads_x = most_threads;
  o.unroll = a.steps_of(most_threads);
  // A layer norm of 65,536 elements of bfloat16 goes from 86 to 90% of a copy without its stores
  // there.
  if (a.cached_bytes > a.device.shared_per_processor) o.once = OnChip::Once::Rows;
  o.waits = o.once == OnChip::Once::None;
  return o;
}

// In the shared memory of a cluster or of a block that has a processor for itself, or nowhere: it
// is read again, which costs half as much as a copy of it; on an H100 one block a processor has 85%
// of a copy (a layer norm of 65,536 elements of bfloat16 with weights of float32).
OnChip in_parts(const Asked& a, OnChip o) {
  int64_t part = a.row_bytes;
  while (o.cluster < a.largest &&
         (part > a.per_block || a.row.vectors / o.cluster > cluster_vectors)) {
    o.cluster *= 2;
    part = a.row_bytes / o.cluster;
  }
  if (!a.row.can_copy || part > a.device.shared_per_block - 2048) {
    o.place = Place::Reload;
    o.cluster = 1;
    return o;
  }
  o.place = Place::Shared;
  if (o.cluster == 1) take_threads(a, o);
  o.waits = true;
  return o;
}

}  // namespace

OnChip on_chip(const Device& device, const Shape& shape, const WalkedRow& row,
               const OnChip& planned) {
  const Asked a{.device = device, .shape = shape, .row = row, .planned = planned};
  for (const auto rule : {where_instructions_decide, only_reduced})
    if (const auto o = rule(a, planned)) return *o;
  const OnChip wider = by_more_threads(a, planned);
  for (const auto rule : {over_blocks_that_share, over_small_blocks, in_registers,
                          beside_what_all_read, over_persistent_cluster, over_blocks_with_parts,
                          divided_over_cluster, in_shared_memory, in_registers_of_many})
    if (const auto o = rule(a, wider)) return *o;
  return in_parts(a, wider);
}

}  // namespace fuser
