// Coordinates of operands: dims that were split or merged, steps through movement ops, and the
// operands of pads and cats.
#include <algorithm>

#include "base/error.h"
#include "fusion/index/kernel_builder.h"

namespace fuser::fusion {

using namespace ir;

namespace {

constexpr size_t most_conditions = 8;  // conditions of a read, from the selects that lead to it

// Returns x if `outer` is x / size and `inner` is x % size, else nullptr.
Expr divided(Expr outer, Expr inner, Expr size) {
  const auto is = [&](Expr e, Op op) {
    return e->kind == ExprNode::Kind::Apply && e->op == op && e->args[1] == size;
  };
  const bool both = is(outer, Op::div) && is(inner, Op::mod) && outer->args[0] == inner->args[0];
  return both ? outer->args[0] : nullptr;
}

}  // namespace

Expr Coordinates::derived(Expr from, Expr to) {
  if (outside.count(from)) outside.insert(to);
  return to;
}

// Undoes a division if possible, so that coordinates do not grow with the number of reshapes.
Expr Coordinates::merge(Expr outer, Expr inner, Expr size) {
  if (const Expr whole = divided(outer, inner, size)) return whole;
  const Expr one = exprs.add(exprs.mul(outer, size), inner);
  if (!size->is_constant(0)) merges.try_emplace({one, size}, outer, inner);
  return one;
}

std::pair<Expr, Expr> Coordinates::split(Expr one, Expr size) {
  if (size->is_constant(0)) return {one, exprs.constant(0)};  // there are no elements
  const auto it = merges.find({one, size});
  if (it != merges.end()) return it->second;
  return {exprs.div(one, size), exprs.mod(one, size)};
}

Coordinates KernelBuilder::through_movement() {
  return {refined_.exprs, merges_, outside_, [this](Expr e) { return import(e); }};
}

// Returns the coordinates of the dims that were merged into a dim, or the coordinate itself.
std::vector<Expr> KernelBuilder::parts(const Tensor* t, int dim, Expr coordinate) {
  const std::vector<Expr> factors = graph_.split_factors_of(t, dim);
  std::vector<Expr> out(factors.size());
  for (size_t i = factors.size(); i-- > 1;)
    std::tie(coordinate, out[i]) = through_movement().split(coordinate, import(factors[i]));
  out[0] = coordinate;
  return out;
}

std::vector<Expr> KernelBuilder::parts(const Tensor* t, const std::vector<Expr>& at) {
  std::vector<Expr> out;
  for (int d = 0; d < t->rank(); ++d)
    for (Expr e : parts(t, d, at[d])) out.push_back(e);
  return out;
}

// Inverse of parts(): one coordinate for each dim.
std::vector<Expr> KernelBuilder::coordinates(const Tensor* t, const std::vector<Expr>& parts) {
  std::vector<Expr> at;
  size_t next = 0;
  for (int d = 0; d < t->rank(); ++d) {
    const std::vector<Expr> factors = graph_.split_factors_of(t, d);
    Expr e = parts[next++];
    for (size_t i = 1; i < factors.size(); ++i)
      e = through_movement().merge(e, parts[next++], import(factors[i]));
    at.push_back(e);
  }
  return at;
}

// Sizes of the dims as parts() counts them.
std::vector<Expr> KernelBuilder::extents(const Tensor* t) {
  std::vector<Expr> out;
  for (int d = 0; d < t->rank(); ++d)
    for (Expr e : graph_.split_factors_of(t, d)) out.push_back(import(e));
  return out;
}

// An operand of a pointwise op: the given coordinates, with 0 along its dims of size 1. Steps
// through movement ops to the tensor that is computed or read.
Point KernelBuilder::operand(const Tensor* arg, const std::vector<Expr>& at) {
  Point p{arg, at};
  for (int d = 0; d < arg->rank(); ++d)
    if (arg->shape[d]->is_constant(1)) p.at[d] = refined_.exprs.constant(0);
  while (is_movement(*p.tensor)) {
    if (!graph_.plain) map_axis_sources(p);
    Coordinates coordinates = through_movement();
    p = step(coordinates, p);
  }
  p.tensor = graph_.same[p.tensor->id];
  return p;
}

// Returns the operand of a cat that contains a constant coordinate, if its sizes are constants.
std::optional<size_t> KernelBuilder::part_at(const Cat& cat, Expr coordinate) {
  if (!coordinate->is_constant()) return std::nullopt;
  int64_t end = 0;
  for (size_t i = 0; i < cat.args.size(); ++i) {
    const Expr size = cat.args[i]->shape[cat.dim];
    if (!size->is_constant()) return std::nullopt;
    end += size->value.integer;
    if (coordinate->value.integer < end) return i;
  }
  return std::nullopt;
}

// Returns the points at which a pad or cat reads its operands. A coordinate may be outside its
// operand.
std::vector<Point> KernelBuilder::sources(const Point& p) {
  Exprs& exprs = refined_.exprs;
  std::vector<Point> out;
  if (const auto* d = std::get_if<Pad>(&p.tensor->definition)) {
    std::vector<Expr> at = p.at;
    for (size_t i = 0; i < at.size(); ++i) {
      if (d->before[i]->is_constant(0) && d->after[i]->is_constant(0)) continue;
      at[i] = exprs.sub(at[i], import(d->before[i]));
      outside_.insert(at[i]);
    }
    out.push_back(operand(d->arg, at));
  } else if (const auto* d = std::get_if<Cat>(&p.tensor->definition)) {
    Expr end = exprs.constant(0);
    const auto part = part_at(*d, p.at[d->dim]);
    for (size_t i = 0; i < d->args.size(); ++i) {
      const Tensor* a = d->args[i];
      std::vector<Expr> at = p.at;
      at[d->dim] = exprs.sub(at[d->dim], end);
      end = exprs.add(end, import(a->shape[d->dim]));
      if (part && *part != i) continue;
      if (!part && d->args.size() > 1) outside_.insert(at[d->dim]);
      out.push_back(operand(a, at));
    }
  }
  return out;
}

// Returns the select of a pad or cat at `p`, whose operands are computed already.
Select KernelBuilder::selected(const Point& p) {
  Exprs& exprs = refined_.exprs;
  const std::vector<Point> from = sources(p);
  Select out;
  if (const auto* d = std::get_if<Pad>(&p.tensor->definition)) {
    Access inside{.value = known_.at(from[0])};
    for (size_t i = 0; i < p.at.size(); ++i) {
      const Expr before = import(d->before[i]), size = import(d->arg->shape[i]);
      if (before->is_constant(0) && d->after[i]->is_constant(0)) continue;
      inside.in.bounds.push_back({.coord = p.at[i],
                                  .lo = before->is_constant(0) ? nullptr : before,
                                  .hi = exprs.add(before, size)});
    }
    out.args = {inside, {.otherwise = exprs.cast(p.tensor->dtype, import(d->value))}};
    return out;
  }
  const auto& d = std::get<Cat>(p.tensor->definition);
  Expr end = exprs.constant(0);
  for (size_t i = 0; i < d.args.size(); ++i) {
    Access arg{.value = known_.at(from[i])};
    end = exprs.add(end, import(d.args[i]->shape[d.dim]));
    if (i + 1 < d.args.size())
      arg.in.bounds.push_back({.coord = p.at[d.dim], .lo = nullptr, .hi = end});
    out.args.push_back(std::move(arg));
  }
  return out;
}

namespace {

// Uses of a value: the conditions of all selects between the value and the stores.
struct Wanted {
  bool used = false;
  bool varies = false;  // True if users differ in their conditions, or conditions depend on memory
  Pred in{};

  void add(const Wanted& by) {
    varies = varies || by.varies || (used && in.bounds != by.in.bounds);
    in = by.in;
    used = true;
  }
};

// Returns the condition under which a select takes operand `i`. Operands of a cat are in the order
// of their ends, so an index beyond the end of the previous operand is beyond all earlier ends.
Pred taken_where(const Select& choice, size_t i) {
  Pred in = choice.args[i].in;
  if (i == 0) return in;
  const Pred::Bound& before = choice.args[i - 1].in.bounds[0];
  if (in.bounds.empty()) in.bounds.push_back({.coord = before.coord, .lo = nullptr, .hi = nullptr});
  in.bounds[0].lo = before.hi;
  return in;
}

std::vector<Wanted> wanted_where(const Refined& refined) {
  std::vector<Wanted> wanted(refined.values.size());
  for (const Store& s : refined.stores)
    if (s.access.value >= 0) wanted[s.access.value].add({.used = true});
  for (size_t v = wanted.size(); v-- > 0;) {
    if (!wanted[v].used) continue;
    const Value& value = refined.values[v];
    const auto* choice = std::get_if<Select>(&value.how);
    for (size_t i = 0; choice && i < choice->args.size(); ++i) {
      if (choice->args[i].value < 0) continue;
      Wanted mine = wanted[v];
      for (const Pred::Bound& b : taken_where(*choice, i).bounds) {
        mine.in.bounds.push_back(b);
        mine.varies = mine.varies || b.coord->has(Symbol::Indirect);
      }
      // The mask of the read would need more comparisons than a bounds check of its tensor.
      if (mine.in.bounds.size() > most_conditions) mine = {.used = true, .varies = true};
      wanted[choice->args[i].value].add(mine);
    }
    if (choice) continue;
    Wanted mine = wanted[v];
    // Operands of a read determine its address. A reduction needs all elements along its axes.
    if (std::holds_alternative<Read>(value.how)) mine = {.used = true, .varies = true};
    if (const auto* reduced = std::get_if<Reduced>(&value.how))
      for (const Pred::Bound& b : mine.in.bounds)
        mine.varies = mine.varies || (fusion::axes_of({b.coord}) & reduced->over) != 0;
    visit_operands(value, [&](ValueId o) { wanted[o].add(mine); });
  }
  return wanted;
}

}  // namespace

void KernelBuilder::bound_reads() {
  const std::vector<Wanted> wanted = wanted_where(refined_);
  for (size_t i = 0; i < wanted.size(); ++i) {
    Value& v = refined_.values[i];
    auto* read = std::get_if<Read>(&v.how);
    if (!read) continue;
    read->in.bounds.clear();
    read->indices.clear();
    visit(
        v.at,
        [&](Expr e) {
          if (e->is_symbol(Symbol::Indirect)) read->indices.push_back(indices_.at(e->a));
        },
        ir::bit(Symbol::Indirect));
    for (size_t d = 0; d < v.at.size(); ++d)
      if (outside_.count(v.at[d]))
        read->in.bounds.push_back(
            {.coord = v.at[d], .lo = refined_.exprs.constant(0), .hi = import(v.tensor->shape[d])});
    // If the selects take this read, its coordinates are inside the tensor: the operand of a pad or
    // cat is as large as their conditions imply, and slices and reshapes stay inside theirs. The
    // conditions are evaluated anyway, so they serve as the mask of the read, although the tensor
    // may end elsewhere (a slice of a longer one). Exceptions: they have more bounds than the
    // bounds check, or they vary over axes that the read does not vary over, because then one read
    // serves all of them.
    const std::vector<Pred::Bound>& choices = wanted[i].in.bounds;
    const bool over_axes = std::all_of(choices.begin(), choices.end(), [&](const Pred::Bound& b) {
      return (fusion::axes_of({b.coord}) & ~v.axes) == 0;
    });
    if (!choices.empty() && !wanted[i].varies && over_axes &&
        choices.size() <= read->in.bounds.size())
      read->in = wanted[i].in;
  }
}

}  // namespace fuser::fusion
