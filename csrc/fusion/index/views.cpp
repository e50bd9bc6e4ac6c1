#include "fusion/index/views.h"

#include "fusion/index/layouts.h"

namespace fuser {
namespace {

// Sets the strides of the dims in `which`, which have size 1, as torch does: to the extent of the
// dims inside. Their values do not matter.
void span_inside(Exprs& exprs, const Tensor& t, const std::vector<bool>& which,
                 std::vector<Expr>& strides) {
  Expr inside = exprs.constant(1);
  for (int d = t.rank(); d-- > 0;) {
    if (which[d]) strides[d] = inside;
    inside = exprs.mul(strides[d], t.shape[d]);
  }
}

// Updates the view for one op that moves no element. Returns false if the op has no view.
bool moved(Exprs& exprs, const Tensor& t, View& view) {
  std::vector<Expr>& strides = view.strides;
  return std::visit(
      [&](const auto& d) {
        using D = std::decay_t<decltype(d)>;
        if constexpr (std::is_same_v<D, Broadcast>) {
          for (size_t i = 0; i < d.is_broadcast.size(); ++i)
            if (d.is_broadcast[i]) strides.insert(strides.begin() + i, nullptr);
          span_inside(exprs, t, d.is_broadcast, strides);
          return true;
        } else if constexpr (std::is_same_v<D, Expand>) {
          for (int i = 0; i < t.rank(); ++i)
            if (d.arg->shape[i]->is_constant(1) && !t.shape[i]->is_constant(1))
              strides[i] = exprs.constant(0);
          return true;
        } else if constexpr (std::is_same_v<D, Squeeze>) {
          for (size_t i = d.dims.size(); i-- > 0;) strides.erase(strides.begin() + d.dims[i]);
          return true;
        } else if constexpr (std::is_same_v<D, Permute>) {
          const std::vector<Expr> given = strides;
          for (size_t i = 0; i < given.size(); ++i) strides[i] = given[d.dims[i]];
          return true;
        } else if constexpr (std::is_same_v<D, SplitDim>) {
          const Expr inner = strides[d.dim];
          strides[d.dim] = exprs.mul(inner, t.shape[d.dim + 1]);
          strides.insert(strides.begin() + d.dim + 1, inner);
          return true;
        } else if constexpr (std::is_same_v<D, MergeDims>) {
          const Expr outer_size = d.arg->shape[d.dim], inner_size = d.arg->shape[d.dim + 1];
          const Expr outer = strides[d.dim], inner = strides[d.dim + 1];
          const bool one = outer_size->is_constant(1) || inner_size->is_constant(1);
          if (!one && outer != exprs.mul(inner, inner_size)) return false;
          strides[d.dim] = inner_size->is_constant(1) ? outer : inner;
          strides.erase(strides.begin() + d.dim + 1);
          return true;
        } else if constexpr (std::is_same_v<D, Slice>) {
          for (size_t i = 0; i < strides.size(); ++i) {
            view.offset = exprs.add(view.offset, exprs.mul(d.first[i], strides[i]));
            strides[i] = exprs.mul(strides[i], exprs.constant(d.steps[i]));
          }
          return true;
        } else {
          static_assert(std::is_same_v<D, Input> || std::is_same_v<D, Pointwise> ||
                            std::is_same_v<D, Cast> || std::is_same_v<D, Full> ||
                            std::is_same_v<D, StrideOrder> || std::is_same_v<D, Reduction> ||
                            std::is_same_v<D, Result> || std::is_same_v<D, Iota> ||
                            std::is_same_v<D, TakeAlongAxis> || std::is_same_v<D, Flip> ||
                            std::is_same_v<D, Pad> || std::is_same_v<D, Cat> ||
                            std::is_same_v<D, Library> || std::is_same_v<D, std::monostate>,
                        "moved() misses an op");
          return false;
        }
      },
      t.definition);
}

}  // namespace

const Tensor* base_of(const Tensor& tensor) {
  const Tensor* t = &tensor;
  while (!std::holds_alternative<Input>(t->definition) && !library_call(*t)) {
    const std::vector<const Tensor*> from = operands(*t);
    if (from.size() != 1) return nullptr;
    t = from[0];
  }
  return t;
}

std::optional<View> view_of(Fusion& fusion, const Tensor& tensor,
                            const std::vector<LayoutClass>& layouts) {
  const Tensor* base = base_of(tensor);
  if (!base) return std::nullopt;
  std::vector<const Tensor*> chain;  // ops from the tensor to its base
  for (const Tensor* t = &tensor; t != base; t = operands(*t)[0]) chain.push_back(t);
  Exprs& exprs = fusion.exprs;
  View view{.base = base, .strides = {}, .offset = exprs.constant(0)};
  if (const auto* input = std::get_if<Input>(&base->definition)) {
    if (layouts[input->index].on_cpu_scalar) return std::nullopt;
    view.strides = input_strides(exprs, *base, input->index, layouts[input->index], base->shape);
  } else {
    view.strides = dense_strides(exprs, base->shape, row_major(base->rank()));
  }
  std::vector<bool> ones;
  for (Expr size : base->shape) ones.push_back(size->is_constant(1));
  span_inside(exprs, *base, ones, view.strides);
  for (size_t i = chain.size(); i-- > 0;)
    if (!moved(exprs, *chain[i], view)) return std::nullopt;
  return view;
}

}  // namespace fuser
