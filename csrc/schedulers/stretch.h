// Rows that are too short or too odd for vectors of their own, but follow each other in memory: see
// lower/tile_stretch.cpp and inner.cpp.
#pragma once

#include <cstdint>

#include "schedulers/dims.h"

namespace fuser {

// What rows of so many elements, and so many of them, are walked by.
struct PackedRows {
  AccessSet accesses;  // that cross shared memory; none: the rows are no stretch
  int threads_x = 1, threads_y = 1, unroll = 1;
  int vector = 1;  // elements that are neighbours in shared memory, of a step
  int turns = 1;   // rows of a thread
};

// Asks what stretch_of() wants to know beside the extents of K and R. `run`: how rows are walked.
void ask_stretch(Problem& problem, Verdict& verdict, const Run& run);
// `length`, `count`: at most so many elements of a row, and rows.
PackedRows stretch_of(Problem& problem, const Run& run, const Hints& hints, const Device& device,
                      int64_t length, int64_t count);

}  // namespace fuser
