// A Schedule says how a kernel walks its problem: one iteration space, as plain data that can be
// printed. The space is scheduled once and each value only chooses a place; no transform is
// replayed onto tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fusion/access.h"
#include "schedule/access_set.h"

namespace fuser {

using DimId = int;

// Loops that share a bind are linearized in loop order.
enum class Bind : uint8_t {
  GridThread,  // one linear index over all threads of the grid: short rows waste no thread
  Grid,        // blocks
  Cluster,     // blocks of a cluster
  ThreadY,
  ThreadX,
  Serial,
  Unroll,
  Vector,  // neighbouring elements of one memory access
};
enum class Place : uint8_t { Registers = 1, Shared, Reload };    // where a value waits; in plans
enum class Finish : uint8_t { InTile, LastBlock, Cooperative };  // where the last combine happens

struct Dim {  // adjacent axes as one linear index
  std::vector<AxisId> axes;
  Expr skew = nullptr;  // elements of it before the first line of memory in it: loops start there
  bool exact = false;   // the tiles of several stages end where it ends
  // > 0: lanes of a stage that store along it start at a line of memory, of so many elements, in
  // each row of a tile and go round the row. A row of the dim starts at `origin` in memory.
  int64_t line = 0;
  Expr origin = nullptr;
};
// Trip count of a loop: a constant of the plan, or (0) what is left of the dim when the inner loops
// took theirs.
using Extent = int64_t;
struct Loop {
  DimId dim = 0;
  Extent extent = 0;
  Bind bind{};
  Expr count = nullptr;  // trip count of a Grid loop that is known at the launch, from sizes
};
struct Stage {
  std::vector<Loop> loops;  // outer to inner
  std::vector<ValueId> computed;
  // Of Refined::stores. A single stage has them all; it names them where its tile is one of more
  // than the two dims K and R.
  std::vector<int> stores{};
  // Its threads take one element each of what vectors of the stage before it leave at both ends of
  // the rows of a tile: those that an end cuts (Dim::line).
  bool ends = false;
};
struct Stored {  // a value that crosses a stage, or is kept from one walk over R to the later ones
  ValueId value = 0;
  Place place = Place::Registers;
};
// How the lanes of a vector read neighbours, each where it needs them: lane l has element
// l / repeat * step + start of `width`. Without width: they have one each, or are one access.
struct Window {
  int width = 0, repeat = 1, step = 1, start = 0;
};
struct Schedule {
  std::vector<Dim> dims;
  std::vector<Stage> stages;
  std::vector<Stored> stored;
  std::vector<int> widths;        // elements per memory access, by access (Problem::accesses)
  std::vector<Window> windows{};  // of reads, by access; empty: there are none
  AccessSet shifted;              // accesses whose vectors lie at any element
  bool tail = false;              // the vector loop may run past the end of its dim
  bool one_row = false;   // vectors that lie in one innermost row are walked apart from the others
  bool one_side = false;  // what is chosen by place is the same for all lanes of a vector
  int threads = 256, min_blocks = 0;
  bool backward = false;  // the first blocks have the last elements

  // With reductions: dims are {K, R}, one stage says how they are walked by every nest.
  bool single_pass = false;  // of Problem::single_pass
  // The lanes of a vector never leave so many innermost axes of their dim: what varies over none of
  // them is one value for all lanes. 0: they may leave any.
  int whole = 0;
  // Reads of whole rows, by access, that stay on chip between the walks over a row: Registers or
  // Shared; Reload elsewhere.
  std::vector<Place> places;
  // Accesses that take no place in L1, which has what all rows read.
  AccessSet once;
  int rolled = 0;  // rows in shared memory are walked in a loop, so many steps side by side
  // Rows of a block are one stretch of memory: whole vectors of it come to and leave Shared memory,
  // wherever in them a row starts.
  bool stretch = false;
  // Accesses that lie across the rows: those of a block cross Shared memory as tiles, by runs of so
  // many neighbouring rows at most.
  AccessSet across;
  int run = 1;
  bool tiles_ahead = false;  // the reads among them are copied one tile ahead
  int ring = 0;  // rows that are copied ahead into Shared memory, with a Serial loop over K
  // Reductions that the whole grid takes part in: over R (LastBlock) or over K (Cooperative).
  Finish finish = Finish::InTile;
  int finish_columns = 32;  // of a Cooperative finish: those that a block merges at once
};

// How a block moves its part of a tensor that lies across its rows, of which so many neighbours of
// a column are a run: the runs of as many columns together as fill a bank of shared memory.
struct AcrossMoves {
  int at_once = 1, together = 1;  // columns that all threads move at once, each so many together
  int count = 1, steps = 1;       // how often: side by side, in turn
  int64_t elements = 0;           // that they have places for
};
// `length`: of the longest row.
AcrossMoves across_moves(int threads, int rows, int run, int element_bytes, int lanes, int length);

// "dims [a0] [a1 a2]; stage: d0:GridThread d1:GridThread d1:Vector(8) ..."
std::string to_string(const Schedule& schedule);
// Raises InternalError where an invariant does not hold: each axis in one dim, one Vector loop,
// innermost, of a power of two, the loops over threads are those of the block, and so on.
void verify(const Schedule& schedule, int axes);

}  // namespace fuser
