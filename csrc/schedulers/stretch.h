// Packed rows: rows that are too short, or of a length that does not divide, for vectors of their
// own, but adjacent in memory. See lower/tile_stretch.cpp and inner.cpp.
#pragma once

#include <cstdint>

#include "schedulers/dims.h"

namespace fuser {

// Launch shape of packed rows.
struct PackedRows {
  // Accesses that cross shared memory as packed rows; empty: the rows are not packed.
  AccessSet accesses;
  int threads_x = 1, threads_y = 1, unroll = 1;
  int vector = 1;  // adjacent elements in shared memory that a step takes at once
  int turns = 1;   // rows per thread
};

// Registers the guards that stretch_of() needs, besides the extents of K and R. `run` describes the
// vectors along rows.
void ask_stretch(Problem& problem, Verdict& verdict, const Run& run);
// Plans packed rows. `length`, `count`: upper bounds of the elements of a row and of the rows.
PackedRows stretch_of(Problem& problem, const Run& run, const Hints& hints, const Device& device,
                      int64_t length, int64_t count);

}  // namespace fuser
