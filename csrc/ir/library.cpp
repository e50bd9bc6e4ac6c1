#include "ir/library.h"

#include <algorithm>

namespace fuser::ir {
namespace {

constexpr LibraryRow rows[] = {
#define FUSER_LIBRARY(name, operands, required, attributes, results, accepts, shape) \
  {#name, operands, required, attributes, results, accepts},
#include "ir/library.def"
#undef FUSER_LIBRARY
};

}  // namespace

std::span<const LibraryRow> library_rows() { return rows; }

bool find_library_op(std::string_view name, LibraryOp& op) {
  const auto found = std::find_if(std::begin(rows), std::end(rows),
                                  [&](const LibraryRow& r) { return r.name == name; });
  if (found == std::end(rows)) return false;
  op = static_cast<LibraryOp>(found - std::begin(rows));
  return true;
}

std::vector<LibraryAttribute> attributes_of(LibraryOp op) {
  using Kind = LibraryAttribute::Kind;
  std::vector<LibraryAttribute> out;
  std::string_view rest = row(op).attributes;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(' '), rest.size());
    const std::string_view word = rest.substr(0, end);
    const size_t colon = std::min(word.find(':'), word.size());
    const std::string_view kind = word.substr(colon);
    out.push_back({.name = word.substr(0, colon),
                   .kind = kind == ":real"    ? Kind::Real
                           : kind == ":bool"  ? Kind::Bool
                           : kind == ":dtype" ? Kind::Type
                                              : Kind::Int});
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return out;
}

bool accepts(LibraryOp op, DType dtype) {
  const uint8_t wanted = row(op).accepts;
  switch (kind_of(dtype)) {
    case Kind::Bool:
      return wanted & kBool;
    case Kind::Int:
      return !is_wide_unsigned(dtype) && (wanted & kInt);
    case Kind::Float:
      return wanted & (size_of(dtype) > 1 ? uint8_t{kFloat} : kFloat8);
    case Kind::Complex:
      return wanted & kComplex;
  }
  return false;
}

DType dtype_of(LibraryOp op, char letter, DType values, std::span<const int64_t> attributes) {
  switch (letter) {
    case 'a':
      return compute_type(values);
    case 'i':
      return DType::Int64;
    case 'n':
      return DType::Int32;
    case 't': {
      const std::vector<LibraryAttribute> names = attributes_of(op);
      for (size_t i = 0; i < names.size(); ++i)
        if (names[i].kind == LibraryAttribute::Kind::Type) return static_cast<DType>(attributes[i]);
      return values;
    }
    default:
      return values;
  }
}

}  // namespace fuser::ir
