// Packed rows: rows that are too short, or of a length that does not divide, for vectors of their
// own, but adjacent in memory. See lower/build/reduction_packed.cpp and inner.cpp.
#pragma once

#include <cstdint>

#include "schedulers/analysis/reduction_shape.h"

namespace fuser::schedulers {

// Launch shape of packed rows.
struct PackedRows {
  // Accesses that cross shared memory as packed rows; empty: the rows are not packed.
  schedule::AccessSet accesses;
  int threads_x = 1, threads_y = 1, unroll = 1;
  int vector = 1;           // adjacent elements in shared memory that a step takes at once
  int rows_per_thread = 1;  // rows per thread
};

// Plans packed rows. `run`: the vectors along rows. `length`, `count`: upper bounds of the elements
// of a row and of the rows.
PackedRows packed_rows_of(const fusion::Problem& problem, const VectorAxes& run,
                          fusion::SizeHints& hints, const schedule::Device& device, int64_t length,
                          int64_t count);

}  // namespace fuser::schedulers
