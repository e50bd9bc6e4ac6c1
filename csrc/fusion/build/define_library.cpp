// Shape and dtype rules of torch library ops (ir/library.def).
#include <algorithm>

#include "base/error.h"
#include "fusion/build/define.h"
#include "fusion/build/rules.h"

namespace fuser::fusion {

using namespace ir;

namespace {

// A library call whose shape is being inferred.
struct Call {
  Fusion& fusion;
  LibraryOp op;
  std::span<const Tensor* const> args;
  std::vector<int64_t> attributes;
  std::vector<Operand> operands{};
  std::string what{};
  std::vector<Constraint> constraints{};

  Expr size(size_t arg, int dim) const {
    const Tensor& t = *args[arg];
    return t.shape[dim < 0 ? dim + t.rank() : dim];
  }

  void rank(size_t arg, int least, int most = 64) const {
    const int rank = args[arg]->rank();
    FUSER_CHECK(rank >= least && rank <= most, Shape, "library-rank-1", what, ": operand ", arg,
                " has ", rank, rank == 1 ? " dim" : " dims", ", expected ",
                least == most ? "" : "at least ", least, rules::lines(operands));
  }

  // Requires that both sizes are equal; with `most`, that the first is at most the second.
  void equal(size_t arg, int dim, size_t other, int other_dim, bool most = false) {
    const Expr mine = size(arg, dim), theirs = size(other, other_dim);
    if (mine == theirs) return;
    const int axis = dim < 0 ? dim + args[arg]->rank() : dim;
    if (mine->is_constant() && theirs->is_constant()) {
      FUSER_CHECK(most && mine->value.integer <= theirs->value.integer, Shape, "library-size-1",
                  what, ": axis ", axis, " of operand ", arg, " has size ", ir::to_string(mine),
                  ", expected ", most ? "at most " : "", ir::to_string(theirs), " as in operand ",
                  other, rules::lines(operands));
      return;
    }
    require(mine, most ? fusion.exprs.apply(Op::minimum, {mine, theirs}) : theirs, axis, arg,
            other);
  }

  void one(size_t arg, int dim) {
    const Expr mine = size(arg, dim);
    FUSER_CHECK(!mine->is_constant() || mine->is_constant(1), Shape, "library-size-1", what,
                ": axis ", dim, " of operand ", arg, " has size ", ir::to_string(mine),
                ", expected 1", rules::lines(operands));
    if (!mine->is_constant()) require(mine, fusion.exprs.constant(1), dim, arg, arg);
  }

  void require(Expr left, Expr right, int axis, size_t arg, size_t other) {
    constraints.push_back({.left = left,
                           .right = right,
                           .op = what,
                           .axis = axis,
                           .left_tensor = args[arg],
                           .right_tensor = args[other],
                           .law = {.rule = "library-size-1",
                                   .broken = "the operands have incompatible sizes",
                                   .expected = "equal"}});
  }

  // Returns the attribute `dim` counted from the front.
  int64_t dim() {
    const auto row_attributes = attributes_of(op);
    const auto at = std::find_if(row_attributes.begin(), row_attributes.end(),
                                 [](const LibraryAttribute& a) { return a.name == "dim"; }) -
                    row_attributes.begin();
    return attributes[at] = rules::dim_of(what, "library-dim-1", *args[0], attributes[at]);
  }
};

std::vector<Expr> product(Call& c) {
  const Tensor &a = *c.args[0], &b = *c.args[1];
  c.rank(0, 1);
  c.rank(1, 1);
  c.equal(0, -1, 1, b.rank() == 1 ? 0 : -2);
  const int batch = std::max({a.rank(), b.rank(), 2}) - 2;
  std::vector<Expr> shape;
  for (int d = 0; d < batch; ++d) {
    const int x = d - batch + a.rank() - 2, y = d - batch + b.rank() - 2;
    if (x < 0 || y < 0)
      shape.push_back(x < 0 ? b.shape[y] : a.shape[x]);
    else
      shape.push_back(rules::meet({.op = row(c.op).name, .args = c.operands, .axis = d},
                                  {.extent = a.shape[x], .tensor = &a},
                                  {.extent = b.shape[y], .tensor = &b}, c.constraints));
  }
  if (a.rank() > 1) shape.push_back(c.size(0, -2));
  if (b.rank() > 1) shape.push_back(c.size(1, -1));
  return shape;
}

std::vector<Expr> affine(Call& c) {
  c.rank(0, 1);
  c.rank(1, 2, 2);
  c.equal(0, -1, 1, -1);
  if (c.args.size() > 2) {
    c.rank(2, 1, 1);
    c.equal(2, 0, 1, 0);
  }
  std::vector<Expr> shape = c.args[0]->shape;
  shape.back() = c.size(1, 0);
  return shape;
}

std::vector<Expr> batched(Call& c) {
  for (size_t i = 0; i < 3; ++i) c.rank(i, 3, 3);
  c.equal(0, 0, 1, 0);
  c.equal(2, 0, 1, 0);
  c.equal(0, 1, 1, 1);
  c.equal(0, 2, 2, 2);
  c.equal(1, 2, 2, 1);
  return c.args[0]->shape;
}

std::vector<Expr> along(Call& c) {
  c.dim();
  return c.args[0]->shape;
}

std::vector<Expr> top(Call& c) {
  const int64_t k = c.attributes[0];
  const auto dim = static_cast<int>(c.dim());
  const Expr size = c.size(0, dim), wanted = c.fusion.exprs.constant(k);
  FUSER_CHECK(k >= 0 && (!size->is_constant() || k <= size->value.integer), Shape, "topk-1", c.what,
              ": expected k between 0 and the size of axis ", dim, ", got ", k,
              rules::lines(c.operands));
  if (!size->is_constant())
    c.require(wanted, c.fusion.exprs.apply(Op::minimum, {wanted, size}), dim, 0, 0);
  std::vector<Expr> shape = c.args[0]->shape;
  shape[dim] = wanted;
  return shape;
}

std::vector<Expr> scattered(Call& c) {
  const int64_t dim = c.dim();
  const int rank = c.args[0]->rank();
  for (size_t i : {1, 2}) c.rank(i, rank, rank);
  for (int d = 0; d < rank; ++d) {
    c.equal(1, d, 2, d, true);
    if (d != dim) c.equal(1, d, 0, d, true);
  }
  return c.args[0]->shape;
}

// index_put along dim 0: the values have the shape of the index in place of that dim.
std::vector<Expr> put(Call& c) {
  c.rank(0, 1);
  const int index = c.args[1]->rank(), rank = c.args[0]->rank();
  c.rank(2, index + rank - 1, index + rank - 1);
  for (int d = 0; d < index; ++d) c.equal(2, d, 1, d);
  for (int d = 1; d < rank; ++d) c.equal(2, index + d - 1, 0, d);
  return c.args[0]->shape;
}

// Grouped matrix products. Groups are ranges of rows for [m, k] and [g, k, n], of columns for [g,
// m, k] and [k, n], and of the summed dim for [m, k] and [k, n]. Offsets are the ends of the
// groups.
std::vector<Expr> grouped(Call& c) {
  for (size_t i : {0, 1}) c.rank(i, 2, 3);
  c.rank(2, 1, 1);
  c.equal(0, -1, 1, -2);
  const bool first = c.args[0]->rank() == 3, second = c.args[1]->rank() == 3;
  if (first || second) c.equal(2, 0, first ? 0 : 1, 0);
  if (first && second) {
    c.equal(1, 0, 0, 0);
    return {c.size(0, 0), c.size(0, 1), c.size(1, 2)};
  }
  std::vector<Expr> shape{c.size(0, -2), c.size(1, -1)};
  if (!first && !second) shape.insert(shape.begin(), c.size(2, 0));
  return shape;
}

// Grouped products with scales for the rows of the first and the columns of the second operand.
// Scales have a group dim if their operand has one, or if groups of the summed dim give one result
// each.
std::vector<Expr> scaled_groups(Call& c) {
  const std::vector<Expr> shape = grouped(c);
  for (int i : {0, 1}) {
    const int scale = 3 + i, rank = c.args[i]->rank(), mine = i == 0 ? -2 : -1;
    const int wanted = std::max(rank, static_cast<int>(shape.size()));
    c.rank(scale, wanted, wanted);
    c.equal(scale, mine, i, mine);
    if (wanted == 3) c.equal(scale, 0, rank == 3 ? i : 2, 0);
    c.one(scale, i == 0 ? wanted - 1 : wanted - 2);
  }
  return shape;
}

// Scaled product: a scale is one element of any rank for its matrix, or [m, 1] and [1, n].
std::vector<Expr> scaled(Call& c) {
  for (size_t i : {0, 1}) c.rank(i, 2, 2);
  c.equal(0, 1, 1, 0);
  for (size_t i : {2, 3}) {
    const Tensor& scale = *c.args[i];
    const bool whole = std::all_of(scale.shape.begin(), scale.shape.end(),
                                   [](Expr n) { return n->is_constant(1); });
    if (whole) continue;
    c.rank(i, 2, 2);
    c.equal(i, i == 2 ? 0 : 1, i - 2, i == 2 ? 0 : 1);
  }
  if (c.args.size() > 4) {
    c.rank(4, 1, 1);
    c.equal(4, 0, 1, 1);
  }
  return {c.size(0, 0), c.size(1, 1)};
}

// Checks query, key and value from operand `first` on: [batch, heads, length, head size].
void check_heads(Call& c, size_t first) {
  for (size_t i = first; i < first + 3; ++i) {
    c.rank(i, 4, 4);
    for (int d : {0, 1})
      if (i > first) c.equal(i, d, first, d);
  }
  c.equal(first + 1, 3, first, 3);
  c.equal(first + 2, 2, first + 1, 2);
}

std::vector<Expr> attended(Call& c) {
  check_heads(c, 0);
  if (c.args.size() > 3) {
    c.rank(3, 4, 4);
    for (int d = 0; d < 4; ++d)
      if (!c.size(3, d)->is_constant(1)) c.equal(3, d, d < 3 ? 0 : 1, d < 3 ? d : 2);
  }
  return {c.size(0, 0), c.size(0, 1), c.size(0, 2), c.size(2, 3)};
}

std::vector<Expr> attended_backward(Call& c) {
  check_heads(c, 1);
  for (size_t i : {0, 4}) {
    c.rank(i, 4, 4);
    for (int d : {0, 1, 2}) c.equal(i, d, 1, d);
    c.equal(i, 3, 3, 3);
  }
  c.rank(5, 3, 3);
  for (int d : {0, 1, 2}) c.equal(5, d, 1, d);
  return c.args[1]->shape;
}

using Rule = std::vector<Expr> (*)(Call&);
constexpr Rule rules_by_op[] = {
#define FUSER_LIBRARY(name, operands, required, attributes, results, accepts, shape) &shape,
#include "ir/library.def"
#undef FUSER_LIBRARY
};

}  // namespace

namespace {

// Attributes must be constants or scalar inputs: the host calls the library, and does not know
// values that kernels compute.
void check_given(LibraryOp op, std::span<const Expr> given) {
  const std::vector<LibraryAttribute> attributes = attributes_of(op);
  for (size_t i = 0; i < given.size(); ++i) {
    if (!given[i]) continue;
    const auto& [name, kind] = attributes[i];
    const bool is_number =
        kind == LibraryAttribute::Kind::Bool || kind == LibraryAttribute::Kind::Real;
    FUSER_CHECK(is_number && kind_of(given[i]->dtype) != Kind::Complex, User, "library-3",
                row(op).name, "(): ", name, ": got a Scalar of type ", row(given[i]->dtype).torch,
                ", expected ", is_number ? "a real number" : "a value fixed in the definition");
    FUSER_CHECK(given[i]->is_symbol(Symbol::Scalar), Unsupported, "library-4", row(op).name,
                "(): ", name, ": expected a number or a scalar input, got the computed scalar ",
                ir::to_string(given[i]),
                "\n  hint: compute it before the run and pass it to execute()");
  }
}

}  // namespace

const Tensor* library(Fusion& fusion, LibraryOp op, std::span<const Tensor* const> args,
                      std::span<const int64_t> attributes, std::vector<Expr> given,
                      std::string location) {
  const LibraryRow& r = row(op);
  FUSER_CHECK(static_cast<int>(args.size()) >= r.required && args.size() <= r.operands.size(), User,
              "library-2", r.name, "(): expected ", r.required, " to ", r.operands.size(),
              " tensors, got ", args.size());
  FUSER_ASSERT(attributes.size() == attributes_of(op).size(), r.name, "() with ", attributes.size(),
               " attributes, expected ", r.attributes);
  check_given(op, given);
  Call call{.fusion = fusion,
            .op = op,
            .args = args,
            .attributes = {attributes.begin(), attributes.end()}};
  for (const Tensor* t : args) call.operands.push_back({.tensor = t});
  call.what = rules::call(r.name, call.operands);
  const DType values = args[0]->dtype;
  FUSER_CHECK(accepts(op, values), DType, "library-dtype-1", call.what,
              ": the op does not support the dtype of operand 0", rules::lines(call.operands),
              "\n  hint: cast the operand first");
  for (size_t i = 0; i < args.size(); ++i) {
    const bool any = r.operands[i] == 'x' && accepts(op, args[i]->dtype);
    const DType wanted =
        any ? args[i]->dtype : dtype_of(op, r.operands[i], values, call.attributes);
    FUSER_CHECK(args[i]->dtype == wanted, DType, "library-dtype-2", call.what, ": operand ", i,
                " is of type ", row(args[i]->dtype).torch, ", expected ", row(wanted).torch,
                rules::lines(call.operands), "\n  hint: cast it first");
  }
  std::vector<Expr> shape = rules_by_op[static_cast<int>(op)](call);
  for (Constraint& c : call.constraints) rules::require(fusion, std::move(c));
  const DType dtype = dtype_of(op, r.results[0], values, call.attributes);
  return rules::append(fusion, dtype, std::move(shape),
                       Library{.op = op,
                               .args = {args.begin(), args.end()},
                               .attributes = std::move(call.attributes),
                               .given = std::move(given)},
                       std::move(location));
}

std::vector<Expr> result_shape(Fusion& fusion, const Tensor& call, int result) {
  const auto& d = std::get<Library>(call.definition);
  if (d.op == LibraryOp::sdpfa_bwd) return d.args[1 + result]->shape;
  if (d.op != LibraryOp::sdpfa_fwd) return call.shape;
  // Log-sum-exp of each row; then the state of the random numbers: [2] and [].
  if (result == 1) return {call.shape.begin(), call.shape.end() - 1};
  return result == 2 ? std::vector<Expr>{fusion.exprs.constant(2)} : std::vector<Expr>{};
}

}  // namespace fuser::fusion
