// Schedule: loops over the iteration space of one kernel, how each access moves memory, staged
// data, reductions and launch parameters, as plain data. The space is scheduled once and each value
// picks its position in it. No transform is replayed on tensors.
//
// A schedule consists of integers only. It compares, prints whole, and parses back
// (schedule_text.h). Attributes of stagings, lanes and launch are rows of attributes.def.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fusion/index/access.h"
#include "ir/cache_policy.h"
#include "schedule/access_set.h"

namespace fuser::schedule {

using DimId = int;
using AccessId = int;  // index into Problem::accesses

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

// Memory lines of an access at which the vectors of a dim start in every row. A reduction peels the
// elements before the first line. A tile wraps its lanes around at the end of the row.
struct LineAlignment {
  AccessId access = -1;  // -1: vectors start at the first element
  int64_t elements = 0;  // length of a line
  bool operator==(const LineAlignment&) const = default;
};
struct Dim {  // adjacent axes as one linear index
  std::vector<fusion::AxisId> axes;
  LineAlignment line{};
  bool divides = false;  // True if the tile of a staged kernel divides the dim
  bool operator==(const Dim&) const = default;
};

struct Loop {
  DimId dim = 0;
  // Trip count. 0: the extent of the dim divided by the other loops over it, rounded up. A Grid
  // loop over K has at most this many blocks; one over R divides this many blocks among the tiles.
  int64_t extent = 0;
  Bind bind{};
  int unroll = 0;  // unroll factor of a Serial loop over a row in shared memory; 0: none
  // Elements of a task of a CPU kernel: the trip count of a Serial loop is as many indices as hold
  // them, and 1 at least. 0: `extent` is the trip count.
  int64_t elements = 0;
  bool operator==(const Loop&) const = default;
};
// Properties of the vectors of a loop nest.
struct Lanes {
#define FUSER_LANES_FLAG(name, meaning) bool name = false;
#define FUSER_LANES_NUMBER(name, default_value, least, most, meaning) int name = default_value;
#include "schedule/attributes.def"
  bool operator==(const Lanes&) const = default;
};
// A reduction kernel has one nest, which describes the loops of all phases over dims {K, R}.
struct LoopNest {
  std::vector<Loop> loops;  // outer to inner
  Lanes lanes{};
  std::vector<fusion::ValueId> computed{};
  // Indices into Refined::stores. A single nest contains all stores; it lists them only if its tile
  // has more dims than K and R.
  std::vector<int> stores{};
  // True for the nest that moves single elements at both ends of the rows of a tile. The previous
  // nest leaves them over, because its vectors start at memory lines (Dim::line).
  bool ends = false;
  bool operator==(const LoopNest&) const = default;
};

// Element selection of a strided access: lane l takes element l / repeat * step + start of an
// aligned window of `width` elements.
struct LaneWindow {
  int width = 0, repeat = 1, step = 1, start = 0;
  bool operator==(const LaneWindow&) const = default;
};
enum class VectorKind : uint8_t {
  Scalar,     // element by element
  Aligned,    // vectors at multiples of their length
  Unaligned,  // vectors at any element address
  Strided,    // lanes select from a LaneWindow
};
struct Vectorization {  // how one access moves memory
  VectorKind kind = VectorKind::Scalar;
  int width = 1;        // elements moved at once
  LaneWindow window{};  // of a strided access
  ir::CachePolicy cache{};
  bool operator==(const Vectorization&) const = default;
};

// Memory that holds a value between nests or reduction loops; also a plan value.
enum class Place : uint8_t { Registers = 1, Shared, Reload };
enum class StagingShape : uint8_t {
  Row,         // elements of a row; the thread that copies an element is its only reader
  PackedRows,  // the rows of a block as one range, moved as whole vectors wherever a row starts
  Tile,        // rows of a block whose neighbours in memory belong to neighbouring rows
};
// An access or a value that is held between nests or reduction loops. An access without a staging
// is reloaded, and a value without one is rematerialized.
struct Staging {
  AccessId access = -1;        // -1: a value is staged
  fusion::ValueId value = -1;  // -1: an access is staged
  Place place = Place::Registers;
  StagingShape shape = StagingShape::Row;
#define FUSER_STAGING_FLAG(name, meaning) bool name = false;
#define FUSER_STAGING_NUMBER(name, default_value, least, most, meaning) int name = default_value;
#include "schedule/attributes.def"
  bool operator==(const Staging&) const = default;
};

// Scope of the last merge of a reduction.
enum class Finish : uint8_t { InTile, LastBlock, Cooperative };
struct Combination {  // reductions over one dim
  DimId dim = 0;
  Finish finish = Finish::InTile;
  int columns = 0;  // columns that a block merges at once in a Cooperative finish
  bool operator==(const Combination&) const = default;
};

struct Launch {
  int threads = 256;  // per block
#define FUSER_LAUNCH_FLAG(name, meaning) bool name = false;
#define FUSER_LAUNCH_NUMBER(name, default_value, least, most, meaning) int name = default_value;
#include "schedule/attributes.def"
  bool operator==(const Launch&) const = default;
};

struct Schedule {
  bool single_pass = false;  // True if the schedule is for Problem::single_pass
  std::vector<Dim> dims;
  std::vector<LoopNest> nests;
  std::vector<Vectorization> accesses;  // by access
  std::vector<Staging> stagings;
  std::vector<Combination> reductions;
  Launch launch{};
  bool operator==(const Schedule&) const = default;
};

// Makes the accesses of the set vectors of this kind and width.
void vectorize(Schedule& schedule, const AccessSet& accesses, VectorKind kind, int width);

// Returns the staging of an access or of a value; nullptr if it is not staged.
const Staging* staging_of_access(const Schedule& schedule, AccessId access);
const Staging* staging_of_value(const Schedule& schedule, fusion::ValueId value);

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

}  // namespace fuser::schedule
