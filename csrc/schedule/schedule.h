// Schedule: loops over the iteration space of one kernel, plus staging, vector widths and launch
// parameters, as plain data. The space is scheduled once and each value picks its position in it.
// No transform is replayed on tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fusion/index/access.h"
#include "schedule/access_set.h"

namespace fuser {

using DimId = int;

// Hardware or loop kind that a loop is bound to. Loops with equal binding are linearized in loop
// order.
enum class Bind : uint8_t {
  // One linear index over all threads of the grid, so that short rows leave no thread idle.
  GridThread,
  Grid,     // blocks of the grid
  Cluster,  // blocks of a cluster
  ThreadY,
  ThreadX,
  Serial,
  Unroll,
  Vector,  // lanes: neighbouring elements of one memory access
};
// Memory that holds a value between stages or reduction loops; also a plan value.
enum class Place : uint8_t { Registers = 1, Shared, Reload };
// Scope of the last merge of a reduction.
enum class Finish : uint8_t { InTile, LastBlock, Cooperative };

struct Dim {  // adjacent axes as one linear index
  std::vector<AxisId> axes;
  // Number of elements to peel: elements before the first line-aligned one, where loops start.
  Expr peel = nullptr;
  bool divides = false;  // True if the tile of a staged kernel divides the dim
  // Elements of a memory line at which a stage's vectors start in every row of its tile; lanes wrap
  // around at the end of the row. 0: vectors start with the tile. `origin` is the offset in memory
  // of the first element of the current row.
  int64_t store_line = 0;
  Expr origin = nullptr;
};
// Trip count of a loop, a constant of the plan. 0: the extent of the dim divided by the other loops
// over it, rounded up.
using Extent = int64_t;
struct Loop {
  DimId dim = 0;
  Extent extent = 0;
  Bind bind{};
  Expr count = nullptr;  // trip count of a Grid loop that is computed from sizes at launch
};
struct Stage {
  std::vector<Loop> loops;  // outer to inner
  std::vector<ValueId> computed;
  // Indices into Refined::stores. A single stage contains all stores; it lists them only if its
  // tile has more dims than K and R.
  std::vector<int> stores{};
  // True for the stage that moves single elements at both ends of the rows of a tile. The previous
  // stage leaves them over, because its vectors start at memory lines (Dim::store_line).
  bool ends = false;
};
struct Stored {  // a value staged for a later stage, or cached for later reduction loops
  ValueId value = 0;
  Place place = Place::Registers;
};
// Element selection of a strided access: lane l takes element l / repeat * step + start of an
// aligned window of `width` elements. width 0: the access is scalar or vectorized.
struct LaneWindow {
  int width = 0, repeat = 1, step = 1, start = 0;
};
struct Schedule {
  std::vector<Dim> dims;
  std::vector<Stage> stages;
  std::vector<Stored> stored;
  std::vector<int> widths;            // elements moved at once, by access (Problem::accesses)
  std::vector<LaneWindow> strided{};  // of reads, by access; empty: no access is strided
  AccessSet unaligned;                // unaligned accesses: vector accesses at any element address
  bool tail = false;                  // True if the vector loop may run past the end of its dim
  // True if vectors within one innermost row take a code path of their own
  bool split_at_rows = false;
  // True if every select predicate is uniform across the lanes of a vector
  bool uniform_select = false;
  // Threads per block, and the resident blocks per SM that limit the registers of a thread (0: no
  // limit).
  int threads = 256, min_blocks_per_sm = 0;
  // True if blocks run over the grid in reverse order: the first block takes the last elements.
  bool reverse_grid = false;

  // Fields for kernels with reductions. dims are {K, R}, and one stage describes the loops of all
  // loop nests.
  bool single_pass = false;  // True if the schedule is for Problem::single_pass
  // Number of innermost axes of the vectorized dim that a vector stays within. A value that does
  // not vary over them is uniform across the lanes. 0: a vector may cross any axis.
  int lane_axes = 0;
  // Memory that keeps the row read by each access between reduction loops: Registers or Shared. By
  // access; Reload for accesses that are not persistent.
  std::vector<Place> persistent_in;
  // Streaming accesses: they bypass L1, which keeps the tensors that all rows read.
  AccessSet streaming;
  int smem_unroll = 0;  // unroll factor of the loop over a row in shared memory; 0: no loop
  // True if the rows of a block are packed: they are adjacent in memory and move as whole vectors
  // through shared memory, regardless of where a row starts.
  bool packed = false;
  // Staged accesses: uncoalesced accesses whose tile for the rows of a block crosses shared memory.
  // `rows_per_vector` is the largest number of neighbouring rows moved as one vector.
  AccessSet staged;
  int rows_per_vector = 1;
  bool prefetch_tiles = false;  // True if the staged reads are prefetched one tile ahead
  // Number of stages of asynchronous row copies into shared memory, with a Serial loop over K.
  int num_stages = 0;
  // Scope of the grid-wide reductions: over R (LastBlock) or over K (Cooperative).
  Finish finish = Finish::InTile;
  int columns_per_merge = 32;  // columns that a block merges at once in a Cooperative finish
};

// Loop structure with which a block copies a staging tile. A run is the elements of one column in
// neighbouring rows that move as one vector. A thread moves the runs of as many columns together as
// fill a bank of shared memory.
struct StagingMoves {
  int at_once = 1, together = 1;  // groups of threads; columns that each group copies at once
  int count = 1, steps = 1;       // unrolled copies of a group; iterations of the loop around them
  int64_t elements = 0;           // capacity in elements
};
// `length`: elements of the longest row.
StagingMoves staging_moves(int threads, int rows, int rows_per_vector, int element_bytes, int lanes,
                           int length);

// One line: "dims [a0] [a1 a2]; stage: d0:GridThread d1:GridThread d1:Vector(8) ...". It shows
// dims, loops, widths, tail and threads, not every field.
std::string to_string(const Schedule& schedule);
// Raises InternalError if an invariant is broken: every axis is in exactly one dim; the Vector loop
// is innermost and its extent a power of two; thread loops multiply to `threads`; every width is
// the extent of a Vector loop.
void verify(const Schedule& schedule, int axes);

}  // namespace fuser
