#include "fusion/build/rules.h"

#include <algorithm>

#include "base/error.h"

namespace fuser::fusion::rules {

using namespace ir;

std::string where(const Tensor& t) {
  return text("t", t.id, ": ", ir::describe(t),
              t.location.empty() ? "" : "  defined at " + t.location);
}

std::string call(std::string_view op, std::span<const Operand> args) {
  std::vector<std::string> names;
  for (const Operand& a : args)
    names.push_back(a.tensor ? text("t", a.tensor->id) : ir::to_string(a.scalar));
  return text(op, "(", joined(names), ")");
}

std::string lines(std::span<const Operand> args) {
  std::string out;
  for (const Operand& a : args)
    if (a.tensor) out += "\n  " + where(*a.tensor);
  return out;
}

const Tensor* append(Fusion& fusion, DType dtype, std::vector<Expr> shape, Definition definition,
                     std::string location) {
  FUSER_CHECK(shape.size() <= max_rank, Unsupported, "rank-1", "t", fusion.tensors.size(), " has ",
              shape.size(), " dims, expected at most ", max_rank,
              location.empty() ? "" : "\n  defined at " + location,
              "\n  hint: merge dims with reshape()");
  fusion.tensors.push_back({.id = static_cast<int>(fusion.tensors.size()),
                            .dtype = dtype,
                            .shape = std::move(shape),
                            .definition = std::move(definition),
                            .location = std::move(location),
                            .composite = fusion.composite});
  return &fusion.tensors.back();
}

void check_count(const std::string& what, const char* rule, const Tensor& arg, size_t count,
                 const char* of) {
  FUSER_CHECK(static_cast<int>(count) == arg.rank(), Shape, rule, what, ": expected ", arg.rank(),
              " ", of, " (the rank of the operand), got ", count, "\n  ", where(arg));
}

Expr integer(Fusion& fusion, const std::string& what, const char* rule, Expr e) {
  FUSER_CHECK(kind_of(e->dtype) == Kind::Int, DType, rule, what, ": expected an integer, got ",
              ir::to_string(e), " of type ", row(e->dtype).torch);
  return fusion.exprs.cast(DType::Int64, e);
}

void check_size(const std::string& what, const char* rule, Expr size) {
  FUSER_CHECK(
      kind_of(size->dtype) == Kind::Int && !(size->is_constant() && size->value.integer < 0), Shape,
      rule, what, ": expected a size of at least 0, got ", size_text(size));
}

std::vector<int64_t> permutation(std::string_view op, const Tensor& arg,
                                 std::span<const int64_t> dims) {
  std::vector<int64_t> result(dims.begin(), dims.end());
  for (int64_t& d : result)
    if (d < 0) d += arg.rank();
  std::vector<int64_t> sorted = result;
  std::sort(sorted.begin(), sorted.end());
  bool ok = static_cast<int>(sorted.size()) == arg.rank();
  for (size_t i = 0; ok && i < sorted.size(); ++i) ok = sorted[i] == static_cast<int64_t>(i);
  FUSER_CHECK(ok, Shape, "permute-1", op, "(t", arg.id, ", [", joined(dims),
              "]): expected each of 0..", arg.rank() - 1, " once\n  ", where(arg));
  return result;
}

namespace {

// Names an op that only an execution can reject, with its composite: "reshape(): merge_dims(t0)".
std::string named(const Fusion& fusion, const std::string& op) {
  const std::string& whole = fusion.composite;
  return whole.empty() || op.starts_with(whole) ? op : text(whole, "(): ", op);
}

}  // namespace

void require(Fusion& fusion, Constraint constraint) {
  constraint.op = named(fusion, constraint.op);
  fusion.constraints.push_back(std::move(constraint));
}

void require(Fusion& fusion, const std::string& what, const Tensor* arg, int64_t axis, Expr has,
             Expr wanted, Constraint::Law law) {
  require(fusion, {.left = has,
                   .right = wanted,
                   .op = what,
                   .axis = static_cast<int>(axis),
                   .left_tensor = arg,
                   .right_tensor = arg,
                   .law = law});
}

void check_value(const std::string& what, Expr value, DType dtype, bool unsigned_wraps) {
  const Kind from = kind_of(value->dtype), to = kind_of(dtype);
  FUSER_CHECK(from != Kind::Complex || to == Kind::Complex || to == Kind::Bool, DType, "cast-1",
              what, ": ", ir::to_string(value), " as ", row(dtype).torch,
              ": casting complex to real discards the imaginary part\n"
              "  hint: use fd.ops.real(...) first");
  if (value->is_constant() && from == Kind::Int && to == Kind::Int)
    check_narrowed({.dtype = dtype, .unsigned_wraps = unsigned_wraps, .op = what},
                   value->value.integer);
}

void check_value(Fusion& fusion, const std::string& what, Expr value, DType dtype,
                 bool unsigned_wraps) {
  check_value(what, value, dtype, unsigned_wraps);
  const bool narrower = kind_of(value->dtype) == Kind::Int && kind_of(dtype) == Kind::Int &&
                        size_of(dtype) < size_of(value->dtype);
  if (narrower && value->is_symbol(Symbol::Scalar))
    fusion.narrowed.push_back({.scalar = static_cast<int>(value->a),
                               .dtype = dtype,
                               .unsigned_wraps = unsigned_wraps,
                               .op = named(fusion, what)});
}

void check_narrowed(const Narrowed& rule, int64_t value) {
  const bool wraps =
      rule.unsigned_wraps && rule.dtype == DType::UInt8 && value < 0 && value >= -255;
  FUSER_CHECK(wraps || wrap(rule.dtype, value) == value, DType, "scalar-fits-1", rule.op, ": ",
              value, " is out of range for ", row(rule.dtype).torch, "\n  hint: use a wider type");
}

std::string size_text(Expr size) {
  if (kind_of(size->dtype) == Kind::Int) return ir::to_string(size);
  return text(ir::to_string(size), " of type ", row(size->dtype).torch,
              "\n  hint: a // b is the quotient of integers, a / b never one");
}

int dim_of_size(const Tensor* t, Expr size) {
  const auto it = std::find(t->shape.begin(), t->shape.end(), size);
  return it == t->shape.end() ? -1 : static_cast<int>(it - t->shape.begin());
}

Expr meet(const ResultAxis& at, const Side& left, const Side& right,
          std::vector<Constraint>& constraints) {
  const Expr l = left.extent, r = right.extent;
  if (l == r || r->is_constant(1)) return l;
  if (l->is_constant(1)) return r;
  FUSER_CHECK(!(l->is_constant() && r->is_constant()), Shape, "broadcast-1", call(at.op, at.args),
              ": operands do not broadcast", lines(at.args), "\n  axis ", at.axis, ": ",
              l->value.integer, " against ", r->value.integer,
              "; expected equal sizes, or a size of 1");
  constraints.push_back({.left = l,
                         .right = r,
                         .op = call(at.op, at.args),
                         .axis = at.axis,
                         .left_tensor = left.tensor,
                         .right_tensor = right.tensor,
                         .left_dim = dim_of_size(left.tensor, l),
                         .right_dim = dim_of_size(right.tensor, r)});
  // A static size is the better name for both.
  return r->is_constant() ? r : l;
}

int64_t dim_of(const std::string& what, std::string_view rule, const Tensor& arg, int64_t dim,
               int more) {
  const int rank = arg.rank() + more;
  FUSER_CHECK(dim >= -rank && dim < rank, Shape, std::string(rule), what, ": dim ", dim,
              " is out of range for ", more ? "a result of " : "", "rank ", rank, "\n  ",
              where(arg));
  return dim < 0 ? dim + rank : dim;
}

}  // namespace fuser::fusion::rules
