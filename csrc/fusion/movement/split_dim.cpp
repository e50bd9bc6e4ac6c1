// split_dim: one dim as two, outer and inner.
#include "base/error.h"
#include "fusion/build/rules.h"
#include "fusion/movement/movement_rules.h"

namespace fuser::fusion {

using namespace ir;

namespace {

// Returns extent / size. Cancels a common constant factor, so that repeated reshapes with -1 have
// sizes that do not grow and are recognized as equal.
Expr quotient(Exprs& exprs, Expr extent, Expr size) {
  const bool product = extent->kind == ExprNode::Kind::Apply && extent->op == Op::mul;
  if (product && extent->args[1]->is_constant() && size->is_constant()) {
    const int64_t all = extent->args[1]->value.integer, part = size->value.integer;
    if (all % part == 0) return exprs.mul(extent->args[0], exprs.constant(all / part));
  }
  return exprs.div(extent, size);
}

}  // namespace

template <>
std::vector<Expr> MovementRules<SplitDim>::shape(Fusion& fusion, SplitDim& op, const std::string&) {
  const Tensor* arg = op.arg;
  FUSER_ASSERT(op.sizes.size() == 2, "split_dim() of t", arg->id, " has ", op.sizes.size(),
               " sizes");
  for (Expr& size : op.sizes)
    if (!size) size = fusion.exprs.constant(-1);
  const std::string what = text("split_dim(t", arg->id, ", ", op.dim, ", [",
                                ir::to_string(op.sizes[0]), ", ", ir::to_string(op.sizes[1]), "])");
  op.dim = rules::dim_of(what, "split-dim-1", *arg, op.dim);
  const auto is_open = [](Expr size) { return size->is_constant(-1); };
  FUSER_CHECK(!is_open(op.sizes[0]) || !is_open(op.sizes[1]), Shape, "split-dim-2", what,
              ": at most one size can be -1\n  ", rules::where(*arg));
  const Expr extent = arg->shape[op.dim];
  for (Expr& size : op.sizes) {
    if (is_open(size)) continue;
    rules::check_size(what, "split-dim-2", size);
    size = fusion.exprs.cast(DType::Int64, size);
  }
  Expr outer = op.sizes[0], inner = op.sizes[1];
  const auto rest = [&](Expr size) {
    FUSER_CHECK(!size->is_constant(0), Shape, "split-dim-2", what,
                ": -1 is ambiguous next to a size of 0\n  ", rules::where(*arg));
    return quotient(fusion.exprs, extent, size);
  };
  if (is_open(outer)) outer = rest(inner);
  if (is_open(inner)) inner = rest(outer);
  const Expr product = fusion.exprs.mul(outer, inner);
  FUSER_CHECK(product == extent || !product->is_constant() || !extent->is_constant(), Shape,
              "split-dim-3", what, ": axis ", op.dim, " has size ", ir::to_string(extent),
              ", expected the product of the sizes, ", ir::to_string(product), "\n  ",
              rules::where(*arg));
  if (product != extent)
    rules::require(fusion, what, arg, op.dim, extent, product, rules::split_law);
  std::vector<Expr> shape = arg->shape;
  shape[op.dim] = outer;
  shape.insert(shape.begin() + op.dim + 1, inner);
  return shape;
}

template <>
std::vector<Expr> MovementRules<SplitDim>::operand_at(Coordinates& coordinates, const SplitDim& op,
                                                      const Tensor& t,
                                                      const std::vector<Expr>& at) {
  std::vector<Expr> out = at;
  const Expr inner = coordinates.import(t.shape[op.dim + 1]);
  out[op.dim] = coordinates.merge(at[op.dim], at[op.dim + 1], inner);
  for (int i : {0, 1}) coordinates.derived(at[op.dim + i], out[op.dim]);
  out.erase(out.begin() + op.dim + 1);
  return out;
}

template <>
std::vector<int> MovementRules<SplitDim>::dims_of(const SplitDim& op, const Tensor&) {
  std::vector<int> image = same_dims(op.arg->rank());
  image[op.dim] = -1;
  for (size_t i = op.dim + 1; i < image.size(); ++i) ++image[i];
  return image;
}

template <>
Ranks MovementRules<SplitDim>::layout(const SplitDim& op, const Tensor&, const Ranks& of) {
  return split_ranks(op.dim, of);
}

template <>
bool MovementRules<SplitDim>::view(Exprs& exprs, const SplitDim& op, const Tensor& t, View& view) {
  const Expr inner = view.strides[op.dim];
  view.strides[op.dim] = exprs.mul(inner, t.shape[op.dim + 1]);
  view.strides.insert(view.strides.begin() + op.dim + 1, inner);
  return true;
}

}  // namespace fuser::fusion
