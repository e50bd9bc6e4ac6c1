// schedulers/on_chip.h
//
// The numbers of threads and steps are those that were fastest on an H200; beside each rule stands
// what it gains there.
#include "schedulers/on_chip.h"

#include <algorithm>
#include <optional>

namespace fuser {
namespace {

constexpr int warp = 32;
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
constexpr int held_steps = 6, held_threads = 704;  // of a block that keeps what all rows read
constexpr int held_registers = 48;                 // of a thread, for that
// The same of floats of 32 bits and more, which lie in registers as they are computed with.
constexpr int wide_held_steps = 8, wide_held_threads = 512, wide_held_registers = 64;
constexpr int divided_row = 64 << 10;   // bytes, from which rows with divided coordinates are cut
constexpr int divided_part = 40 << 10;  // bytes of a block, of these

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

// Rows that would leave a processor to one block, which waits when it combines: over a cluster, of
// which a processor has two. Where all rows read more than a row is (a layer norm's weight and
// bias), the blocks are persistent and keep that in registers, or L2 would have to deliver three
// times the bytes of the rows. On an H200 layer norms go from 78 to 92% of a copy (262,144 elements
// of bfloat16), 84 to 88 (50,256), 87 to 90 (65,536 of float32); RMS norms from 89 to 95, 94 to 97
// and 89 to 97; softmax from 86 to 94 (262,144), 93 to 99 (65,536 of float32). Coordinates that are
// divided (group norms) would spill.
std::optional<OnChip> over_cluster(const Device& device, const Shape& shape, const WalkedRow& row,
                                   const OnChip& planned, int largest) {
  OnChip o = planned;
  const int staged = std::max(1, shape.staged);
  if (!outweighs(shape)) {
    // The fewer threads a block has, the more of them a processor has, at different points of their
    // rows. Eight of 128 rather than two of 512: softmax of 65,536 elements of bfloat16 99% of a
    // copy (one block of 1024 threads: 94), of 262,144 97 (94), of 32,768 of float32 99 (96); RMS
    // norms of these gain 1 to 2%.
    o.place = Place::Registers;
    o.waits = true;
    for (int threads = fewest_threads; threads <= most_threads / 2; threads *= 2) {
      o.min_blocks = device.registers_per_processor / (row_registers * threads);
      if (cut(o, row.vectors, register_vectors / staged, threads, largest)) return o;
    }
    return std::nullopt;
  }
  o.place = Place::Shared;
  o.ring = 2;
  o.min_blocks = 1;
  o.once = OnChip::Once::Stores;
  const bool wide = row.vector * 4 <= vector_bytes;
  if (!row.can_copy || !cut(o, row.vectors, wide ? wide_held_steps : held_steps,
                            wide ? wide_held_threads : held_threads, largest))
    return std::nullopt;
  const int64_t bytes = int64_t{o.ring} * o.unroll * o.threads_x * row.vector * shape.staged_bytes;
  const int held = o.unroll * row.vector * shape.cached_bytes / 4;
  if (held > (wide ? wide_held_registers : held_registers) ||
      bytes > device.shared_per_block - 8 * 1024)
    return std::nullopt;
  return o;
}

}  // namespace

OnChip on_chip(const Device& device, const Shape& shape, const WalkedRow& row,
               const OnChip& planned) {
  const int64_t vectors = row.vectors;
  const int vector = row.vector;
  OnChip o = planned;
  const int staged = std::max(1, shape.staged);
  const auto steps_of = [&](int threads) {
    return static_cast<int>((vectors + threads - 1) / threads);
  };
  const int64_t row_bytes = vectors * vector * shape.staged_bytes;
  const int64_t per_block = device.shared_per_processor / 2 - 2048;
  const bool crowded = row.shifted_reads > 1;
  // More threads rather than more registers: rows of two tensors, and rows of four vectors a
  // thread, gain 2 to 12% of a copy over rows in shared memory.
  const bool whole = vector > 1 && !row.skew;
  // The fewer threads, the fewer instructions to combine what they have: a softmax of 512 elements
  // with a mask and dropout takes 108 us with one warp a row, 116 with two, and in steps of four
  // elements 119, 122 and 148 us with one, two and four (H200, 50 million elements).
  // Two tensors of float32 would not leave them the registers: dropout, add and layer norm of 1024
  // take 35.4 us with 16 elements a thread, 34.0 with 8.
  const auto few = [&](int steps) {
    return steps * vector <= busy_elements && steps * vector * shape.staged_bytes <= busy_bytes;
  };
  if (whole && row.busy && few(o.unroll)) {
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
  // A warp with a vector of each: shared memory would be a second way and a barrier.
  if (whole && o.threads_x <= warp && o.unroll == 1 && staged <= register_vectors) return o;
  // Combined once, so that there is less to wait for: an RMS norm of 16384 elements of float32 on
  // an H200 has 97% of a copy in registers, 94 in shared memory; one of 64 elements a thread 90
  // and 94.
  // Combined twice, two blocks, where rows in shared memory would take the place of what all rows
  // read in L1: layer norms of 16,384 elements of float32 go from 94 to 96% of a copy, of 10,000
  // from 92 to 97. A softmax gains nothing.
  if (whole && staged == 1 && o.unroll > 4 && o.unroll * vector <= register_elements &&
      (shape.phases == 1 || (shape.cached_bytes && shape.operations <= few_operations))) {
    if (shape.phases > 1) o.min_blocks = std::min(2, device.threads_per_processor / o.threads_x);
    return o;
  }
  if (row.skew && staged == 1 && o.threads_x <= 256) return o;
  // What all rows read comes from L1 where rows in shared memory do not take its place: a layer
  // norm of 16384 elements of bfloat16 goes from 91 to 96% of a copy with three blocks, to 94 with
  // two.
  if (vector > 1 && !row.skew && staged * o.unroll == 4 && o.threads_x == 512 &&
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
  const int largest = row.can_copy ? largest_cluster(device) : 1;
  const bool one_block = outweighs(shape) && row_bytes > per_block &&
                         steps_of(most_threads) * staged <= register_vectors;
  if (whole && row.linear && largest > 1 && row_bytes > one_block_row && !one_block &&
      o.unroll * staged > register_vectors)
    if (const auto cluster = over_cluster(device, shape, row, planned, largest)) return *cluster;
  // Rows with divided coordinates: the smaller the blocks, the more of them are at different points
  // of their rows, some loading while others compute. On an H200 group norms with silu go from 85
  // to 90% of a copy (2048 rows of 80 KB) and 75 to 77 (512 of them), of float32 from 82 to 89.
  if (whole && !row.linear && staged == 1 && row.can_copy && largest > 1 &&
      row_bytes > divided_row) {
    for (o.cluster = 2; o.cluster < largest && row_bytes / o.cluster > divided_part;)
      o.cluster *= 2;
    if (row_bytes / o.cluster <= per_block) {
      o.place = Place::Shared;
      o.threads_x = 256;
      return o;
    }
    o.cluster = 1;
  }
  if (o.unroll * staged >= (crowded ? 3 : 4) && row.can_copy && row_bytes <= per_block) {
    if (row.skew && !crowded && steps_of(o.threads_x) * staged <= wide_steps) {
      o.unroll = steps_of(o.threads_x);
      return o;
    }
    o.place = Place::Shared;
    // L1 has little beside the rows: a layer norm of 50,256 elements of bfloat16 goes from 81 to
    // 84% of a copy, of 32,768 from 89 to 90%; an RMS norm of half their weights loses 1%.
    if (row.skew ? crowded
                 : shape.cached_bytes > shape.staged_bytes ||
                       shape.cached_bytes * vectors * vector >= least_crowded)
      o.once = OnChip::Once::Stores;
    // The fewer blocks a processor has room for, the more threads each needs all the same; the last
    // step of a skewed walk has little to do.
    const int64_t kib = row_bytes / 1024;
    if (row_bytes > one_block_row || (kib >= 64 && !row.skew && shape.phases == 1)) {
      // Combined once, with 1024 threads an RMS norm with a bias spills.
      o.threads_x = crowded && shape.phases == 1 ? 512 : most_threads;
      o.waits = crowded;
      // The compiler takes a few registers more where it knows the length, and one block remains.
      if (row.skew && staged == 1 && shape.operations <= few_operations)
        o.min_blocks = std::min(2, device.threads_per_processor / o.threads_x);
    } else if (row.skew) {
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
  if (vector > 1 && !(row.skew && largest > 1) &&
      steps_of(most_threads) * staged <= register_vectors) {
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

}  // namespace fuser
