#include <optional>

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
    if (form.coefficients[w.axes[i]] !=
        exprs.mul(form.coefficients[w.axes[i + 1]], w.extents[i + 1]))
      return false;
  return true;
}

Expr address(KernelIR& kernel, Expr offset, Expr lane, int axes) {
  Exprs& exprs = kernel.exprs;
  const auto index_of = [&](const LinearAxes& w) {
    return w.vector && lane ? exprs.add(w.index, lane) : w.index;
  };
  const auto form = linear(exprs, offset, axes);
  if (!form) {
    std::vector<Expr> at(axes, nullptr);
    for (const LinearAxes& w : kernel.axes)
      for (size_t i = 0; i < w.axes.size(); ++i) at[w.axes[i]] = divided(exprs, w, i, index_of(w));
    return rewrite(exprs, offset,
                   [&](Expr e) { return e->is_symbol(Symbol::Axis) ? at[e->a] : nullptr; });
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

// How the lanes of an access run along rows: its innermost axis is contiguous, and what is outside
// that axis in the run is linear too. Nothing where that does not hold, or where the access is
// linear in the whole run anyway.
struct Rows {
  Expr column, columns, jump;
};
std::optional<Rows> rows(KernelIR& kernel, Expr offset, int axes) {
  Exprs& exprs = kernel.exprs;
  const auto form = linear(exprs, offset, axes);
  if (!form) return std::nullopt;
  for (const LinearAxes& w : kernel.axes) {
    if (!w.vector || w.axes.size() < 2 || walks_whole(exprs, *form, w)) continue;
    LinearAxes outer = w;
    outer.axes.pop_back();
    outer.extents.pop_back();
    if (!form->coefficients[w.axes.back()]->is_constant(1) || !walks_whole(exprs, *form, outer))
      continue;
    Expr row = form->coefficients[outer.axes.back()];
    return Rows{.column = divided(exprs, w, w.axes.size() - 1, w.index),
                .columns = w.extents.back(),
                .jump = exprs.sub(row, w.extents.back())};
  }
  return std::nullopt;
}

// A loop that moves one element per lane: accesses whose lanes run along rows leave it as accesses
// of their own.
template <class Access>
bool leave_loop(KernelIR& kernel, Access access, const For& loop, Body& out, int axes) {
  const auto along = rows(kernel, access.offset, axes);
  if (!along) return false;
  access.element = kernel.exprs.constant(0);
  access.width = loop.extent;
  access.offset = address(kernel, access.offset, nullptr, axes);
  // Inside the loop the count was that of the lane.
  if (access.count)
    access.count = rewrite(kernel.exprs, access.count, [&](Expr e) -> Expr {
      return e->is_symbol(Symbol::Var) && e->a == loop.var ? kernel.exprs.constant(0) : nullptr;
    });
  access.column = along->column;
  access.columns = along->columns;
  access.jump = along->jump;
  out.push_back({std::move(access)});
  return true;
}

Body apply(KernelIR& kernel, Body body, Expr lane, int axes) {
  Body out;
  for (Stmt& s : body) {
    if (auto* loop = std::get_if<For>(&s.node)) {
      Body kept;
      for (Stmt& inner : loop->body) {
        const auto* load = std::get_if<Load>(&inner.node);
        const auto* write = std::get_if<Write>(&inner.node);
        if (load && leave_loop(kernel, *load, *loop, out, axes)) continue;
        if (write && leave_loop(kernel, *write, *loop, out, axes)) continue;
        kept.push_back(std::move(inner));
      }
      if (kept.empty()) continue;
      loop->body =
          apply(kernel, std::move(kept), kernel.exprs.symbol(Symbol::Var, loop->var), axes);
    } else if (auto* load = std::get_if<Load>(&s.node)) {
      load->offset = address(kernel, load->offset, lane, axes);
    } else if (auto* write = std::get_if<Write>(&s.node)) {
      write->offset = address(kernel, write->offset, lane, axes);
    }
    out.push_back(std::move(s));
  }
  return out;
}

}  // namespace

void addresses(KernelIR& kernel) {
  int axes = 0;
  for (const LinearAxes& w : kernel.axes) axes += static_cast<int>(w.axes.size());
  kernel.body = apply(kernel, std::move(kernel.body), nullptr, axes);
  kernel.axes.clear();
}

}  // namespace fuser
