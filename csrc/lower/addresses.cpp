#include "base/error.h"
#include "fusion/access.h"
#include "lower/passes.h"

namespace fuser {
namespace {

// Coordinate of axis i of a walked run, from the run's linear index.
Expr divided(Exprs& exprs, const LinearAxes& w, size_t i, Expr index) {
  Expr inner = exprs.constant(1);
  for (size_t j = i + 1; j < w.axes.size(); ++j) inner = exprs.mul(inner, w.extents[j]);
  Expr c = exprs.div(index, inner);
  return i == 0 ? c : exprs.mod(c, w.extents[i]);
}

// Is the linear form linear in the run's index as a whole?
bool walks_whole(Exprs& exprs, const Linear& form, const LinearAxes& w) {
  for (size_t i = 0; i + 1 < w.axes.size(); ++i)
    if (form.coefficients[w.axes[i]] != exprs.mul(form.coefficients[w.axes[i + 1]], w.extents[i + 1])) return false;
  return true;
}

Expr address(KernelIR& kernel, Expr offset, Expr lane, int axes) {
  Exprs& exprs = kernel.exprs;
  const auto index_of = [&](const LinearAxes& w) { return w.vector && lane ? exprs.add(w.index, lane) : w.index; };
  const auto form = linear(exprs, offset, axes);
  if (!form) {
    std::vector<Expr> at(axes, nullptr);
    for (const LinearAxes& w : kernel.axes)
      for (size_t i = 0; i < w.axes.size(); ++i) at[w.axes[i]] = divided(exprs, w, i, index_of(w));
    return rewrite(exprs, offset, [&](Expr e) { return e->is_symbol(Symbol::Axis) ? at[e->a] : nullptr; });
  }
  Expr sum = form->rest;
  for (const LinearAxes& w : kernel.axes) {
    if (w.axes.empty()) continue;
    if (walks_whole(exprs, *form, w)) {
      sum = exprs.add(sum, exprs.mul(form->coefficients[w.axes.back()], index_of(w)));
      continue;
    }
    for (size_t i = 0; i < w.axes.size(); ++i) {
      Expr c = form->coefficients[w.axes[i]];
      if (!c->is_constant(0)) sum = exprs.add(sum, exprs.mul(c, divided(exprs, w, i, index_of(w))));
    }
  }
  return sum;
}

void apply(KernelIR& kernel, Body& body, Expr lane, int axes) {
  for (Stmt& s : body) {
    if (auto* loop = std::get_if<For>(&s.node)) {
      apply(kernel, loop->body, kernel.exprs.symbol(Symbol::Var, loop->var), axes);
    } else if (auto* load = std::get_if<Load>(&s.node)) {
      load->offset = address(kernel, load->offset, lane, axes);
    } else if (auto* write = std::get_if<Write>(&s.node)) {
      write->offset = address(kernel, write->offset, lane, axes);
    }
  }
}

}  // namespace

void addresses(KernelIR& kernel) {
  int axes = 0;
  for (const LinearAxes& w : kernel.axes) axes += static_cast<int>(w.axes.size());
  apply(kernel, kernel.body, nullptr, axes);
  kernel.axes.clear();
}

}  // namespace fuser
