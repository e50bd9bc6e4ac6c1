// Shape and dtype rules of reductions, of coordinates as values (iota), and of gathers
// (take_along_axis).
#include <algorithm>
#include <set>

#include "base/error.h"
#include "fusion/build/define.h"
#include "fusion/build/rules.h"

namespace fuser::fusion {

using namespace ir;

using rules::append;
using rules::where;

namespace {

// Returns the dtype in which `op` computes on elements of `dtype`, or raises DTypeError.
DType compute_for(ReduceOp op, const Tensor& arg, const std::string& what) {
  const uint8_t accepts = row(op).accepts;
  if (accepts == kBool) return DType::Bool;  // nonzero elements are true
  DType compute = compute_type(arg.dtype);
  Kind kind = kind_of(compute);
  // Reductions that do arithmetic widen integers, as torch does; reductions that select do not.
  if ((kind == Kind::Bool || kind == Kind::Int) && (accepts & kInt) && !(accepts & kBool)) {
    compute = DType::Int64;
    kind = Kind::Int;
  }
  const uint8_t bit = kind == Kind::Bool    ? kBool
                      : kind == Kind::Int   ? (is_wide_unsigned(compute) ? kUnsigned : kInt)
                      : kind == Kind::Float ? kFloat
                                            : kComplex;
  FUSER_CHECK(accepts & bit, DType, "reduce-dtype-1", what, ": ", row(op).name,
              " is not defined on ", row(arg.dtype).torch, "\n  ", where(arg), "\n  hint: ",
              kind == Kind::Complex
                  ? "reduce the real part or the magnitude: fd.ops.real, fd.ops.abs"
                  : "cast the operand first");
  return compute;
}

// Requires that the dim has elements, if the result takes `asked` elements from it (nullptr:
// always).
void require_elements(Fusion& fusion, const std::string& what, const Tensor* arg, int64_t dim,
                      Expr asked = nullptr) {
  Exprs& exprs = fusion.exprs;
  const Expr one = exprs.constant(1);
  Expr extent = arg->shape[dim];
  if (asked) extent = exprs.add(extent, exprs.sub(one, exprs.apply(Op::minimum, {asked, one})));
  NonEmpty rule{.extent = extent, .op = what, .axis = static_cast<int>(dim), .tensor = arg};
  if (extent->is_constant(0)) raise_empty(rule);
  if (!extent->is_constant()) fusion.nonempty.push_back(std::move(rule));
}

}  // namespace

void raise_empty(const NonEmpty& rule) {
  throw Fault(FaultKind::Shape, "reduce-empty-1",
              text(rule.op, ": axis ", rule.axis, " has size 0, expected at least one element\n  ",
                   where(*rule.tensor)));
}

const Tensor* reduce(Fusion& fusion, ReduceOp op, const Tensor* arg, std::span<const int64_t> dims,
                     bool identity, std::string location) {
  const std::string what = text(row(op).name, "(t", arg->id, ", dims=[", joined(dims), "])");
  FUSER_CHECK(!dims.empty(), Shape, "reduce-dim-3", what, ": expected at least one dim\n  ",
              where(*arg));
  std::vector<int64_t> sorted;
  for (int64_t d : dims) sorted.push_back(rules::dim_of(what, "reduce-dim-1", *arg, d));
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  FUSER_CHECK(twice == sorted.end(), Shape, "reduce-dim-2", what, ": dim ", *twice,
              " is given twice\n  ", where(*arg));
  const DType compute = compute_for(op, *arg, what);
  arg = rules::unrounded(arg, compute);
  identity = identity && row(op).selects();
  if (!identity && row(op).selects())
    for (int64_t d : sorted) require_elements(fusion, what, arg, d);
  std::vector<Expr> shape;
  for (int d = 0; d < arg->rank(); ++d)
    if (!std::binary_search(sorted.begin(), sorted.end(), d)) shape.push_back(arg->shape[d]);
  return append(fusion, result_dtype(op, compute, 0), std::move(shape),
                Reduction{.op = op,
                          .compute = compute,
                          .arg = arg,
                          .dims = std::move(sorted),
                          .identity = identity},
                std::move(location));
}

namespace {

constexpr int most_visited = 128;  // limit of tensors visited to decide the order of a reduction

// Returns whether the tensor depends on a reduction. `left`: number of tensors that may still be
// visited.
bool is_reduced(const Tensor* t, int& left) {
  if (--left < 0) return false;
  if (std::holds_alternative<Reduction>(t->definition)) return true;
  const std::vector<const Tensor*> args = ir::operands(*t);
  return std::any_of(args.begin(), args.end(),
                     [&](const Tensor* a) { return is_reduced(a, left); });
}

// Returns the dims of `arg` along which an operand that depends on a reduction has one element.
std::vector<int64_t> dims_of_statistics(const Tensor* arg) {
  int left = most_visited;
  std::vector<bool> repeats(arg->rank(), false);
  std::vector<const Tensor*> open{arg};
  std::set<int> seen;
  while (!open.empty() && left-- > 0) {
    const Tensor* t = open.back();
    open.pop_back();
    if (!seen.insert(t->id).second) continue;
    std::vector<int> ones;
    for (int d = 0; d < t->rank(); ++d)
      if (t->shape[d]->is_constant(1) && !arg->shape[d]->is_constant(1)) ones.push_back(d);
    if (!ones.empty()) {
      if (is_reduced(t, left))
        for (int d : ones) repeats[d] = true;
    } else if (std::holds_alternative<Pointwise>(t->definition) ||
               std::holds_alternative<Cast>(t->definition) ||
               std::holds_alternative<Expand>(t->definition)) {
      for (const Tensor* a : ir::operands(*t)) open.push_back(a);
    }
  }
  std::vector<int64_t> out;
  for (int d = 0; d < arg->rank() && left >= 0; ++d)
    if (repeats[d]) out.push_back(d);
  return out;
}

}  // namespace

const Tensor* reduce_in_turn(Fusion& fusion, ReduceOp op, const Tensor* arg,
                             std::span<const int64_t> dims, bool identity, std::string location) {
  std::set<int64_t> wanted;
  for (int64_t d : dims) wanted.insert(d < 0 ? d + arg->rank() : d);
  // A partial result with several fields is no element that a second reduction could take.
  const bool may = wanted.size() > 1 && wanted.size() == dims.size() && row(op).pair &&
                   *wanted.begin() >= 0 && *wanted.rbegin() < arg->rank();
  const std::vector<int64_t> first = may ? dims_of_statistics(arg) : std::vector<int64_t>{};
  const bool inside =
      std::all_of(first.begin(), first.end(), [&](int64_t d) { return wanted.contains(d); });
  if (first.empty() || !inside || first.size() == wanted.size())
    return reduce(fusion, op, arg, dims, identity, std::move(location));
  std::vector<int64_t> rest;
  int64_t place = 0;
  for (int64_t d = 0; d < arg->rank(); ++d) {
    if (std::binary_search(first.begin(), first.end(), d)) continue;
    if (wanted.contains(d)) rest.push_back(place);
    ++place;
  }
  const Tensor* inner = reduce(fusion, op, arg, first, identity, location);
  return reduce(fusion, op, inner, rest, identity, std::move(location));
}

const Tensor* result(Fusion& fusion, const Tensor* of, int index, std::string location) {
  const auto* reduction = std::get_if<Reduction>(&of->definition);
  const auto* library = std::get_if<Library>(&of->definition);
  FUSER_CHECK(reduction || library, User, "result-1", "result(t", of->id, ", ", index,
              "): expected the tensor of a reduction or of a library op\n  ", where(*of));
  const int results =
      reduction ? row(reduction->op).results() : static_cast<int>(row(library->op).results.size());
  FUSER_CHECK(index >= 1 && index < results, User, "result-2", "result(t", of->id, ", ", index,
              "): ", reduction ? row(reduction->op).name : row(library->op).name, " has ", results,
              results == 1 ? " result" : " results", "; t", of->id, " is result 0\n  ", where(*of));
  if (library)
    return append(fusion,
                  dtype_of(library->op, row(library->op).results[index], library->args[0]->dtype,
                           library->attributes),
                  result_shape(fusion, *of, index), Result{.of = of, .index = index},
                  std::move(location));
  return append(fusion, result_dtype(reduction->op, reduction->compute, index), of->shape,
                Result{.of = of, .index = index}, std::move(location));
}

const Tensor* iota(Fusion& fusion, Expr length, std::string location) {
  rules::check_size("iota(length)", "iota-1", length);
  return append(fusion, DType::Int64, {fusion.exprs.cast(DType::Int64, length)}, Iota{},
                std::move(location));
}

const Tensor* take_along_axis(Fusion& fusion, const Tensor* arg, const Tensor* index, int64_t dim,
                              bool same_sizes, std::string location) {
  const char* op = same_sizes ? "gather" : "take_along_axis";
  const Operand args[] = {{.tensor = arg}, {.tensor = index}};
  const std::string what = rules::call(op, args);
  FUSER_CHECK(arg->rank() == index->rank(), Shape, "take-along-axis-1", what,
              ": expected operands of equal rank", rules::lines(args),
              "\n  hint: add dims of size 1 with broadcast");
  FUSER_CHECK(kind_of(index->dtype) == Kind::Int, DType, "index-dtype-1", what,
              ": expected an index of integers", rules::lines(args),
              "\n  hint: cast the index to DataType.Int");
  dim = rules::dim_of(what, "take-along-axis-2", *arg, dim);
  std::vector<Constraint> constraints;
  std::vector<Expr> shape = index->shape;
  for (int d = 0; d < arg->rank(); ++d) {
    if (d == dim) continue;
    Expr mine = arg->shape[d], wanted = index->shape[d];
    if (!same_sizes) {
      shape[d] =
          rules::meet({.op = op, .args = args, .axis = d}, {.extent = wanted, .tensor = index},
                      {.extent = mine, .tensor = arg}, constraints);
      continue;
    }
    if (mine == wanted) continue;
    if (mine->is_constant() && wanted->is_constant()) {
      FUSER_CHECK(wanted->value.integer <= mine->value.integer, Shape, "gather-1", what, ": axis ",
                  d, ": the index has size ", ir::to_string(wanted), ", the operand ",
                  ir::to_string(mine), "; expected at most the size of the operand",
                  rules::lines(args), "\n  hint: take_along_axis broadcasts sizes of 1");
      continue;
    }
    constraints.push_back(
        {.left = wanted,
         .right = fusion.exprs.apply(Op::minimum, {wanted, mine}),
         .op = what,
         .axis = d,
         .left_tensor = arg,
         .right_tensor = index,
         .law = {.rule = "gather-1",
                 .broken = "the index is larger than its operand",
                 .expected = "at most the size of the operand, except along the gathered dim"}});
  }
  Expr asked = fusion.exprs.constant(1);
  for (Expr extent : shape) asked = fusion.exprs.mul(asked, extent);
  require_elements(fusion, what, arg, dim, asked);
  for (Constraint& c : constraints) rules::require(fusion, std::move(c));
  return append(fusion, arg->dtype, std::move(shape),
                TakeAlongAxis{.arg = arg, .index = index, .dim = dim, .same_sizes = same_sizes},
                std::move(location));
}

}  // namespace fuser::fusion
