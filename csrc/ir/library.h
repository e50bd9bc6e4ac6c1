// Extern ops, which a torch library computes because generated kernels would be slow: one row each
// in library.def. Their operands and results are in memory.
#pragma once

#include <bit>
#include <span>
#include <string_view>
#include <vector>

#include "ir/ops.h"

namespace fuser::ir {

struct LibraryRow {
  const char* name;  // frontend name: "matmul"
  // Dtype by operand: 'v' dtype of operand 0, 'x' any dtype that the row accepts, 'a' the dtype in
  // which values of operand 0 are summed, 'i' int64, 'n' int32, 't' the attribute `dtype`.
  std::string_view operands;
  int required;              // operands after the first `required` ones are optional
  const char* attributes;    // names, separated by spaces; "name" alone is an int
  std::string_view results;  // dtype by result, with the letters of `operands`
  uint8_t accepts;           // Accepts bits of the values, or kFloat8
};

constexpr uint8_t kFloat8 = 16;  // 8-bit floats, which kFloat excludes

// Attributes are held as int64: an integer, "name:bool" as 0 or 1, "name:real" as the bits of a
// float64, "name:dtype" as the number of a dtype. Bools and reals may be scalars of the run,
// because they affect no size.
struct LibraryAttribute {
  enum class Kind : uint8_t { Int, Bool, Real, Type };
  std::string_view name;
  Kind kind{};
};

enum class LibraryOp : uint8_t {
#define FUSER_LIBRARY(name, ...) name,
#include "ir/library.def"
#undef FUSER_LIBRARY
};

std::span<const LibraryRow> library_rows();
inline const LibraryRow& row(LibraryOp op) { return library_rows()[static_cast<int>(op)]; }
// Returns false if no row has this name.
bool find_library_op(std::string_view name, LibraryOp& op);
// Returns the row's attributes, in order.
std::vector<LibraryAttribute> attributes_of(LibraryOp op);
inline int64_t held(double real) { return std::bit_cast<int64_t>(real); }
inline double real_of(int64_t held) { return std::bit_cast<double>(held); }

// Returns whether the row accepts values of this dtype.
bool accepts(LibraryOp op, DType dtype);
// Returns the dtype of a letter of the row, for a call on `values` with these attributes.
DType dtype_of(LibraryOp op, char letter, DType values, std::span<const int64_t> attributes);

}  // namespace fuser::ir
