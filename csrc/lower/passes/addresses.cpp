#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>

#include "fusion/index/access.h"
#include "lower/passes.h"

namespace fuser::lower {

using namespace fusion;
using namespace ir;

namespace {

// Returns the axes first .. last of a dim as one index. `index` is the dim's linear index without
// the lane, `with_lane` includes it.
Expr divided(Exprs& exprs, const LinearAxes& w, size_t first, size_t last, Expr index,
             Expr with_lane) {
  if (last - first + 1 == w.axes.size()) return with_lane;
  Expr inner = exprs.constant(1), extent = inner;
  for (size_t j = first; j <= last; ++j) extent = exprs.mul(extent, w.extents[j]);
  for (size_t j = last + 1; j < w.axes.size(); ++j) inner = exprs.mul(inner, w.extents[j]);
  if (w.whole && last + 1 == w.axes.size())
    return exprs.add(exprs.mod(index, extent), exprs.sub(with_lane, index));
  Expr c = exprs.div(w.whole ? index : with_lane, inner);
  return first == 0 ? c : exprs.mod(c, extent);
}

// Description of an access whose lanes run along rows. Its innermost axis is contiguous, and the
// outer axes of the dim are linear as well. rows() returns nullopt if that does not hold, or if the
// access is linear in the whole dim.
struct Rows {
  Expr column, columns, jump;
};
std::optional<Rows> rows(KernelIR& kernel, Expr offset, int axes) {
  Exprs& exprs = kernel.exprs;
  const auto form = linear(exprs, offset, axes);
  if (!form) return std::nullopt;
  for (const LinearAxes& w : kernel.axes) {
    if (!w.vector || w.axes.size() < 2 || is_linear_in_index(exprs, *form, w)) continue;
    LinearAxes outer = w;
    outer.axes.pop_back();
    outer.extents.pop_back();
    if (!form->coefficients[w.axes.back()]->is_constant(1) ||
        !is_linear_in_index(exprs, *form, outer))
      continue;
    Expr row = form->coefficients[outer.axes.back()];
    return Rows{.column = divided(exprs, w, w.axes.size() - 1, w.axes.size() - 1, w.index, w.index),
                .columns = w.extents.back(),
                .jump = exprs.sub(row, w.extents.back())};
  }
  return std::nullopt;
}

bool speaks_of_axes(Expr e) { return e && e->has(Symbol::Axis); }

// Moves an access out of the loop over lanes and makes it one vector access, if its lanes run along
// rows. Returns whether it did.
template <class Access>
bool leave_loop(KernelIR& kernel, Access access, const For& loop, Body& out, int axes) {
  if (access.width != 1 || !access.element->is_symbol(Symbol::Var) || access.element->a != loop.var)
    return false;
  // An access with a loaded coordinate must follow that load.
  if (access.offset->has(Symbol::Var) || speaks_of_axes(access.in)) return false;
  const auto along = rows(kernel, access.offset, axes);
  if (!along) return false;
  access.element = kernel.exprs.constant(0);
  access.width = loop.extent;
  access.offset = address(kernel.exprs, kernel.axes, access.offset, nullptr);
  // Replace the lane's count by the count of lane 0.
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

// Returns whether the loop runs over the lanes of a vector. Every other loop variable occurs in the
// index map.
bool over_lanes(const KernelIR& kernel, const For& loop) {
  bool in_index_map = false;
  for (const LinearAxes& w : kernel.axes)
    visit(w.index, [&](Expr e) { in_index_map |= e->is_symbol(Symbol::Var) && e->a == loop.var; });
  return !in_index_map;
}

// Returns the index Lets that select the element of a random op: operand 0 of random32 and
// random64, through casts and names.
std::set<int> drawn(const KernelIR& kernel) {
  std::unordered_map<int, const Let*> lets;
  std::set<int> out;
  visit(kernel.body, [&](const Stmt& s) {
    if (const auto* let = std::get_if<Let>(&s.node)) lets[let->var] = let;
    for (Expr e : expressions(s))
      visit(e, [&](Expr x) {
        if (x->kind != ExprNode::Kind::Apply || (x->op != Op::random32 && x->op != Op::random64))
          return;
        for (Expr at = x->args[0]; at;) {
          if (at->kind == ExprNode::Kind::Cast) {
            at = at->args[0];
            continue;
          }
          const auto found = at->is_symbol(Symbol::Var) ? lets.find(at->a) : lets.end();
          if (found != lets.end() && found->second->index) out.insert(at->a);
          at = found != lets.end() && !found->second->index ? found->second->value : nullptr;
        }
      });
  });
  return out;
}

// Returns whether `e` is provably a multiple of `lanes`, given that `lanes` divides `extent`.
bool is_multiple(Expr e, int lanes, Expr extent) {
  if (e == extent) return true;
  if (e->is_constant()) return e->value.integer % lanes == 0;
  return e->kind == ExprNode::Kind::Apply && e->op == Op::mul &&
         (is_multiple(e->args[0], lanes, extent) || is_multiple(e->args[1], lanes, extent));
}

// Returns whether the lanes are neighbours in `offset` and the first lane is at a multiple of
// `lanes`.
bool aligned_run(KernelIR& kernel, Expr offset, int lanes, int axes) {
  const auto form = linear(kernel.exprs, offset, axes);
  const auto vector = std::find_if(kernel.axes.begin(), kernel.axes.end(),
                                   [](const LinearAxes& w) { return w.vector; });
  if (!form || vector == kernel.axes.end()) return false;
  const Expr extent = vector->whole ? vector->extents.back() : nullptr;
  if (!form->coefficients[vector->axes.back()]->is_constant(1) ||
      !is_multiple(form->rest, lanes, extent))
    return false;
  const bool one_run = is_linear_in_index(kernel.exprs, *form, *vector);
  if (!one_run && !extent) return false;
  for (const LinearAxes& w : kernel.axes)
    for (int a : w.axes) {
      const bool covered = &w == &*vector && (one_run || a == w.axes.back());
      if (!covered && !is_multiple(form->coefficients[a], lanes, extent)) return false;
    }
  return true;
}

Body apply(KernelIR& kernel, Body body, Expr lane, int lanes, const std::set<int>& draws,
           int axes) {
  Body out;
  for (Stmt& s : body) {
    if (auto* loop = std::get_if<For>(&s.node); loop && over_lanes(kernel, *loop)) {
      Body kept;
      for (Stmt& inner : loop->body) {
        const auto* load = std::get_if<Load>(&inner.node);
        const auto* write = std::get_if<Write>(&inner.node);
        if (load && leave_loop(kernel, *load, *loop, out, axes)) continue;
        if (write && leave_loop(kernel, *write, *loop, out, axes)) continue;
        kept.push_back(std::move(inner));
      }
      if (kept.empty()) continue;
      loop->body = apply(kernel, std::move(kept), kernel.exprs.symbol(Symbol::Var, loop->var),
                         loop->extent, draws, axes);
    } else if (auto* let = std::get_if<Let>(&s.node);
               let && lane && draws.contains(let->var) &&
               aligned_run(kernel, let->value, lanes, axes)) {
      // Make the alignment visible in the text (device/random.cuh: aligned_), so that lanes share
      // calls of the generator.
      const Expr first = address(kernel.exprs, kernel.axes, let->value, nullptr);
      const Expr mask = kernel.exprs.constant(-int64_t{lanes});
      let->value = kernel.exprs.add(kernel.exprs.apply(Op::bitwise_and, {first, mask}), lane);
    } else {
      for (Expr* field : index_fields(s)) *field = address(kernel.exprs, kernel.axes, *field, lane);
      if (Body* inner = inner_body(s))
        *inner = apply(kernel, std::move(*inner), lane, lanes, draws, axes);
    }
    out.push_back(std::move(s));
  }
  return out;
}

}  // namespace

bool is_linear_in_index(Exprs& exprs, const Linear& form, const LinearAxes& w) {
  for (size_t i = 0; i + 1 < w.axes.size(); ++i)
    if (form.coefficients[w.axes[i]] !=
        exprs.mul(form.coefficients[w.axes[i + 1]], w.extents[i + 1]))
      return false;
  return true;
}

namespace {

int count_axes(const std::vector<LinearAxes>& index_map) {
  int axes = 0;
  for (const LinearAxes& w : index_map)
    for (int a : w.axes) axes = std::max(axes, a + 1);
  return axes;
}

}  // namespace

std::optional<Linear> linear_in_dims(Exprs& exprs, const std::vector<LinearAxes>& index_map,
                                     Expr offset) {
  auto form = linear(exprs, offset, count_axes(index_map));
  const bool whole =
      form && std::all_of(index_map.begin(), index_map.end(), [&](const LinearAxes& w) {
        return w.axes.empty() || is_linear_in_index(exprs, *form, w);
      });
  return whole ? std::move(form) : std::nullopt;
}

Expr address(Exprs& exprs, const std::vector<LinearAxes>& index_map, Expr offset, Expr lane) {
  if (!speaks_of_axes(offset)) return offset;
  const int axes = count_axes(index_map);
  const auto index_of = [&](const LinearAxes& w) {
    return w.vector && lane ? exprs.add(w.index, lane) : w.index;
  };
  const auto form = linear(exprs, offset, axes);
  if (!form) {
    std::vector<Expr> at(axes, nullptr);
    for (const LinearAxes& w : index_map)
      for (size_t i = 0; i < w.axes.size(); ++i)
        at[w.axes[i]] = divided(exprs, w, i, i, w.index, index_of(w));
    return rewrite(exprs, offset,
                   [&](Expr e) { return e->is_symbol(Symbol::Axis) ? at[e->a] : nullptr; });
  }
  Expr sum = form->rest;
  for (const LinearAxes& w : index_map) {
    if (w.axes.empty()) continue;
    const auto& c = form->coefficients;
    for (size_t i = 0, last = 0; i < w.axes.size(); i = ++last) {
      // Axes that the offset is jointly linear in are not divided.
      while (last + 1 < w.axes.size() &&
             c[w.axes[last]] == exprs.mul(c[w.axes[last + 1]], w.extents[last + 1]))
        ++last;
      if (!c[w.axes[last]]->is_constant(0))
        sum = exprs.add(
            sum, exprs.mul(c[w.axes[last]], divided(exprs, w, i, last, w.index, index_of(w))));
    }
  }
  return sum;
}

void addresses(KernelIR& kernel) {
  int axes = 0;
  for (const LinearAxes& w : kernel.axes) axes += static_cast<int>(w.axes.size());
  kernel.body = apply(kernel, std::move(kernel.body), nullptr, 1, drawn(kernel), axes);
  kernel.axes.clear();
}

}  // namespace fuser::lower
