// Where a row that is walked several times lies between its walks: see inner.cpp.
#pragma once

#include <cstdint>

#include "schedulers/dims.h"

namespace fuser {

inline constexpr int register_elements = 32;  // of a thread, of rows that are combined once

// What decides that, beside the kernel's Shape.
struct WalkedRow {
  int64_t vectors = 0;
  int vector = 1;         // elements
  bool busy = false;      // instructions decide
  bool skew = false;      // no multiple of a vector
  int shifted_reads = 0;  // vectors beside the row's own that a step of a skewed walk puts
                          // together; two of them leave no registers for several steps
  bool can_copy = false;  // to shared memory, past registers
  bool linear = false;    // all accesses walk it by one index
};

// Where a row of several walks lies between them, and who walks it.
struct OnChip {
  Place place = Place::Registers;
  int threads_x = 1, unroll = 1, cluster = 1;
  int ring = 0;  // rows on their way to shared memory in a persistent grid; 0: one row a block
  int min_blocks = 0;  // resident on a processor; 0: as many as its registers leave room for
  // For other blocks, or with no other block beside it: one walk less then gains more than it
  // costs.
  bool waits = false;
  // What takes no place in L1, which has too little for what all rows read.
  enum class Once { None, Stores, Rows } once = Once::None;
};

// `planned`: as it would lie in registers.
OnChip on_chip(const Device& device, const Shape& shape, const WalkedRow& row,
               const OnChip& planned);

}  // namespace fuser
