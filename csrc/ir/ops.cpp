#include "ir/ops.h"

#include <string>
#include <unordered_map>

namespace fuser::ir {
namespace {

constexpr const char* kNone = nullptr;  // the row has no text for that kind

constexpr OpRow rows[] = {
#define FUSER_OP(name, arity, rule, accepts, cost, ulp, real_text, int_text, complex_text) \
  {#name, arity, ResultRule::rule, accepts, cost, ulp, real_text, int_text, complex_text},
#include "ir/ops.def"
#undef FUSER_OP
};

}  // namespace

std::span<const OpRow> op_rows() { return rows; }

bool find_op(std::string_view name, Op& op) {
  static const auto* index = [] {
    auto* map = new std::unordered_map<std::string_view, Op>;
    for (size_t i = 0; i < std::size(rows); ++i) map->emplace(rows[i].name, static_cast<Op>(i));
    return map;
  }();
  const auto it = index->find(name);
  if (it == index->end()) return false;
  op = it->second;
  return true;
}

Op half_form(Op op) {
  find_op(std::string(row(op).name) + "_half", op);
  return op;
}

const char* op_text(Op op, DType compute) {
  const OpRow& r = row(op);
  switch (kind_of(compute)) {
    case Kind::Bool:
      return (r.accepts & kBool) ? r.int_text : nullptr;
    case Kind::Int:
      return (r.accepts & (is_wide_unsigned(compute) ? kUnsigned : kInt)) ? r.int_text : nullptr;
    case Kind::Float:
      return (r.accepts & kFloat) ? r.real_text : nullptr;
    case Kind::Complex:
      return (r.accepts & kComplex) ? r.complex_text : nullptr;
  }
  return nullptr;
}

}  // namespace fuser::ir
