#include "fusion/index/views.h"

#include "fusion/index/layouts.h"
#include "fusion/movement/movement_rules.h"

namespace fuser::fusion {

using namespace ir;

void span_inside(Exprs& exprs, const Tensor& t, const std::vector<bool>& which,
                 std::vector<Expr>& strides) {
  Expr inside = exprs.constant(1);
  for (int d = t.rank(); d-- > 0;) {
    if (which[d]) strides[d] = inside;
    inside = exprs.mul(strides[d], t.shape[d]);
  }
}

namespace {

// Updates the view for one op that moves no element. Returns false if the op has no view.
bool moved(Exprs& exprs, const Tensor& t, View& view) {
  return std::visit(
      [&]<class D>(const D& d) {
        if constexpr (MovementOp<D>) return MovementRules<D>::view(exprs, d, t, view);
        return false;  // the op computes its elements
      },
      t.definition);
}

}  // namespace

const Tensor* base_of(const Tensor& tensor) {
  const Tensor* t = &tensor;
  while (!std::holds_alternative<Input>(t->definition) && !ir::library_call(*t)) {
    const std::vector<const Tensor*> from = ir::operands(*t);
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
  for (const Tensor* t = &tensor; t != base; t = ir::operands(*t)[0]) chain.push_back(t);
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

}  // namespace fuser::fusion
