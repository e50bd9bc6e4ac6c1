#include "schedulers/analysis/staging_tile.h"

#include <algorithm>

#include "base/error.h"
#include "cost/tuning.h"
#include "fusion/kernel/transpose_operands.h"
#include "schedulers/analysis/collapse.h"
#include "schedulers/analysis/vectorize.h"
#include "schedulers/legal.h"

namespace fuser::schedulers {

using namespace fusion;
using namespace ir;
using namespace schedule;
using namespace cost::staging_tile;

namespace {

// Bytes of a memory transaction; the rows of a tile must fill at least one.
constexpr int sector = 32;

// Returns the innermost kept axes along which the access is contiguous in memory. Empty if no kept
// axis is contiguous.
std::vector<AxisId> run_axes(const Problem& p, const MemoryAccess& a) {
  std::vector<AxisId> run = collapse(p, kept_axes(p), {&a}).back();
  Expr along = coefficient(p, a, run);
  return along && along->is_constant(1) ? run : std::vector<AxisId>{};
}

bool moves_runs(const Problem& p, const MemoryAccess& a, SizeHints& hints, int length) {
  length = std::min(length, longest_vector(a));
  if (length == 1) return true;
  const std::vector<AxisId> run = run_axes(p, a);
  return hints.divides(extent_of(p, hints.exprs(), run), length) &&
         can_vector(p, a, run, hints, length);
}

}  // namespace

StagingTile staging_tile_of(const Problem& p, SizeHints& hints, const TileRoom& room) {
  StagingTile t;
  const std::vector<size_t> uncoalesced = uncoalesced_accesses(p, {});
  int bytes = 0, least_rows = 1, longest = 1;
  for (size_t i : uncoalesced) {
    const MemoryAccess& a = p.accesses[i];
    if (run_axes(p, a).empty()) return {};
    t.accesses.insert(i);
    bytes += size_of(a.dtype);
    longest = std::max(longest, longest_vector(a));
    least_rows = std::max(least_rows, sector / size_of(a.dtype));
  }
  if (uncoalesced.empty()) return {};
  const int64_t row_bytes = room.length * bytes;
  t.rows = least_rows;
  if (t.rows * row_bytes > room.bytes) return {};
  const auto fits = [&](int rows) {
    return rows * row_bytes <= (rows <= good_rows
                                    ? room.most_bytes
                                    : std::min<int64_t>(room.most_bytes, enough_bytes)) &&
           room.count >= room.tiles * rows;
  };
  while (t.rows < most_rows && fits(2 * t.rows)) t.rows *= 2;
  t.bytes = t.rows * row_bytes;
  for (t.rows_per_vector = longest; t.rows_per_vector > 1; t.rows_per_vector /= 2)
    if (t.rows_per_vector <= t.rows &&
        std::all_of(uncoalesced.begin(), uncoalesced.end(), [&](size_t i) {
          return moves_runs(p, p.accesses[i], hints, t.rows_per_vector);
        }))
      break;
  for (size_t i : uncoalesced)
    if (t.rows_per_vector * size_of(p.accesses[i].dtype) < least_run) return {};
  return t;
}

int threads_beside_tile(int64_t vectors) {
  return std::clamp(ceil_pow2(vectors) / steps, fewest_threads, warp);
}

void stage_tiles(const Problem& p, Schedule& schedule, const AccessSet& accesses,
                 int64_t rows_per_vector, bool prefetch) {
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    if (!accesses.contains(i)) continue;
    const auto rows = static_cast<int>(std::min<int64_t>(rows_per_vector, longest_vector(a)));
    schedule.stagings.push_back({.access = static_cast<AccessId>(i),
                                 .place = Place::Shared,
                                 .shape = StagingShape::Tile,
                                 .rows_per_vector = rows,
                                 .prefetch = prefetch && !a.store,
                                 .swizzle = 1});
  }
}

}  // namespace fuser::schedulers
