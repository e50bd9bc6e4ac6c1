// Implements schedulers/analysis/placement.h as a list of rules; the first rule that applies
// decides.
//
// A common operand is a read that varies over R alone (a weight): all rows read it. The constants
// are tuned on data center GPUs; docs/design/tuning.md lists the measurements.
#include "schedulers/analysis/placement.h"

#include <algorithm>
#include <optional>

#include "cost/tuning.h"
#include "schedulers/analysis/reduction_shape.h"

namespace fuser::schedulers {

using namespace schedule;
using namespace cost::placement;

namespace {

// Returns the blocks of the largest cluster. Clusters of 16 blocks need 16 SMs in one group, as
// complete GPUs for data centers have. Half as much of a row per block then leaves room for a
// second block.
int largest_cluster(const Device& device) {
  if (!device.clusters) return 1;
  return device.sms >= 100 && device.shared_per_sm >= 200 << 10 ? 16 : 8;
}

// Splits the row over the smallest cluster whose blocks process it in `steps` steps. Returns false
// if the row is too long. The last steps of shorter rows do nothing, so that rows of many lengths
// share kernels.
bool cut(RowPlacement& o, int64_t vectors, int steps, int threads, int largest) {
  o.threads_x = threads;
  o.unroll = steps;
  for (o.cluster = 2; o.cluster < largest && vectors > int64_t{o.cluster} * steps * threads;)
    o.cluster *= 2;
  return vectors <= int64_t{o.cluster} * steps * threads;
}

// Returns whether the common operands have more bytes than a row (a layer norm's weight and bias).
bool outweighs(const ReductionShape& shape) { return shape.cached_bytes > shape.persistent_bytes; }

// Inputs of the rules below.
struct Asked {
  const Device& device;
  const ReductionShape& shape;
  const RowTraits& row;
  RowPlacement planned;
  int persistent = std::max(1, shape.persistent);
  int64_t row_bytes = row.vectors * row.vector * shape.persistent_bytes;
  // Bytes of the common operands.
  int64_t cached_bytes = shape.cached_bytes * row.vectors * row.vector;
  int64_t per_block = device.shared_per_sm / 2 - 2048;
  int largest = row.can_copy ? largest_cluster(device) : 1;
  bool whole = row.vector > 1 && !row.peel;  // True if vectors are aligned and complete
  bool crowded = row.unaligned_reads > 1;
  // True for a long row that can be split, if the common operands outweigh it, or are as large and
  // the row has two phases.
  bool outweighed = whole && row.linear && largest > 1 && row_bytes > one_block_row &&
                    (outweighs(shape) ||
                     (shape.phases > 1 && shape.cached_bytes == shape.persistent_bytes));
  // Registers of a vector in its compute type.
  int registers = std::max(row.vector, vector_bytes / 4);
  bool few_cached = row.vector * shape.cached_bytes <= 4 * shared_registers;
  bool simple = shape.operations <= few_operations;

  int steps_of(int threads) const {
    return static_cast<int>((row.vectors + threads - 1) / threads);
  }
  int resident(int threads) const { return device.threads_per_sm / threads; }
};

// Keeps the row in the registers of a cluster whose blocks have `threads` threads. Returns false if
// the row is too long.
bool cut_into_registers(const Asked& a, RowPlacement& o, int threads) {
  o.persistent_in = Place::Registers;
  o.min_blocks_per_sm = a.device.registers_per_sm / (row_registers * threads);
  return cut(o, a.row.vectors, register_vectors / a.persistent, threads, a.largest);
}

// Keeps the row in the shared memory of the smallest cluster whose blocks hold at most `most`
// bytes. Returns false if no cluster leaves room for two blocks per SM.
bool cut_into_shared(const Asked& a, RowPlacement& o, int64_t most) {
  most = std::min(most, a.per_block);
  for (o.cluster = 2; o.cluster < a.largest && a.row_bytes / o.cluster > most;) o.cluster *= 2;
  o.persistent_in = Place::Shared;
  o.threads_x = parted_threads;
  return a.row_bytes / o.cluster <= a.per_block;
}

// The rules, in order. Each returns a placement, or nullopt if it does not apply. `o` is the
// placement so far.

// If issue slots dominate, then use fewer threads with more elements each, which take fewer
// instructions to combine. busy_bytes limits the elements, because two float32 tensors would take
// the registers of the arithmetic.
std::optional<RowPlacement> where_instructions_decide(const Asked& a, RowPlacement o) {
  const auto few = [&](int steps) {
    const int elements = steps * a.row.vector;
    return elements <= busy_elements && elements * a.shape.persistent_bytes <= busy_bytes;
  };
  if (!a.whole || !a.row.busy || !few(o.unroll)) return std::nullopt;
  for (; o.threads_x > warp && few(2 * o.unroll); o.threads_x /= 2) o.unroll *= 2;
  return o;
}

// Pure reductions use fewer threads per row, because the block reduction costs more than the loads.
std::optional<RowPlacement> only_reduced(const Asked& a, RowPlacement o) {
  if (!a.whole || a.shape.stores_rows || a.persistent != 1 || o.threads_x != 256 || o.unroll != 2)
    return std::nullopt;
  o.threads_x /= 2;
  o.unroll *= 2;
  return o;
}

// Prefers more threads to more registers per thread, for rows of several tensors or four vectors
// per thread. This is faster than keeping the rows in shared memory.
RowPlacement by_more_threads(const Asked& a, RowPlacement o) {
  while (a.whole && o.unroll > 1 && o.unroll * a.persistent >= 4 && o.threads_x < 512) {
    o.threads_x *= 2;
    o.unroll = (o.unroll + 1) / 2;
  }
  return o;
}

std::optional<RowPlacement> in_registers(const Asked& a, RowPlacement o) {
  if (a.whole && o.threads_x * o.unroll <= 32 * warp && o.unroll * a.persistent <= 4) return o;
  // One warp with one vector per thread: shared memory would add a copy and a barrier.
  if (a.whole && o.threads_x <= warp && o.unroll == 1 && a.persistent <= register_vectors) return o;
  // One phase: registers are faster than shared memory up to 32 registers per thread, because there
  // is less to wait for. Two phases: use registers and two blocks per SM if there are common
  // operands, which rows in shared memory would displace from L1. Without common operands registers
  // gain nothing.
  if (a.whole && a.persistent == 1 && o.unroll > 4 && o.unroll * a.registers <= register_elements &&
      (a.shape.phases == 1 || (a.shape.cached_bytes && a.simple))) {
    if (a.shape.phases > 1) o.min_blocks_per_sm = std::min(2, a.resident(o.threads_x));
    return o;
  }
  if (a.row.peel && a.persistent == 1 && o.threads_x <= 256) return o;
  return std::nullopt;
}

// Keeps the row in registers, so that L1 keeps the common operands.
std::optional<RowPlacement> beside_what_all_read(const Asked& a, RowPlacement o) {
  if (!a.whole || o.threads_x != 512 || a.cached_bytes <= least_cached) return std::nullopt;
  if (a.persistent * o.unroll == 4) {
    o.min_blocks_per_sm = std::min(a.simple ? 3 : 2, a.resident(o.threads_x));
    return o;
  }
  // Rows of six steps fit with two blocks per SM.
  if (a.persistent == 1 && a.steps_of(512) == 6 && a.simple && a.device.threads_per_sm >= 1024) {
    o.unroll = 6;
    o.min_blocks_per_sm = 2;
    o.streaming = RowPlacement::Streaming::Stores;
    return o;
  }
  return std::nullopt;
}

// If the common operands are as large as the row or larger, then split the row over clusters. The
// blocks of an SM read equal fractions of the operands, which stay in L1 because rows are in
// registers and stores bypass L1.
std::optional<RowPlacement> over_blocks_that_share(const Asked& a, RowPlacement) {
  if (!a.outweighed || a.row.busy || a.cached_bytes > most_shared || !a.few_cached)
    return std::nullopt;
  RowPlacement o = a.planned;
  o.streaming = RowPlacement::Streaming::Stores;
  if (!cut_into_registers(a, o, sharing_threads)) return std::nullopt;
  return o;
}

// Splits the row over clusters of many small blocks. More blocks per SM are at different points of
// their rows, so that loads and combining overlap.
std::optional<RowPlacement> over_small_blocks(const Asked& a, RowPlacement) {
  if (!a.whole || !a.row.linear || a.largest == 1 || a.outweighed || outweighs(a.shape) ||
      (a.row_bytes <= small_blocks_row && a.row.vectors * a.row.vector <= small_blocks_elements))
    return std::nullopt;
  RowPlacement o = a.planned;
  o.waits = true;
  for (int threads = fewest_threads; threads <= most_threads / 2; threads *= 2)
    if (cut_into_registers(a, o, threads)) return o;
  return std::nullopt;
}

// If the common operands exceed most_shared, then persistent blocks keep them in registers. Else L2
// would have to deliver three times the bytes of the rows. A single block that holds the row would
// idle while it combines.
std::optional<RowPlacement> over_persistent_cluster(const Asked& a, RowPlacement) {
  if (!a.outweighed || a.row.busy || a.cached_bytes <= most_shared) return std::nullopt;
  RowPlacement o = a.planned;
  o.persistent_in = Place::Shared;
  o.num_stages = 2;
  o.min_blocks_per_sm = 1;
  o.streaming = RowPlacement::Streaming::Stores;
  const bool wide = a.row.vector * 4 <= vector_bytes;
  if (!cut(o, a.row.vectors, wide ? wide_held_steps : held_steps,
           wide ? wide_held_threads : held_threads, a.largest))
    return std::nullopt;
  const int64_t bytes =
      int64_t{o.num_stages} * o.unroll * o.threads_x * a.row.vector * a.shape.persistent_bytes;
  const int held = o.unroll * a.row.vector * a.shape.cached_bytes / 4;
  if (held > (wide ? wide_held_registers : held_registers) ||
      bytes > a.device.shared_per_block - 8 * 1024)
    return std::nullopt;
  return o;
}

// If registers hold neither the row nor the common operands, or if every loop computes much, then
// keep fractions of the row in shared memory and use the single-pass form: one loop before the
// last.
std::optional<RowPlacement> over_blocks_with_parts(const Asked& a, RowPlacement o) {
  if (!a.outweighed || !cut_into_shared(a, o, outweighed_part)) return std::nullopt;
  o.streaming = RowPlacement::Streaming::Stores;
  o.waits = true;
  return o;
}

// Splits rows with divided coordinates over clusters of small blocks. More blocks per SM are at
// different points of their rows, so that loads and computation overlap.
std::optional<RowPlacement> divided_over_cluster(const Asked& a, RowPlacement o) {
  if (!a.whole || a.row.linear || a.persistent != 1 || !a.row.can_copy || a.largest == 1 ||
      a.row_bytes <= divided_row || !cut_into_shared(a, o, divided_part))
    return std::nullopt;
  return o;
}

// Chooses the threads of a row in shared memory. The fewer blocks fit an SM, the more threads each
// block needs. The last step of a peeled row is nearly empty.
void take_threads(const Asked& a, RowPlacement& o) {
  const int64_t kib = a.row_bytes / 1024;
  if (a.row_bytes > one_block_row || (kib >= 64 && !a.row.peel && a.shape.phases == 1)) {
    // A kernel with one phase and several unaligned reads (an RMS norm with a bias) spills with
    // 1024 threads.
    o.threads_x = a.crowded && a.shape.phases == 1 ? 512 : most_threads;
    o.waits = a.crowded;
    // Limits the registers: if the row length is a constant, the compiler takes a few more of them,
    // and only one block fits an SM.
    if (a.row.peel && a.persistent == 1 && a.simple)
      o.min_blocks_per_sm = std::min(2, a.resident(o.threads_x));
  } else if (a.row.peel) {
    o.threads_x = kib > 20 ? 512 : kib > 16 ? 256 : 128;
    // Kernels with two unaligned reads need only 40 registers per thread, so 384 threads per block
    // fit.
    if (a.crowded && o.threads_x == 512) {
      o.threads_x = 384;
      o.min_blocks_per_sm = a.device.threads_per_sm * 3 / 4 / o.threads_x;
    }
  }
}

std::optional<RowPlacement> in_shared_memory(const Asked& a, RowPlacement o) {
  if (o.unroll * a.persistent < (a.crowded ? 3 : 4) || !a.row.can_copy || a.row_bytes > a.per_block)
    return std::nullopt;
  if (a.row.peel && !a.crowded && a.steps_of(o.threads_x) * a.persistent <= wide_steps) {
    o.unroll = a.steps_of(o.threads_x);
    return o;
  }
  o.persistent_in = Place::Shared;
  // Stores bypass L1, of which the rows leave little for the common operands. An RMS norm with half
  // the weights of a layer norm would lose a little.
  if (a.row.peel ? a.crowded : outweighs(a.shape) || a.cached_bytes >= least_crowded)
    o.streaming = RowPlacement::Streaming::Stores;
  take_threads(a, o);
  return o;
}

std::optional<RowPlacement> in_registers_of_many(const Asked& a, RowPlacement o) {
  if (o.unroll * a.persistent <= register_vectors) return o;
  // A vector of 64-bit elements takes as many registers as one of 32-bit elements, but its
  // arithmetic takes more.
  const int most = a.row.vector * 4 < vector_bytes ? register_vectors / 2 : register_vectors;
  // Peeled rows are split over a cluster if there is one, because few kernels then serve all
  // lengths.
  if (a.row.vector == 1 || (a.whole && !a.few_cached) || (a.row.peel && a.largest > 1) ||
      a.steps_of(most_threads) * a.persistent > most)
    return std::nullopt;
  o.threads_x = most_threads;
  o.unroll = a.steps_of(most_threads);
  // Rows bypass L1 if the common operands are larger than it.
  if (a.cached_bytes > a.device.shared_per_sm) o.streaming = RowPlacement::Streaming::Rows;
  o.waits = o.streaming == RowPlacement::Streaming::None;
  return o;
}

// Keeps the row in the shared memory of a cluster, or of a block that is alone on its SM. If it
// does not fit, the row is reloaded, which costs half as much as a copy.
RowPlacement in_parts(const Asked& a, RowPlacement o) {
  int64_t part = a.row_bytes;
  while (o.cluster < a.largest &&
         (part > a.per_block || a.row.vectors / o.cluster > cluster_vectors)) {
    o.cluster *= 2;
    part = a.row_bytes / o.cluster;
  }
  if (!a.row.can_copy || part > a.device.shared_per_block - 2048) {
    o.persistent_in = Place::Reload;
    o.cluster = 1;
    return o;
  }
  o.persistent_in = Place::Shared;
  if (o.cluster == 1) take_threads(a, o);
  o.waits = true;
  return o;
}

}  // namespace

RowPlacement place_row(const Device& device, const ReductionShape& shape, const RowTraits& row,
                       const RowPlacement& planned) {
  const Asked a{.device = device, .shape = shape, .row = row, .planned = planned};
  for (const auto rule : {where_instructions_decide, only_reduced})
    if (const auto o = rule(a, planned)) return *o;
  const RowPlacement wider = by_more_threads(a, planned);
  for (const auto rule : {over_blocks_that_share, over_small_blocks, in_registers,
                          beside_what_all_read, over_persistent_cluster, over_blocks_with_parts,
                          divided_over_cluster, in_shared_memory, in_registers_of_many})
    if (const auto o = rule(a, wider)) return *o;
  return in_parts(a, wider);
}

}  // namespace fuser::schedulers
