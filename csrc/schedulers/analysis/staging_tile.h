// Staging tiles: uncoalesced operands of a kernel over rows, whose tile for the rows of a block
// crosses shared memory. See lower/build/reduction_staging.cpp and inner.cpp.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "schedulers/legal.h"
#include "schedulers/scheduler.h"

namespace fuser::schedulers {

// The staging tile of a block.
struct StagingTile {
  // Staged accesses; empty if there are no uncoalesced operands or the tile does not fit.
  schedule::AccessSet accesses;
  int rows_per_vector = 1;  // neighbouring rows that move as one vector, 16 bytes at most
  int rows = 1;             // rows per block
  int64_t bytes = 0;        // bytes of shared memory of all tiles of a block
};

// Limits that a scheduler sets for a staging tile.
struct TileRoom {
  int64_t length = 0, count = 0;  // upper bounds of the elements of a row and of the rows
  int64_t tiles = 0;              // minimum number of tiles; tiles are not enlarged below it
  int64_t bytes = 0;              // bytes of shared memory per block
  int64_t most_bytes = 0;         // bytes of an enlarged tile, at most
};

StagingTile staging_tile_of(const fusion::Problem& problem, fusion::SizeHints& hints,
                            const TileRoom& room);
// Returns the threads per row, for `vectors` vectors per row: the fewest that still fill a block.
// At most a warp, because the threads of one warp combine without a barrier.
int threads_beside_tile(int64_t vectors);
// Stages the accesses of the set as tiles. `prefetch`: reads are copied one tile ahead.
void stage_tiles(const fusion::Problem& problem, schedule::Schedule& schedule,
                 const schedule::AccessSet& accesses, int64_t rows_per_vector, bool prefetch);
// Raises UserError "plan-1" if the rows of a block of a changed plan are not a multiple of the runs
// of its staging tile. P is InnerPlan or InnerOuterPlan.
template <class P>
void check_staging_tile(const schedule::Plan& planned, const P& was, const P& is) {
  if (was.staged.empty()) return;
  const int64_t rows = is.threads_y * is.rows_per_thread, threads = is.threads_x * is.threads_y;
  const int64_t most = was.threads_y * was.rows_per_thread, run = was.rows_per_vector;
  expect(
      planned, rows % run == 0 && threads % (rows / run) == 0 && rows <= most,
      text("threads_y * rows_per_thread=", rows),
      text("a multiple of ", run, " rows up to ", most, ", because the tile is staged in runs of ",
           run, " rows that divide ", threads, " threads"));
}

}  // namespace fuser::schedulers
