// Ops that no generated kernel does well and a library computes: one row each in library.def. Their
// operands and results lie in memory.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "ir/ops.h"

namespace fuser {

struct LibraryRow {
  const char* name;           // frontend name: "matmul"
  std::string_view operands;  // by operand: 'v' values, all of one dtype, 'i' an int64 index
  int required;               // operands behind so many may be left out
  const char* attributes;     // names, with spaces between
  std::string_view results;   // by result: 'v' of the values' dtype, 'i' int64
  uint8_t accepts;            // Accepts bits of the values; no float8
};

enum class LibraryOp : uint8_t {
#define FUSER_LIBRARY(name, ...) name,
#include "ir/library.def"
#undef FUSER_LIBRARY
};

std::span<const LibraryRow> library_rows();
inline const LibraryRow& row(LibraryOp op) { return library_rows()[static_cast<int>(op)]; }
// Returns false when no row has that name.
bool find_library_op(std::string_view name, LibraryOp& op);
// Names of the row's attributes, in order.
std::vector<std::string_view> attribute_names(LibraryOp op);

// Is a tensor of this dtype among the row's values?
bool accepts(LibraryOp op, DType dtype);
DType result_dtype(LibraryOp op, DType values, int result);

}  // namespace fuser
