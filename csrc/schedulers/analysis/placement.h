// Placement of a row that several reduction loops read: registers, shared memory, a cluster, or
// memory. See inner.cpp.
#pragma once

#include <cstdint>

#include "schedulers/analysis/reduction_shape.h"

namespace fuser::schedulers {

// Traits of a row that decide its placement, in addition to its Shape.
struct RowTraits {
  int64_t vectors = 0;
  int vector = 1;     // elements per vector
  bool busy = false;  // True if issue slots dominate the memory time
  // True if the row length is not a multiple of the vector length, so that loops peel.
  bool peel = false;
  // Unaligned reads of a peeled row, each assembled from two vectors. Two or more leave no
  // registers for several steps at once.
  int unaligned_reads = 0;
  // True if all persistent reads can be copied to shared memory asynchronously.
  bool can_copy = false;
  bool linear = false;  // True if one linear index over R addresses all accesses
};

// Placement of a row, and the threads that process it.
struct RowPlacement {
  schedule::Place persistent_in = schedule::Place::Registers;
  int threads_x = 1, unroll = 1, cluster = 1;
  int num_stages = 0;         // stages of row copies in a persistent grid; 0: one row per block
  int min_blocks_per_sm = 0;  // resident blocks per SM; 0: as many as its registers allow
  // True if the block synchronizes with a cluster or is alone on its SM. Then the single-pass form
  // is preferred, because one reduction loop less gains more than it costs.
  bool waits = false;
  // Streaming accesses, to keep in L1 the tensors that all rows read.
  enum class Streaming { None, Stores, Rows } streaming = Streaming::None;
};

// `planned`: the placement in registers that the caller would choose.
RowPlacement place_row(const schedule::Device& device, const ReductionShape& shape,
                       const RowTraits& row, const RowPlacement& planned);

}  // namespace fuser::schedulers
