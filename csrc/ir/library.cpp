#include "ir/library.h"

#include <algorithm>

namespace fuser {
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

std::vector<std::string_view> attribute_names(LibraryOp op) {
  std::vector<std::string_view> out;
  std::string_view rest = row(op).attributes;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(' '), rest.size());
    out.push_back(rest.substr(0, end));
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
      return wanted & kInt;
    case Kind::Float:
      return (wanted & kFloat) && size_of(dtype) > 1;
    case Kind::Complex:
      return wanted & kComplex;
  }
  return false;
}

DType result_dtype(LibraryOp op, DType values, int result) {
  return row(op).results[result] == 'i' ? DType::Int64 : values;
}

}  // namespace fuser
