// Rows with tensors that lie across them, where a block's tile of these crosses shared memory: see
// lower/tile_across.cpp and inner.cpp.
#pragma once

#include <cstdint>

#include "schedulers/dims.h"

namespace fuser {

// What the rows of a block read or store across them.
struct AcrossTile {
  AccessSet accesses;  // that cross shared memory; none: nothing does, or it does not fit
  int run = 1;         // neighbouring rows whose elements are one vector, 16 bytes at most
  int rows = 1;        // of a block
  int64_t bytes = 0;   // of its tiles
};

// What a scheduler has for them.
struct TileRoom {
  int64_t length = 0, count = 0;  // at most so many elements of a row, and rows
  int64_t tiles = 0;       // before there are as many, no tile gets rows that it need not have
  int64_t bytes = 0;       // of a block
  int64_t most_bytes = 0;  // of a tile with more rows than it must have
};

// Asks what across_tile_of() wants to know beside the extents of K and R.
void ask_across_tile(Problem& problem, Verdict& verdict);
AcrossTile across_tile_of(Problem& problem, const Hints& hints, const TileRoom& room);
// As few threads as fill a block walk a row of so many vectors; beyond a warp they wait for each
// other (layer norm of 768 float32 that lie across, on an H200: 48.4 us with 32, 66.6 with 64, a
// copy 44.7).
int threads_beside_tile(int64_t vectors);
// Raises UserError "plan-1" where the block of a changed plan does not hold whole runs of the tile.
void check_across_tile(const Plan& planned, const Plan& wanted);

}  // namespace fuser
