#include "fusion/views.h"

namespace fuser {
namespace {

// The view after one op that moves no element; false where there is none.
bool moved(Exprs& exprs, const Tensor& t, InputView& view) {
  std::vector<Expr>& strides = view.strides;
  return std::visit(
      [&](const auto& d) {
        using D = std::decay_t<decltype(d)>;
        if constexpr (std::is_same_v<D, Broadcast>) {
          for (size_t i = 0; i < d.is_broadcast.size(); ++i)
            if (d.is_broadcast[i]) strides.insert(strides.begin() + i, exprs.constant(0));
          return true;
        } else if constexpr (std::is_same_v<D, Expand>) {
          for (int i = 0; i < t.rank(); ++i)
            if (d.arg->shape[i]->is_constant(1)) strides[i] = exprs.constant(0);
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
          return false;
        }
      },
      t.definition);
}

}  // namespace

std::optional<InputView> input_view(Fusion& fusion, const Tensor& tensor,
                                    const std::vector<LayoutClass>& layouts) {
  std::vector<const Tensor*> chain;  // from the tensor to the input
  for (const Tensor* t = &tensor; !std::holds_alternative<Input>(t->definition);) {
    const std::vector<const Tensor*> from = operands(*t);
    if (from.size() != 1) return std::nullopt;
    chain.push_back(t);
    t = from[0];
  }
  const Tensor& base = chain.empty() ? tensor : *operands(*chain.back())[0];
  const int input = std::get<Input>(base.definition).index;
  if (layouts[input].on_cpu_scalar) return std::nullopt;
  Exprs& exprs = fusion.exprs;
  InputView view{.input = input,
                 .strides = input_strides(exprs, base, input, layouts[input], base.shape),
                 .offset = exprs.constant(0)};
  for (size_t i = chain.size(); i-- > 0;)
    if (!moved(exprs, *chain[i], view)) return std::nullopt;
  // Strides of dims of size 1 say nothing; torch lets them span what is inside.
  Expr inside = exprs.constant(1);
  for (int d = tensor.rank(); d-- > 0;) {
    if (tensor.shape[d]->is_constant(1)) view.strides[d] = inside;
    inside = exprs.mul(view.strides[d], tensor.shape[d]);
  }
  return view;
}

}  // namespace fuser
