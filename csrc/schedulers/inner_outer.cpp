// Reductions along rows and, at the end, along columns, in one loop over the data: the backward
// pass of a normalization with the gradients of its weight and bias.
//
// The grid is persistent. Each block takes every n-th row, keeps the partial results of the columns
// in registers, and copies the next rows into shared memory while it works on the present one.
// After a grid barrier each block merges the partial results of some columns in block order. All
// blocks take part, with many loads in flight, because this merge would otherwise take a tenth of
// the time.
//
// A row that is too long for a block is split over a cluster. Each of its blocks takes an equal
// fraction of many rows, and the columns of that fraction. Kernel fission would read the rows three
// times.
//
// If operands are uncoalesced, a block takes tiles of rows, and stages these operands in shared
// memory (staging_tile.h). The next rows, and the staged reads of the next tile, are prefetched as
// far as shared memory has room. Else rows are loaded into registers. Copying an uncoalesced
// operand first would move it three times.
#include <algorithm>
#include <bit>
#include <set>

#include "base/error.h"
#include "cost/tuning.h"
#include "fusion/kernel/transpose_operands.h"
#include "schedule/verify_schedule.h"
#include "schedulers/analysis/coalescing.h"
#include "schedulers/analysis/collapse.h"
#include "schedulers/analysis/reduction_shape.h"
#include "schedulers/analysis/staging_tile.h"
#include "schedulers/analysis/vectorize.h"
#include "schedulers/legal.h"
#include "schedulers/schedulers.h"

namespace fuser::schedulers {

using namespace fusion;
using namespace ir;
using namespace schedule;
using namespace cost::inner_outer;

namespace {

constexpr int sm_registers = 1 << 16;
constexpr int most_blocks = 8;  // blocks of the largest cluster that shares a row

VectorAxes rows_of(const Problem& p) {
  return vector_axes_of(p, reduced_axes(p), [](const Problem& p, const MemoryAccess& a) {
    return (axes_of(p, a) & p.reduced) && !is_loaded(a);
  });
}

// Returns the bytes of the partial results of one column.
int column_bytes(const Problem& p) {
  int bytes = 0;
  for (const Value& v : p.refined.values)
    if (const auto* r = std::get_if<Reduced>(&v.how); r && r->over == p.columns)
      bytes += state_bytes(r->op, r->compute);
  return bytes;
}

// The rows that a block processes at once, and its threads.
struct Tile {
  int threads_x = 1, threads = 1, unroll = 1;
  int cluster = 1;            // blocks that share a row
  int min_blocks_per_sm = 1;  // resident blocks per SM
  int num_stages = 0;         // stages of row copies into shared memory; 0: no copies
  bool keeps = true;          // True if values that the second loop would recompute may be cached
  bool fits = false;          // True if registers hold it, with the partial results of its columns
  StagingTile staging;        // staging tile of uncoalesced operands
  int rows_per_thread = 0;    // rows per thread of a staging tile
  bool prefetch_tiles = false;  // True if the staged reads are prefetched one tile ahead
};

Tile tile_of(const Device& device, const ReductionShape& shape, int64_t length, int vector,
             int results) {
  Tile t;
  const int64_t vectors = ceil_pow2((length + vector - 1) / vector);
  if (vectors <= warp)
    t.threads_x = static_cast<int>(vectors);
  else if (vectors <= 32 * warp)
    t.threads_x = static_cast<int>(std::clamp<int64_t>(vectors / 2, warp, 256));
  else
    t.threads_x = static_cast<int>(std::min<int64_t>(row_threads, vectors / 4));
  t.threads = std::max(256, t.threads_x);
  t.unroll = static_cast<int>(vectors / t.threads_x);
  t.min_blocks_per_sm = t.unroll * vector * results > 32 || t.threads >= 512 ? 1 : 2;
  if (device.arch >= 80 && vector > 1 && shape.persistent_bytes > 0) {
    const int64_t row = int64_t{t.unroll} * t.threads * vector * shape.persistent_bytes;
    // Shared memory besides the rows: slots to combine column results, if several rows share a
    // block.
    const int64_t slots =
        t.threads_x < t.threads ? int64_t{t.unroll} * vector * t.threads * results * 4 : 0;
    const int64_t room = device.shared_per_sm / t.min_blocks_per_sm - 4 * 1024 - slots;
    t.num_stages = static_cast<int>(std::min<int64_t>(
        3, std::min<int64_t>(room, device.shared_per_block - 4 * 1024 - slots) / row));
    if (t.num_stages < 2) t.num_stages = 0;
  }
  // A row that is not copied ahead stays in registers, as loaded.
  const int loaded = t.num_stages ? 0
                                  : t.unroll * (vector > 1 ? vector * shape.persistent_bytes / 4
                                                           : shape.persistent);
  const int columns = t.unroll * vector * results;
  const int others = least_registers + (loaded && vector > 1 ? of_loaded_vectors : 0);
  t.fits = columns <= most_columns && (columns + loaded + others) * t.threads <= sm_registers;
  return t;
}

// Returns whether an SM has registers and shared memory for the resident blocks of a tile.
bool has_room(const Device& device, const ReductionShape& shape, const Tile& t, int vector,
              int results) {
  constexpr int static_bytes = 4 * 1024;
  const int64_t part = int64_t{t.unroll} * t.threads * vector * shape.persistent_bytes;
  const int64_t registers = int64_t{t.unroll} * vector * results + beside_columns;
  const int room = std::min(device.shared_per_sm / t.min_blocks_per_sm, device.shared_per_block);
  return registers < 256 && registers * t.threads * t.min_blocks_per_sm <= sm_registers &&
         t.num_stages * part <= room - static_bytes;
}

// Returns whether clusters of this size leave few SMs idle.
bool uses_most(const Device& device, int cluster) {
  return resident_clusters(device, cluster) * cluster * 100 >= device.sms * least_used;
}

// Distributes a block's fraction of a row over three steps, or over two if fewer threads idle then.
Tile part_of_row(int64_t vectors) {
  Tile t{.keeps = false};
  for (int steps : {3, 2}) {
    const int threads = static_cast<int>((vectors + steps * warp - 1) / (steps * warp) * warp);
    if (steps < 3 && threads * steps >= t.threads * t.unroll) break;
    t.threads = t.threads_x = threads;
    t.unroll = steps;
  }
  return t;
}

// Sizes tiles by the bandwidth: the blocks of an SM process about as many bytes as memory delivers
// to it in a microsecond, with the next two rows in flight. Larger tiles produce more partial
// column results and more outstanding copies, which then compete for bandwidth. With smaller tiles
// the reductions of a row and its cluster barrier take longer than loading the next row. Caching
// recomputed values does not pay here.
Tile paced_tile(const Device& device, const ReductionShape& shape, int64_t length, int vector,
                int results) {
  const int64_t pace = std::max(paced_by, device.bandwidth / device.sms);
  const int64_t row = length * shape.persistent_bytes;
  Tile none;
  if (!device.clusters || vector == 1 || !row) return none;
  // Rows in progress on most_blocks SMs, the most first. Then cluster sizes, small ones first,
  // except that a cluster of four with one block per SM comes last.
  for (int rows = most_blocks; rows >= 1; --rows) {
    const int64_t at_once = row * rows / most_blocks;
    if (at_once * paced_by > paced_most * pace) continue;
    if (at_once * paced_by < paced_least * pace) break;
    for (int cluster : {1, 2, 8, 4}) {
      Tile t = part_of_row(((length + cluster - 1) / cluster + vector - 1) / vector);
      t.cluster = cluster;
      t.min_blocks_per_sm = rows * cluster / most_blocks;
      if (t.min_blocks_per_sm * most_blocks != rows * cluster || t.min_blocks_per_sm > 4) continue;
      const bool alone = t.min_blocks_per_sm == 1 && cluster > 2;
      if (alone && at_once * paced_by < least_alone * pace) continue;
      if (!uses_most(device, cluster)) continue;
      // Clusters of eight with one block per SM are faster with two stages than with three.
      t.num_stages = alone && cluster == most_blocks ? 2 : 3;
      t.fits = t.threads >= paced_threads && t.threads <= row_threads &&
               t.threads * t.min_blocks_per_sm >= paced_threads_of_sm &&
               has_room(device, shape, t, vector, results);
      if (t.fits) return t;
    }
  }
  return none;
}

// Splits the row over twice as many blocks of fewer threads, two per SM: one works while the other
// waits for its cluster. Thread counts are not powers of two, so that rows of any length fill them.
// Rows that fill eight steps of the fewest threads exactly take eight steps, in a cluster of 8 with
// gradients of weight and bias. Rows that six steps fill do not.
Tile smaller_tile(const Device& device, const ReductionShape& shape, int64_t length, int vector,
                  int results, int cluster) {
  Tile t{.cluster = cluster, .min_blocks_per_sm = 2, .num_stages = 2, .keeps = false};
  const int64_t vectors = (length + vector - 1) / vector;
  const bool filled =
      cluster == most_blocks && results > 1 && vectors == int64_t{long_steps} * small_threads;
  const int steps = filled ? long_steps : 6;
  t.threads_x = static_cast<int>((vectors + steps * warp - 1) / (steps * warp) * warp);
  t.threads = t.threads_x;
  t.unroll = static_cast<int>((vectors + t.threads - 1) / t.threads);
  t.fits = shape.persistent_bytes > 0 && t.threads >= small_threads &&
           has_room(device, shape, t, vector, results);
  return t;
}

// Returns the tile with the fewest blocks per row that fit.
Tile roomy_tile(const Device& device, const ReductionShape& shape, int64_t length, int vector,
                int results) {
  const int most = device.clusters && vector > 1 ? most_blocks : 1;
  int cluster = 1;
  Tile tile = tile_of(device, shape, length, vector, results);
  while (!tile.fits && cluster < most) {
    cluster *= 2;
    tile = tile_of(device, shape, (length + cluster - 1) / cluster, vector, results);
  }
  tile.cluster = cluster;
  // Doubles the cluster if few SMs idle then; clusters of four leave more SMs idle than clusters of
  // two. A block that holds a row alone is split only if its columns leave it too few registers.
  const bool full = tile.threads == row_threads && tile.unroll * vector * results > 32;
  if (!tile.fits || cluster == most || (cluster == 1 && !full)) return tile;
  const int twice = 2 * cluster;
  const Tile smaller =
      smaller_tile(device, shape, (length + twice - 1) / twice, vector, results, twice);
  return smaller.fits && uses_most(device, twice) ? smaller : tile;
}

// Bytes per element of a row in a kernel with a staging tile.
struct ElementBytes {
  int row = 0;      // reads along the row
  int columns = 0;  // partial results of its column
  int slots = 0;    // partial results that differ in op or dtype; equal ones reuse one slot
};

ElementBytes bytes_of_element(const Problem& p, const ReductionShape& shape) {
  ElementBytes b{.row = shape.persistent_bytes, .columns = column_bytes(p)};
  for (size_t i : uncoalesced_accesses(p, {}))
    if (!p.accesses[i].store) b.row -= size_of(p.accesses[i].dtype);
  std::set<std::pair<ReduceOp, DType>> kinds;
  for (const Value& v : p.refined.values)
    if (const auto* r = std::get_if<Reduced>(&v.how); r && r->over == p.columns) {
      if (kinds.emplace(r->op, r->compute).second) b.slots += state_bytes(r->op, r->compute);
    }
  return b;
}

// Returns the bytes of the staged reads that are prefetched one tile ahead.
int64_t bytes_ahead(const Problem& p, const Tile& t, int vector) {
  int64_t bytes = 0;
  for (size_t i : uncoalesced_accesses(p, {})) {
    const MemoryAccess& a = p.accesses[i];
    if (a.store) continue;
    const int size = size_of(a.dtype), run = std::min(t.staging.rows_per_vector, longest_vector(a));
    bytes += size * staging_moves(t.threads, t.staging.rows, run, size, vector,
                                  t.threads_x * t.unroll * vector)
                        .elements;
  }
  return bytes;
}

// Plans rows with a staging tile: `threads_x` threads per row and `blocks` blocks per SM.
Tile beside_tile(const Problem& p, SizeHints& hints, const Device& device,
                 const ReductionShape& shape, const TileRoom& of_rows, int vector, int threads_x,
                 int blocks) {
  constexpr int all_threads = 256, static_bytes = 4 * 1024;
  Tile t{.threads_x = threads_x, .min_blocks_per_sm = blocks, .keeps = false};
  const ElementBytes bytes = bytes_of_element(p, shape);
  const int64_t vectors = (of_rows.length + vector - 1) / vector;
  t.unroll = static_cast<int>((vectors + threads_x - 1) / threads_x);
  const int64_t elements = int64_t{t.unroll} * vector;
  TileRoom room = of_rows;
  room.tiles = int64_t{tiles_of_block} * blocks * device.sms;
  room.bytes = std::min(device.shared_per_sm / blocks, device.shared_per_block) - static_bytes;
  if (threads_x < all_threads) room.bytes -= elements * all_threads * bytes.slots;
  room.most_bytes = room.bytes / 3;  // leaves as much for the next tile and for rows
  t.staging = staging_tile_of(p, hints, room);
  const int threads_y = std::min(t.staging.rows, all_threads / threads_x);
  t.threads = threads_x * threads_y;
  t.rows_per_thread = t.staging.rows / threads_y;
  if (t.staging.accesses.empty() || (t.threads < all_threads && threads_x < warp)) return t;
  // The rest of shared memory is for prefetching, in this order: one row, a tile, another row. L1
  // needs a quarter of all shared memory.
  const int of_l1 = device.shared_per_sm / 4 / blocks;
  int64_t left = device.arch >= 80 ? room.bytes - t.staging.bytes - of_l1 : 0;
  const int64_t ahead = bytes_ahead(p, t, vector), row = elements * t.threads * bytes.row;
  if (row > 0 && left >= 2 * row) t.num_stages = 2, left -= 2 * row;
  if (ahead > 0 && left >= ahead) t.prefetch_tiles = true, left -= ahead;
  if (t.num_stages && left >= row) ++t.num_stages;
  const int in_registers = bytes.columns + shape.cached_bytes + (t.num_stages ? 0 : bytes.row);
  const int64_t registers = elements * in_registers / 4 + other_registers;
  t.fits = registers < 256 && registers * all_threads * blocks <= sm_registers;
  return t;
}

// Returns the tile with the fewest threads per row whose registers hold the column results.
Tile staged_tile(const Problem& p, SizeHints& hints, const Device& device,
                 const ReductionShape& shape, int64_t length, int vector) {
  const TileRoom rows{.length = length,
                      .count = hints.at_most(extent_of(p, hints.exprs(), kept_axes(p)))};
  const int64_t vectors = (length + vector - 1) / vector;
  Tile t;
  for (int blocks = 2; blocks > 0; --blocks)
    for (int x = threads_beside_tile(vectors); x <= 8 * warp; x *= 2) {
      t = beside_tile(p, hints, device, shape, rows, vector, x, blocks);
      if (t.fits) return t;
    }
  return t;
}

}  // namespace

MatchResult match_inner_outer(const Problem& p) {
  if (!p.columns)
    return refuse("inner-outer-1", "the kernel does not reduce both rows and columns");
  return accept;
}

Decision plan_inner_outer(const Problem& p, SizeHints& hints, const Device& device) {
  const VectorAxes r = rows_of(p);
  const ReductionShape shape = reduction_shape_of(p);
  const int64_t length = hints.at_most(extent_of(p, hints.exprs(), r.axes));
  int vector = r.vector;
  AccessSet vectorized;
  if (hints.divides(extent_of(p, hints.exprs(), r.inner), vector))
    vectorized = vectorized_accesses(p, p.reduced, r.inner, hints, vector);
  if (vectorized.empty()) vector = 1;
  const bool lane_axes = vector > 1 && hints.divides(p.refined.axes[r.axes.back()].extent, vector);

  // Registers of the partial results of one column.
  const int results = std::max(1, (column_bytes(p) + 3) / 4);
  Tile tile;
  if (vector > 1 && device.cooperative && has_uncoalesced(p, hints))
    tile = staged_tile(p, hints, device, shape, length, vector);
  if (!tile.fits && can_transpose_operands(p, hints)) return UseFission{};

  if (!tile.fits && device.cooperative) tile = paced_tile(device, shape, length, vector, results);
  if (!tile.fits) tile = roomy_tile(device, shape, length, vector, results);
  const int cluster = tile.cluster;
  if (hints.fission() != Fission::None && (!device.cooperative || !tile.fits)) return UseFission{};
  // Values that the second loop would recompute stay in registers if there are enough. One more
  // register per element is for operands common to all rows.
  int64_t kept = 0;
  for (ValueId v : computed_again(p)) kept += (size_of(p.refined.values[v].dtype) + 3) / 4;
  const int64_t registers = int64_t{tile.unroll} * vector * (results + kept + 1) + other_registers;
  const bool cache_computed =
      tile.keeps && registers * tile.threads * tile.min_blocks_per_sm <= sm_registers;
  // Merge as many groups of columns as there are blocks.
  const int64_t blocks =
      std::max<int64_t>(1, resident_clusters(device, cluster)) * cluster * tile.min_blocks_per_sm;
  int columns_per_merge =
      std::clamp(ceil_pow2((length + blocks - 1) / blocks), 8, tile.threads / 4);
  columns_per_merge = static_cast<int>(std::bit_floor(static_cast<unsigned>(columns_per_merge)));
  while (tile.threads % columns_per_merge) columns_per_merge /= 2;
  return to_plan(InnerOuterPlan{
      .threads_x = tile.threads_x,
      .threads_y = tile.threads / tile.threads_x,
      .unroll = tile.unroll,
      .vector = vector,
      .cluster_size = cluster,
      .num_stages = tile.num_stages,
      .cache_computed = cache_computed,
      .columns_per_merge = columns_per_merge,
      .grid_blocks = blocks,
      .min_blocks_per_sm = tile.min_blocks_per_sm,
      .rows_per_thread = tile.rows_per_thread,
      .staged = tile.staging.accesses,
      .rows_per_vector = tile.staging.rows_per_vector,
      .prefetch_tiles = tile.prefetch_tiles,
      .lane_axes = lane_axes,
      .vectorized = vectorized,
  });
}

Schedule schedule_inner_outer(Problem& p, const Plan& plan) {
  const auto fields = typed<InnerOuterPlan>(plan);
  enum { K, R };
  Schedule s = start_of_reduction(p, fields);
  s.reductions.push_back({.dim = K,
                          .finish = Finish::Cooperative,
                          .columns = static_cast<int>(fields.columns_per_merge)});
  if (fields.cache_computed)
    for (ValueId v : computed_again(p)) s.stagings.push_back({.value = v});
  LoopNest& nest = s.nests.back();
  const int64_t clusters = fields.grid_blocks / fields.cluster_size;
  nest.loops = {{.dim = K, .bind = Bind::Serial},
                {.dim = K, .extent = clusters, .bind = Bind::Grid}};
  if (fields.rows_per_thread > 1)
    nest.loops.push_back({.dim = K, .extent = fields.rows_per_thread, .bind = Bind::Serial});
  loop_along_rows(nest, fields);
  stage_tiles(p, s, fields.staged, fields.rows_per_vector, fields.prefetch_tiles);
  const int stages = static_cast<int>(fields.num_stages);
  const bool several_loops = reduction_shape_of(p).loops > 1;
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    if (a.store || !moves_rows(p, a) || is_loaded(a) || fields.staged.contains(i)) continue;
    const auto access = static_cast<AccessId>(i);
    const int width = s.accesses[i].width;
    if (stages && width > 1 && width * size_of(a.dtype) >= 4)
      s.stagings.push_back({.access = access, .place = Place::Shared, .stages = stages});
    else if (several_loops)
      s.stagings.push_back({.access = access, .place = Place::Registers});
  }
  verify(p, s);
  return s;
}

void check_inner_outer(const Problem&, const Plan& planned, const Plan& wanted) {
  const auto was = typed<InnerOuterPlan>(planned);
  const int64_t x = was.threads_x, y = was.threads_y, unroll = was.unroll;
  const bool staged = !was.staged.empty();
  // With a staging tile, row copies and tile prefetches may each use the room of the other.
  const bool copies = staged && (was.num_stages || was.prefetch_tiles);
  // Without one, threads and steps stay as planned.
  const auto shared_out = [&](int64_t planned_value, int64_t most) {
    return std::pair(staged ? 1 : planned_value, staged ? most : planned_value);
  };
  const auto [least_x, most_x] = shared_out(x, x * y);
  const auto [least_y, most_y] = shared_out(y, x * y);
  const auto [least_unroll, most_unroll] = shared_out(unroll, x * unroll);
  const auto [least_rows, most_rows] = shared_out(was.rows_per_thread, y * was.rows_per_thread);
  check_fields(planned, wanted,
               {{"grid_blocks", was.cluster_size, was.grid_blocks},
                {"num_stages", 0, copies ? 3 : was.num_stages},
                {"threads_x", least_x, most_x},
                {"threads_y", least_y, most_y},
                {"unroll", least_unroll, most_unroll},
                {"rows_per_thread", least_rows, most_rows},
                {"prefetch_tiles", 0, copies ? 1 : 0}});
  const auto is = typed<InnerOuterPlan>(wanted);
  // All blocks must be resident at once; min_blocks_per_sm limits the registers accordingly.
  const int64_t most = was.grid_blocks / was.min_blocks_per_sm * is.min_blocks_per_sm;
  expect(planned, is.grid_blocks <= most, text("grid_blocks=", is.grid_blocks),
         text("at most ", most, " with min_blocks_per_sm=", is.min_blocks_per_sm,
              ", because all blocks must be resident at once"));
  if (!staged) return;
  check_staging_tile(planned, was, is);
  const int64_t threads = is.threads_x, all = threads * is.threads_y, steps = is.unroll;
  expect(planned,
         std::has_single_bit(static_cast<uint64_t>(threads)) && threads * steps >= x * unroll &&
             all <= x * y && all * steps <= x * y * unroll && all % warp == 0 &&
             all % was.columns_per_merge == 0,
         text("threads_x=", threads, ", threads_y=", is.threads_y, ", unroll=", steps),
         text("threads_x a power of two, threads_x * unroll at least ", x * unroll,
              " (vectors of a row), whole warps of at most ", x * y,
              " threads per block, and at most ", x * y * unroll, " vectors per block"));
}

}  // namespace fuser::schedulers
