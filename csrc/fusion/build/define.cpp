#include "fusion/build/define.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "fusion/build/rules.h"

namespace fuser::fusion {

using namespace ir;

using rules::append;
using rules::call;
using rules::lines;
using rules::where;

namespace {

Kind category(const Operand& o) { return kind_of(o.tensor ? o.tensor->dtype : o.scalar->dtype); }

}  // namespace

DType promoted_dtype(std::span<const Operand> operands) {
  // torch's rule: each priority level promotes within itself, and a lower level counts only if its
  // category is higher.
  std::optional<DType> level[3];
  for (const Operand& o : operands) {
    const DType d = o.tensor ? o.tensor->dtype : o.scalar->dtype;
    auto& slot = level[!o.tensor ? 2 : o.tensor->rank() == 0 ? 1 : 0];
    slot = slot ? promote_types(*slot, d) : d;
  }
  // A Python float with int tensors means float32, torch's default, not float64. Scalars alone keep
  // their dtype.
  if (level[2] && (level[0] || level[1])) {
    if (*level[2] == DType::Float64) level[2] = DType::Float32;
    if (*level[2] == DType::Complex128) level[2] = DType::Complex64;
  }
  std::optional<DType> result;
  for (const auto& d : level) {
    if (!d) continue;
    if (!result) {
      result = d;
    } else if (kind_of(*d) > kind_of(*result)) {
      // A complex operand of lower priority keeps the precision of a float operand of higher
      // priority.
      result = kind_of(*d) == Kind::Complex && kind_of(*result) == Kind::Float
                   ? complex_type(*result)
                   : promote_types(*result, *d);
    }
  }
  return *result;
}

DType common_dtype(std::span<const Operand> operands) {
  return compute_type(promoted_dtype(operands));
}

const Tensor* define_tensor(Fusion& fusion, std::span<const int64_t> shape, DType dtype,
                            Input input, std::string location) {
  input.index = static_cast<int>(fusion.inputs.size());
  std::vector<Expr> extents;
  for (size_t d = 0; d < shape.size(); ++d) {
    FUSER_CHECK(shape[d] >= -1, Shape, "define-tensor-1", "define_tensor(shape=[", joined(shape),
                "]): expected -1 (symbolic), 0, 1 or a static size in axis ", d, ", got ",
                shape[d]);
    extents.push_back(shape[d] < 0
                          ? fusion.exprs.symbol(Symbol::Size, input.index, static_cast<int>(d))
                          : fusion.exprs.constant(shape[d]));
  }
  fusion.arguments.push_back({.is_tensor = true, .index = input.index});
  const Tensor* t =
      append(fusion, dtype, std::move(extents), std::move(input), std::move(location));
  fusion.inputs.push_back(t);
  return t;
}

Expr define_scalar(Fusion& fusion, DType dtype) {
  const int index = static_cast<int>(fusion.scalars.size());
  Expr symbol = fusion.exprs.symbol(Symbol::Scalar, index, 0, dtype);
  fusion.scalars.push_back({.dtype = dtype, .symbol = symbol});
  fusion.arguments.push_back({.is_tensor = false, .index = index});
  return symbol;
}

namespace {

// Returns the dtype in which `op` computes on operands whose common dtype is `common`, or raises
// DTypeError.
DType compute_for(Op op, DType common, std::span<const Operand> args) {
  const OpRow& r = row(op);
  DType compute = common;
  if (r.rule == ResultRule::Float &&
      (kind_of(compute) == Kind::Int || kind_of(compute) == Kind::Bool))
    compute = DType::Float32;
  // An op without a bool form may still be defined on ints, like torch's arithmetic on masks.
  FUSER_CHECK(op_text(op, compute) != nullptr, DType, "op-dtype-1", call(r.name, args), ": ",
              r.name, " is not defined on ", row(compute).torch, lines(args),
              "\n  hint: cast the operand first");
  return compute;
}

DType result_of(Op op, DType compute) {
  switch (row(op).rule) {
    case ResultRule::Predicate:
      return DType::Bool;
    case ResultRule::Real:
      return real_type(compute);
    case ResultRule::Complex:
      return complex_type(compute);
    default:
      return compute;
  }
}

void check_arity(Op op, size_t given) {
  FUSER_CHECK(given == row(op).arity, User, "op-arity-1", row(op).name, "(): expected ",
              int(row(op).arity), " operands, got ", given);
}

std::span<const Operand> valued(Op op, std::span<const Operand> args) {
  return row(op).rule == ResultRule::Condition ? args.subspan(1) : args;
}

// Returns whether an operand of `dtype` with dims would change the dtype in which an op computes.
bool counts_more(DType dtype, DType compute) {
  if (is_wide_unsigned(dtype) || is_wide_unsigned(compute)) return dtype != compute;
  const DType both = promote_types(compute, dtype);
  return (compute == compute_type(compute) ? compute_type(both) : both) != compute;
}

// Selected operands keep their dtype, half types too; see ResultRule.
DType dtype_for(Op op, std::span<const Operand> args) {
  const bool chooses = row(op).rule == ResultRule::Condition;
  const auto values = valued(op, args);
  return compute_for(op, chooses ? promoted_dtype(values) : common_dtype(values), args);
}

// Returns whether a scalar operand is used as a number: selected, compared, or an exponent. Other
// ops take it modulo the range of the dtype, as torch does.
bool takes_as_it_is(Op op, size_t operand) {
  return row(op).arity == 3 || (op == Op::pow && operand == 1);
}

// Returns whether the op returns a half type for operands of a half type.
bool keeps_half_types(Op op) {
  return row(op).rule == ResultRule::Common || row(op).rule == ResultRule::Real;
}

// Returns whether each element of `t` is a value of type `narrow`: `t` is a cast from that type, or
// ops that are exact on half types applied to one.
bool holds(const Tensor* t, DType narrow) {
  while (t->dtype != narrow) {
    if (const auto* c = std::get_if<Cast>(&t->definition)) {
      if (c->arg->dtype != narrow) return false;
      t = c->arg;
      continue;
    }
    const auto* p = std::get_if<Pointwise>(&t->definition);
    if (!p || row(p->op).arity != 1 || !keeps_half_types(p->op)) return false;
    t = p->args[0].tensor;
    if (!t) return false;
  }
  return true;
}

// Applies an op with half operands: computes in float32 and rounds to the half type.
const Tensor* computed_wide(Fusion& fusion, Op op, std::span<const Operand> args, DType compute,
                            const std::string& location) {
  const DType narrow = promoted_dtype(args);
  std::vector<Operand> wide(args.begin(), args.end());
  for (Operand& a : wide) {
    if (!a.tensor) continue;
    a.tensor = rules::unrounded(a.tensor, compute);
    if (a.tensor->dtype != compute) a.tensor = cast(fusion, a.tensor, compute, location);
  }
  return cast(fusion, pointwise(fusion, op, wide, location), narrow, location);
}

}  // namespace

const Tensor* rules::unrounded(const Tensor* t, DType compute) {
  const auto* c = std::get_if<Cast>(&t->definition);
  const bool exact = c && t->dtype != compute && c->arg->dtype == compute &&
                     compute == compute_type(t->dtype) && holds(c->arg, t->dtype);
  return exact ? c->arg : t;
}

const Tensor* pointwise(Fusion& fusion, Op op, std::span<const Operand> args,
                        std::string location) {
  check_arity(op, args.size());
  const DType compute = dtype_for(op, args);
  if (keeps_half_types(op) && promoted_dtype(args) != compute)
    return computed_wide(fusion, op, args, compute, location);
  if (row(op).rule == ResultRule::Condition)
    FUSER_CHECK(category(args[0]) == Kind::Bool || category(args[0]) == Kind::Int, DType, "where-1",
                call(row(op).name, args), ": expected a bool condition", lines(args),
                "\n  hint: compare it with a number, or cast it to bool");
  for (size_t i = 0; i < args.size(); ++i)
    if (args[i].scalar && takes_as_it_is(op, i))
      rules::check_value(fusion, call(row(op).name, args), args[i].scalar, compute, op != Op::pow);
  int rank = 0;
  for (const Operand& a : args)
    if (a.tensor) rank = std::max(rank, a.tensor->rank());
  std::vector<rules::Side> met(rank);  // by axis: the extent so far, and its tensor
  std::vector<Constraint> constraints;
  std::vector<Operand> aligned(args.begin(), args.end());
  for (Operand& a : aligned)
    if (a.tensor) a.tensor = rules::unrounded(a.tensor, compute);
  for (const Operand& a : args) {
    if (!a.tensor) continue;
    const int shift = rank - a.tensor->rank();
    for (int d = 0; d < a.tensor->rank(); ++d) {
      const rules::Side mine{.extent = a.tensor->shape[d], .tensor = a.tensor};
      rules::Side& so_far = met[d + shift];
      Expr extent = mine.extent;
      if (so_far.extent)
        extent = rules::meet({.op = row(op).name, .args = args, .axis = d + shift}, so_far, mine,
                             constraints);
      if (extent != so_far.extent) so_far = {.extent = extent, .tensor = a.tensor};
    }
  }
  std::vector<Expr> shape;
  for (const rules::Side& side : met) shape.push_back(side.extent);
  for (Constraint& c : constraints) rules::require(fusion, std::move(c));
  // Operands of lower rank get leading dims of size 1, by a statement of their own. All later
  // stages then see operands of equal rank.
  for (Operand& a : aligned) {
    if (!a.tensor || a.tensor->rank() == rank) continue;
    // A tensor without dims has lower priority in promotion. With dims it would have full priority
    // whenever the op is rebuilt, so it is cast here.
    const bool condition = row(op).rule == ResultRule::Condition && &a == aligned.data();
    if (a.tensor->rank() == 0 && !condition && counts_more(a.tensor->dtype, compute))
      a.tensor = cast(fusion, a.tensor, compute, location);
    std::vector<bool> is_broadcast(rank, false);
    std::fill(is_broadcast.begin(), is_broadcast.begin() + (rank - a.tensor->rank()), true);
    a.tensor = movement(fusion, Broadcast{.arg = a.tensor, .is_broadcast = std::move(is_broadcast)},
                        location);
  }
  return append(fusion, result_of(op, compute), std::move(shape),
                Pointwise{.op = op, .compute = compute, .args = std::move(aligned)},
                std::move(location));
}

Expr pointwise_scalar(Fusion& fusion, Op op, std::span<const Expr> args) {
  check_arity(op, args.size());
  std::vector<Operand> operands;
  for (Expr a : args) operands.push_back({.scalar = a});
  const DType compute = dtype_for(op, operands);
  std::vector<Expr> converted;
  for (size_t i = 0; i < args.size(); ++i) {
    const bool condition = row(op).rule == ResultRule::Condition && i == 0;
    converted.push_back(fusion.exprs.cast(condition ? DType::Bool : compute, args[i]));
  }
  return fusion.exprs.apply(op, converted);
}

const Tensor* cast(Fusion& fusion, const Tensor* arg, DType dtype, std::string location) {
  FUSER_CHECK(kind_of(arg->dtype) != Kind::Complex || kind_of(dtype) == Kind::Complex ||
                  kind_of(dtype) == Kind::Bool,
              DType, "cast-1", "cast(t", arg->id, ", ", row(dtype).torch,
              "): casting complex to real discards the imaginary part\n  ", where(*arg),
              "\n  hint: use fd.ops.real(t", arg->id, ") first");
  if (const Tensor* wide = rules::unrounded(arg, dtype); wide != arg)
    return pointwise(fusion, Op::set, {{{.tensor = wide}}}, std::move(location));
  return append(fusion, dtype, arg->shape, Cast{.arg = arg}, std::move(location));
}

const Tensor* full(Fusion& fusion, std::span<const Expr> shape, Expr value, DType dtype,
                   std::string location) {
  for (size_t d = 0; d < shape.size(); ++d)
    FUSER_CHECK(kind_of(shape[d]->dtype) == Kind::Int &&
                    !(shape[d]->is_constant() && shape[d]->value.integer < 0),
                Shape, "full-1", "full(): expected a size of at least 0 in axis ", d, ", got ",
                rules::size_text(shape[d]));
  rules::check_value(fusion, "full()", value, dtype);
  return append(fusion, dtype, {shape.begin(), shape.end()}, Full{.value = value},
                std::move(location));
}

const Tensor* broadcast_in_dim(Fusion& fusion, const Tensor* arg, std::span<const Expr> shape,
                               std::span<const int64_t> broadcast_dims, std::string location) {
  FUSER_CHECK(static_cast<int>(broadcast_dims.size()) == arg->rank(), Shape, "broadcast-in-dim-1",
              "broadcast_in_dim(t", arg->id, ", shape, [", joined(broadcast_dims), "]): expected ",
              arg->rank(), " broadcast_dims (the rank of the operand), got ", broadcast_dims.size(),
              "\n  ", where(*arg));
  const int rank = static_cast<int>(shape.size());
  std::vector<bool> is_broadcast(rank, true);
  int64_t last = -1;
  for (int64_t d : broadcast_dims) {
    if (d < 0) d += rank;
    FUSER_CHECK(d > last && d < rank, Shape, "broadcast-in-dim-2", "broadcast_in_dim(t", arg->id,
                ", shape, [", joined(broadcast_dims), "]): expected increasing dims below ", rank,
                "\n  ", where(*arg));
    is_broadcast[d] = false;
    last = d;
  }
  if (rank != arg->rank())
    arg =
        movement(fusion, Broadcast{.arg = arg, .is_broadcast = std::move(is_broadcast)}, location);
  return movement(fusion, Expand{.arg = arg, .shape = {shape.begin(), shape.end()}},
                  std::move(location));
}

Expr extent(Fusion& fusion, const Tensor* tensor, int dim) {
  const Expr name = tensor->shape[dim];
  if (name->is_constant() || std::holds_alternative<Input>(tensor->definition)) return name;
  std::unordered_set<Expr> parts;
  visit(name, [&](Expr e) { parts.insert(e); });
  for (const Constraint& c : fusion.constraints)
    if (parts.count(c.left) || parts.count(c.right))
      return fusion.exprs.symbol(Symbol::Extent, tensor->id, dim);
  return name;
}

void require_alias(Fusion& fusion, const Tensor& tensor, int alias) {
  const Tensor& target = *fusion.inputs[alias];
  FUSER_CHECK(target.rank() == tensor.rank(), Shape, "alias-1", "add_output(t", tensor.id, ", t",
              target.id, "): an in-place output needs the rank of its input\n  ", where(tensor),
              "\n  ", where(target));
  FUSER_CHECK(target.dtype == tensor.dtype, DType, "alias-2", "add_output(t", tensor.id, ", t",
              target.id, "): an in-place output needs the dtype of its input\n  ", where(tensor),
              "\n  ", where(target), "\n  hint: cast the output to ", row(target.dtype).torch);
  for (int d = 0; d < tensor.rank(); ++d)
    if (tensor.shape[d] != target.shape[d])
      rules::require(fusion, {.left = tensor.shape[d],
                              .right = target.shape[d],
                              .op = text("add_output(t", tensor.id, ", t", target.id, ")"),
                              .axis = d,
                              .left_tensor = &tensor,
                              .right_tensor = &target,
                              .law = {.rule = "alias-4",
                                      .broken = "an in-place output needs the sizes of its input",
                                      .expected = "equal"}});
}

void add_output(Fusion& fusion, const Tensor* tensor, int alias) {
  if (alias >= 0) require_alias(fusion, *tensor, alias);
  Output made{.tensor = tensor, .alias = alias};
  for (Output& o : fusion.outputs) {
    o.superseded |= alias >= 0 && o.alias == alias;
    if (o.tensor != tensor) continue;
    if (alias >= 0 && o.alias < 0) o.input = alias;
    if (alias < 0 && o.alias >= 0) made.input = o.alias;
  }
  fusion.outputs.push_back(made);
}

const Tensor* written_into(const Fusion& fusion, int input) {
  const Tensor* last = nullptr;
  for (const Output& o : fusion.outputs)
    if (o.alias == input) last = o.tensor;
  return last;
}

int input_of(const Fusion& fusion, const Tensor& tensor) {
  if (const auto* input = std::get_if<Input>(&tensor.definition)) return input->index;
  int last = -1;
  for (const Output& o : fusion.outputs)
    if (o.tensor == &tensor && o.alias >= 0) last = o.alias;
  return last;
}

}  // namespace fuser::fusion
