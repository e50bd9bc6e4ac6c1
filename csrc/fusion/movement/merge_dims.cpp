// merge_dims: two adjacent dims as one.
#include <algorithm>

#include "base/error.h"
#include "fusion/build/rules.h"
#include "fusion/movement/movement_rules.h"

namespace fuser::fusion {

using namespace ir;

template <>
std::vector<Expr> MovementRules<MergeDims>::shape(Fusion& fusion, MergeDims& op,
                                                  const std::string&) {
  const Tensor* arg = op.arg;
  const std::string what = text("merge_dims(t", arg->id, ", ", op.dim, ")");
  op.dim = rules::dim_of(what, "merge-dims-1", *arg, op.dim);
  FUSER_CHECK(op.dim + 1 < arg->rank(), Shape, "merge-dims-1", what, ": expected a dim after dim ",
              op.dim, "\n  ", rules::where(*arg));
  const Expr product = fusion.exprs.mul(arg->shape[op.dim], arg->shape[op.dim + 1]);
  const bool is_open = !op.size || op.size->is_constant(-1);
  if (!is_open) rules::check_size(what, "merge-dims-2", op.size);
  op.size = is_open ? fusion.exprs.constant(-1) : fusion.exprs.cast(DType::Int64, op.size);
  const Expr size = is_open ? product : op.size;
  FUSER_CHECK(product == size || !product->is_constant() || !size->is_constant(), Shape,
              "merge-dims-2", what, ": the product of the sizes is ", ir::to_string(product),
              ", expected ", ir::to_string(size), "\n  ", rules::where(*arg));
  if (product != size)
    rules::require(fusion, what, arg, op.dim, product, size,
                   {.rule = "merge-dims-2",
                    .broken = "the dims have another number of elements",
                    .expected = "an equal number of elements"});
  std::vector<Expr> shape = arg->shape;
  shape[op.dim] = size;
  shape.erase(shape.begin() + op.dim + 1);
  return shape;
}

template <>
std::vector<Expr> MovementRules<MergeDims>::operand_at(Coordinates& coordinates,
                                                       const MergeDims& op, const Tensor&,
                                                       const std::vector<Expr>& at) {
  std::vector<Expr> out = at;
  out.insert(out.begin() + op.dim, coordinates.exprs.constant(0));
  if (!op.arg->shape[op.dim]->is_constant(1)) {
    const auto [outer, inner] =
        coordinates.split(at[op.dim], coordinates.import(op.arg->shape[op.dim + 1]));
    out[op.dim] = coordinates.derived(at[op.dim], outer);
    out[op.dim + 1] = coordinates.derived(at[op.dim], inner);
  }
  return out;
}

template <>
std::vector<int> MovementRules<MergeDims>::dims_of(const MergeDims& op, const Tensor&) {
  std::vector<int> image = same_dims(op.arg->rank());
  image[op.dim] = image[op.dim + 1] = -1;
  for (size_t i = op.dim + 2; i < image.size(); ++i) --image[i];
  return image;
}

// torch's reshape is a view if no other dim is between the merged dims in memory.
template <>
Ranks MovementRules<MergeDims>::layout(const MergeDims& op, const Tensor&, const Ranks& of) {
  const int outer = of[op.dim], inner = of[op.dim + 1];
  Ranks out = of;
  out.erase(out.begin() + op.dim + 1);
  if (op.arg->shape[op.dim]->is_constant(1)) {
    out[op.dim] = inner;
    return out;
  }
  if (op.arg->shape[op.dim + 1]->is_constant(1)) return out;
  const bool between = std::any_of(of.begin(), of.end(),
                                   [&](int r) { return r > std::min(inner, outer) && r < outer; });
  if (inner < 0 || outer < inner || between) return row_major_ranks(op.arg->rank() - 1);
  return out;
}

template <>
bool MovementRules<MergeDims>::view(Exprs& exprs, const MergeDims& op, const Tensor&, View& view) {
  std::vector<Expr>& strides = view.strides;
  const Expr outer_size = op.arg->shape[op.dim], inner_size = op.arg->shape[op.dim + 1];
  const Expr outer = strides[op.dim], inner = strides[op.dim + 1];
  const bool one = outer_size->is_constant(1) || inner_size->is_constant(1);
  if (!one && outer != exprs.mul(inner, inner_size)) return false;
  strides[op.dim] = inner_size->is_constant(1) ? outer : inner;
  strides.erase(strides.begin() + op.dim + 1);
  return true;
}

}  // namespace fuser::fusion
