// Values of one kernel, computed from its outputs back: every op says where it reads its operands,
// reductions get axes. See access.h for what coordinates are, group.h for the parts.
// One file because each op is one case of the same three questions.
#include "fusion/group.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"

namespace fuser {
namespace {

constexpr size_t most_reads = 8;  // coordinates of one tensor that are offered

AxisSet bit(Expr axis) { return AxisSet{1} << axis->a; }

// (outer, inner) as one coordinate; `merges` remembers it for split().
Expr merge(Exprs& exprs, Merges& merges, Expr outer, Expr inner, Expr size) {
  const Expr one = exprs.add(exprs.mul(outer, size), inner);
  if (!size->is_constant(0)) merges.try_emplace({one, size}, outer, inner);
  return one;
}

std::pair<Expr, Expr> split(Exprs& exprs, const Merges& merges, Expr one, Expr size) {
  if (size->is_constant(0)) return {one, exprs.constant(0)};  // there are no elements
  const auto it = merges.find({one, size});
  if (it != merges.end()) return it->second;
  return {exprs.div(one, size), exprs.mod(one, size)};
}

// One step of a movement op: where its operand is read. `import` copies a size to `exprs`; what
// comes of a coordinate in `outside` joins it.
template <class Import>
Point step(Exprs& exprs, Merges& merges, std::unordered_set<Expr>& outside, const Import& import,
           const Point& p) {
  const auto derived = [&](Expr from, Expr to) {
    if (outside.count(from)) outside.insert(to);
    return to;
  };
  return std::visit(
      [&](const auto& d) -> Point {
        using D = std::decay_t<decltype(d)>;
        std::vector<Expr> at;
        if constexpr (std::is_same_v<D, Broadcast>) {
          for (size_t i = 0; i < d.is_broadcast.size(); ++i)
            if (!d.is_broadcast[i]) at.push_back(p.at[i]);
          return {d.arg, std::move(at)};
        } else if constexpr (std::is_same_v<D, Expand>) {
          for (int i = 0; i < d.arg->rank(); ++i)
            at.push_back(d.arg->shape[i]->is_constant(1) ? exprs.constant(0) : p.at[i]);
          return {d.arg, std::move(at)};
        } else if constexpr (std::is_same_v<D, Squeeze>) {
          size_t next = 0;
          for (int i = 0; i < d.arg->rank(); ++i)
            at.push_back(std::binary_search(d.dims.begin(), d.dims.end(), i) ? exprs.constant(0)
                                                                             : p.at[next++]);
          return {d.arg, std::move(at)};
        } else if constexpr (std::is_same_v<D, Permute>) {
          at.resize(d.dims.size());
          for (size_t i = 0; i < d.dims.size(); ++i) at[d.dims[i]] = p.at[i];
          return {d.arg, std::move(at)};
        } else if constexpr (std::is_same_v<D, StrideOrder>) {
          return {d.arg, p.at};
        } else if constexpr (std::is_same_v<D, SplitDim>) {
          at = p.at;
          at[d.dim] = merge(exprs, merges, p.at[d.dim], p.at[d.dim + 1],
                            import(p.tensor->shape[d.dim + 1]));
          for (int i : {0, 1}) derived(p.at[d.dim + i], at[d.dim]);
          at.erase(at.begin() + d.dim + 1);
          return {d.arg, std::move(at)};
        } else if constexpr (std::is_same_v<D, MergeDims>) {
          at = p.at;
          const auto [outer, inner] =
              split(exprs, merges, p.at[d.dim], import(d.arg->shape[d.dim + 1]));
          at[d.dim] = derived(p.at[d.dim], outer);
          at.insert(at.begin() + d.dim + 1, derived(p.at[d.dim], inner));
          return {d.arg, std::move(at)};
        } else if constexpr (std::is_same_v<D, Slice>) {
          for (size_t i = 0; i < d.steps.size(); ++i)
            at.push_back(derived(p.at[i], exprs.add(exprs.mul(p.at[i], exprs.constant(d.steps[i])),
                                                    import(d.first[i]))));
          return {d.arg, std::move(at)};
        } else if constexpr (std::is_same_v<D, Flip>) {
          at = p.at;
          for (int64_t i : d.dims) {
            const Expr last = exprs.sub(import(d.arg->shape[i]), exprs.constant(1));
            at[i] = derived(p.at[i], exprs.add(exprs.mul(p.at[i], exprs.constant(-1)), last));
          }
          return {d.arg, std::move(at)};
        } else {
          FUSER_ASSERT(false, "t", p.tensor->id, " does not move elements");
        }
      },
      p.tensor->definition);
}

// Where the largest operand chain of `t` ends: an input. One path, so that the cost does not grow
// with the graph's width.
std::optional<Origin> anchor(const Tensor* t) {
  Exprs exprs;
  Merges merges;
  std::unordered_set<Expr> outside;
  Point p{t, {}};
  for (int d = 0; d < t->rank(); ++d) p.at.push_back(exprs.symbol(Symbol::Axis, d));
  const auto extent_count = [](const Tensor* x) {
    return std::count_if(x->shape.begin(), x->shape.end(),
                         [](Expr e) { return !e->is_constant(1); });
  };
  while (true) {
    if (is_movement(*p.tensor)) {
      p = step(exprs, merges, outside, [](Expr e) { return e; }, p);
      continue;
    }
    const std::vector<const Tensor*> args = operands(*p.tensor);
    if (args.empty()) break;
    const Tensor* best = *std::max_element(
        args.begin(), args.end(),
        [&](const Tensor* x, const Tensor* y) { return extent_count(x) < extent_count(y); });
    for (int d = 0; d < best->rank(); ++d)
      if (best->shape[d]->is_constant(1)) p.at[d] = exprs.constant(0);
    p.tensor = best;
  }
  if (!std::holds_alternative<Input>(p.tensor->definition)) return std::nullopt;
  Origin origin{.tensor = p.tensor, .dims = {}};
  for (Expr e : p.at) origin.dims.push_back(e->is_symbol(Symbol::Axis) ? e->a : -1);
  return origin;
}

}  // namespace

bool Point::operator<(const Point& o) const {
  if (tensor->id != o.tensor->id) return tensor->id < o.tensor->id;
  return std::lexicographical_compare(at.begin(), at.end(), o.at.begin(), o.at.end(),
                                      [](Expr x, Expr y) { return x->id < y->id; });
}

bool is_movement(const Tensor& t) {
  return std::holds_alternative<Broadcast>(t.definition) ||
         std::holds_alternative<Expand>(t.definition) ||
         std::holds_alternative<Squeeze>(t.definition) ||
         std::holds_alternative<Permute>(t.definition) ||
         std::holds_alternative<StrideOrder>(t.definition) ||
         std::holds_alternative<SplitDim>(t.definition) ||
         std::holds_alternative<MergeDims>(t.definition) ||
         std::holds_alternative<Slice>(t.definition) || std::holds_alternative<Flip>(t.definition);
}

Expr ValueGroup::import(Expr e) {
  Expr& image = imported_[e];
  if (!image) image = rewrite(refined_.exprs, e, [](Expr) -> Expr { return nullptr; });
  return image;
}

AxisSet ValueGroup::axes_of(const std::vector<Expr>& at) const {
  AxisSet axes = fuser::axes_of(at);
  visit(at, [&](Expr e) {
    if (e->is_symbol(Symbol::Loaded)) axes |= refined_.values[e->a].axes;
  });
  return axes;
}

AxisSet ValueGroup::axes_of(std::span<const Access> args) const {
  AxisSet axes = 0;
  for (const Access& a : args)
    if (a.value >= 0) axes |= refined_.values[a.value].axes;
  return axes;
}

int ValueGroup::reads_and_stores() const {
  int reads = 0;
  for (const Value& v : refined_.values) reads += std::holds_alternative<Read>(v.how);
  return reads + static_cast<int>(refined_.stores.size());
}

ValueId ValueGroup::value_of(const Tensor* t) const {
  const auto it = known_.lower_bound({t, {}});
  return it != known_.end() && it->first.tensor == t ? it->second : -1;
}

// The coordinates of a dim that was merged of others, or the coordinate itself.
std::vector<Expr> ValueGroup::parts(const Tensor* t, int dim, Expr coordinate) {
  const std::vector<Expr> factors = graph_.factors_of(t, dim);
  std::vector<Expr> out(factors.size());
  for (size_t i = factors.size(); i-- > 1;)
    std::tie(coordinate, out[i]) = split(refined_.exprs, merges_, coordinate, import(factors[i]));
  out[0] = coordinate;
  return out;
}

std::vector<Expr> ValueGroup::parts(const Tensor* t, const std::vector<Expr>& at) {
  std::vector<Expr> out;
  for (int d = 0; d < t->rank(); ++d)
    for (Expr e : parts(t, d, at[d])) out.push_back(e);
  return out;
}

// The other way round: one coordinate for each dim.
std::vector<Expr> ValueGroup::coordinates(const Tensor* t, const std::vector<Expr>& parts) {
  std::vector<Expr> at;
  size_t next = 0;
  for (int d = 0; d < t->rank(); ++d) {
    const std::vector<Expr> factors = graph_.factors_of(t, d);
    Expr e = parts[next++];
    for (size_t i = 1; i < factors.size(); ++i)
      e = merge(refined_.exprs, merges_, e, parts[next++], import(factors[i]));
    at.push_back(e);
  }
  return at;
}

// Sizes of the dims as parts() counts them.
std::vector<Expr> ValueGroup::extents(const Tensor* t) {
  std::vector<Expr> out;
  for (int d = 0; d < t->rank(); ++d)
    for (Expr e : graph_.factors_of(t, d)) out.push_back(import(e));
  return out;
}

std::vector<Expr> ValueGroup::fresh(const Tensor* t) {
  std::vector<Expr> parts;
  for (Expr extent : extents(t)) {
    if (extent->is_constant(1)) {
      parts.push_back(refined_.exprs.constant(0));
      continue;
    }
    parts.push_back(refined_.exprs.symbol(Symbol::Axis, static_cast<int>(refined_.axes.size())));
    refined_.axes.push_back({.extent = extent});
  }
  std::vector<Expr> at = coordinates(t, parts);
  if (shape_at_.empty()) {
    shape_ = t->shape;
    shape_at_ = at;
  }
  return at;
}

// An operand of a pointwise op: the same coordinates, 0 along its dims of size 1.
Point ValueGroup::operand(const Tensor* arg, const std::vector<Expr>& at) {
  Point p{arg, at};
  for (int d = 0; d < arg->rank(); ++d)
    if (arg->shape[d]->is_constant(1)) p.at[d] = refined_.exprs.constant(0);
  while (is_movement(*p.tensor)) {
    if (!graph_.plain) offer_origins(p);
    p = step(refined_.exprs, merges_, outside_, [&](Expr e) { return import(e); }, p);
  }
  p.tensor = graph_.same[p.tensor->id];
  return p;
}

// Where a pad or cat reads its operands. A coordinate may leave an operand there.
std::vector<Point> ValueGroup::sources(const Point& p) {
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
    for (const Tensor* a : d->args) {
      std::vector<Expr> at = p.at;
      at[d->dim] = exprs.sub(at[d->dim], end);
      if (d->args.size() > 1) outside_.insert(at[d->dim]);
      end = exprs.add(end, import(a->shape[d->dim]));
      out.push_back(operand(a, at));
    }
  }
  return out;
}

// A pad or cat at `p`, whose sources are known.
Choose ValueGroup::chosen(const Point& p) {
  Exprs& exprs = refined_.exprs;
  const std::vector<Point> from = sources(p);
  Choose out;
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

void ValueGroup::bound_reads() {
  for (Value& v : refined_.values) {
    auto* read = std::get_if<Read>(&v.how);
    if (!read) continue;
    read->in.bounds.clear();
    for (size_t d = 0; d < v.at.size(); ++d)
      if (outside_.count(v.at[d]))
        read->in.bounds.push_back(
            {.coord = v.at[d], .lo = refined_.exprs.constant(0), .hi = import(v.tensor->shape[d])});
  }
}

// Notes that `t` is read, or going to be, at these coordinates.
void ValueGroup::offer(const Tensor* t, std::vector<Expr> at) {
  std::vector<std::vector<Expr>>& reads = read_at_[t->id];
  if (reads.size() < (graph_.plain ? 1 : most_reads) &&
      std::find(reads.begin(), reads.end(), at) == reads.end())
    reads.push_back(std::move(at));
}

// What `p` tells about the tensors that it comes from.
void ValueGroup::offer_origins(const Point& p) {
  const std::vector<Expr> mine = parts(p.tensor, p.at);
  for (const Origin& o : graph_.origins[p.tensor->id]) {
    const std::vector<Expr> sizes = extents(o.tensor);
    std::vector<Expr> at;
    for (size_t d = 0; d < o.dims.size(); ++d) {
      if (o.dims[d] >= 0) at.push_back(mine[o.dims[d]]);
      if (o.dims[d] < 0 && sizes[d]->is_constant(1)) at.push_back(refined_.exprs.constant(0));
    }
    if (at.size() == o.dims.size()) offer(o.tensor, std::move(at));
  }
}

// Coordinates for the dims of `t` where it stands on a tensor that is read at `read`; nothing where
// the offer does not hold.
std::optional<std::vector<Expr>> ValueGroup::join(const Tensor* t, const Origin& origin,
                                                  const std::vector<Expr>& read) {
  const std::vector<Expr> sizes = extents(t);
  std::vector<Expr> at(sizes.size(), nullptr);
  for (size_t d = 0; d < at.size(); ++d)
    if (sizes[d]->is_constant(1)) at[d] = refined_.exprs.constant(0);
  for (size_t d = 0; d < origin.dims.size(); ++d)
    if (origin.dims[d] >= 0 && read[d]->is_symbol(Symbol::Axis)) at[origin.dims[d]] = read[d];
  AxisSet used = 0;
  for (size_t d = 0; d < at.size(); ++d) {
    if (!at[d]) return std::nullopt;
    if (!at[d]->is_symbol(Symbol::Axis)) continue;
    if ((used & bit(at[d])) || refined_.axes[at[d]->a].extent != sizes[d]) return std::nullopt;
    used |= bit(at[d]);
  }
  if (!graph_.reduces[t->id] &&
      static_cast<size_t>(__builtin_popcountll(used)) != refined_.axes.size())
    return std::nullopt;
  return coordinates(t, at);
}

std::vector<std::vector<Expr>> ValueGroup::offers(const Tensor* t) {
  std::vector<std::vector<Expr>> out;
  const auto take = [&](std::vector<Expr> at) {
    if (std::find(out.begin(), out.end(), at) == out.end()) out.push_back(std::move(at));
  };
  std::vector<Origin> origins;
  if (!graph_.plain) {
    origins = graph_.origins[t->id];
  } else if (auto at_input = anchor(t)) {
    origins.push_back(std::move(*at_input));
  }
  for (const Origin& o : origins) {
    const auto reads = read_at_.find(o.tensor->id);
    if (reads == read_at_.end()) continue;
    for (const std::vector<Expr>& read : reads->second)
      if (auto at = join(t, o, read)) take(std::move(*at));
  }
  const bool covers =
      static_cast<size_t>(__builtin_popcountll(axes_of(shape_at_))) == refined_.axes.size();
  if (t->shape == shape_ && (covers || graph_.reduces[t->id])) take(shape_at_);
  return out;
}

// Gives the reduction at `p` its axes, shared with what is read already where that is offered.
// false: this kernel cannot take it (see refine() in access.h).
bool ValueGroup::admit(const Point& p) {
  if (reducing_.count(p)) return true;
  const auto& d = std::get<Reduction>(p.tensor->definition);
  AxisSet kept = 0;
  for (Expr e : parts(p.tensor, p.at)) {
    if (e->is_constant()) continue;
    if (!e->is_symbol(Symbol::Axis) || (kept & bit(e))) return false;
    kept |= bit(e);
  }
  const std::vector<Expr> sizes = extents(d.arg);
  std::vector<Expr> at;  // by part; nullptr: to be found
  size_t next = 0;
  for (int i = 0; i < d.arg->rank(); ++i) {
    const size_t count = graph_.factors_of(d.arg, i).size();
    if (std::binary_search(d.dims.begin(), d.dims.end(), i)) {
      at.insert(at.end(), count, nullptr);
    } else {
      for (Expr e : parts(d.arg, i, p.at[next])) at.push_back(e);
      ++next;
    }
  }
  for (size_t i = 0; i < at.size(); ++i)
    if (sizes[i]->is_constant(1)) at[i] = refined_.exprs.constant(0);

  AxisSet over = 0;
  for (const Origin& o : graph_.origins[d.arg->id]) {
    const auto reads = read_at_.find(o.tensor->id);
    if (reads == read_at_.end()) continue;
    for (const std::vector<Expr>& read : reads->second) {
      bool fits = true;
      for (size_t k = 0; k < read.size() && fits; ++k)
        fits = o.dims[k] < 0 || !at[o.dims[k]] || at[o.dims[k]] == read[k];
      for (size_t k = 0; k < read.size() && fits; ++k) {
        if (o.dims[k] < 0 || at[o.dims[k]] || !read[k]->is_symbol(Symbol::Axis)) continue;
        if (refined_.axes[read[k]->a].extent != sizes[o.dims[k]]) continue;
        if ((kept | over) & bit(read[k])) continue;
        at[o.dims[k]] = read[k];
        over |= bit(read[k]);
      }
    }
  }
  // Axes that are reduced already, where nothing was offered and the sizes are equal.
  const auto missing = static_cast<size_t>(std::count(at.begin(), at.end(), nullptr));
  for (size_t s = 0; s < overs_.size() && !over; ++s) {
    if ((overs_[s] & kept) || static_cast<size_t>(__builtin_popcountll(overs_[s])) != missing)
      continue;
    std::vector<Expr> all = at;
    AxisId axis = 0;
    bool fits = true;
    for (size_t i = 0; i < at.size() && fits; ++i) {
      if (at[i]) continue;
      while (!(overs_[s] >> axis & 1)) ++axis;
      fits = refined_.axes[axis].extent == sizes[i];
      all[i] = refined_.exprs.symbol(Symbol::Axis, axis++);
    }
    if (!fits) continue;
    at = std::move(all);
    over = overs_[s];
  }
  std::vector<Axis> more = refined_.axes;
  for (size_t i = 0; i < at.size(); ++i) {
    if (at[i]) continue;
    if (more.size() >= 64) return false;
    at[i] = refined_.exprs.symbol(Symbol::Axis, static_cast<int>(more.size()));
    over |= bit(at[i]);
    more.push_back({.extent = sizes[i]});
  }

  if (over && !takes(over, kept)) return false;
  refined_.axes = std::move(more);
  reducing_[p] = {.over = over, .at = coordinates(d.arg, at)};
  offer_origins({d.arg, reducing_[p].at});
  if (over) {
    all_ |= over | kept;
    if (std::find(overs_.begin(), overs_.end(), over) == overs_.end()) overs_.push_back(over);
  }
  return true;
}

// Every reduction of a kernel is over one set of its axes and keeps the others, or over those that
// the first set keeps.
bool ValueGroup::takes(AxisSet over, AxisSet kept) const {
  const AxisSet both = over | kept;
  if (all_ & ~both) return false;
  if (overs_.empty()) {
    return std::all_of(refined_.stores.begin(), refined_.stores.end(), [&](const Store& s) {
      const AxisSet axes = axes_of(s.at);
      return axes == both || axes == kept;
    });
  }
  if (both != all_) return false;
  return std::find(overs_.begin(), overs_.end(), over) != overs_.end() ||
         (overs_.size() == 1 && over == (all_ & ~overs_[0]));
}

void ValueGroup::refuse(const Tensor* t) {
  cut.insert(t->id);
  refused.push_back(t);
}

// Is it computed at as many coordinates as one kernel should, and more than a few statements?
bool ValueGroup::is_repeated(const Tensor* t) const {
  constexpr int most_tuples = 8;
  if (graph_.cost[t->id] <= few_statements) return false;
  auto it = known_.lower_bound({t, {}});
  int tuples = 0;
  while (it != known_.end() && it->first.tensor == t && tuples < most_tuples) ++it, ++tuples;
  return tuples == most_tuples;
}

// The points that the value at p is computed from; fma operands in place of an absorbed product.
std::vector<Point> ValueGroup::needs(const Point& p) {
  std::vector<Point> out;
  const Tensor& t = *p.tensor;
  if (cut.count(t.id)) return out;
  if (is_repeated(&t)) {
    repeated.insert(t.id);
    refuse(&t);
    return out;
  }
  if (const auto* d = std::get_if<Pointwise>(&t.definition)) {
    for (const Operand& a : d->args) {
      if (!a.tensor) continue;
      if (a.tensor->id == graph_.absorbed[t.id]) {
        for (const Operand& f : std::get<Pointwise>(a.tensor->definition).args)
          if (f.tensor) out.push_back(operand(f.tensor, p.at));
      } else {
        out.push_back(operand(a.tensor, p.at));
      }
    }
  } else if (const auto* c = std::get_if<Cast>(&t.definition)) {
    out.push_back(operand(c->arg, p.at));
  } else if (const auto* reduction = std::get_if<Reduction>(&t.definition)) {
    if (admit(p))
      out.push_back(operand(reduction->arg, reducing_.at(p).at));
    else
      refuse(&t);
  } else if (const auto* result = std::get_if<Result>(&t.definition)) {
    Point all = operand(result->of, p.at);
    if (cut.count(all.tensor->id) || !admit(all))
      refuse(&t);
    else if (reducing_.at(all).over)  // else of one element, whose position needs nothing
      out.push_back(std::move(all));
  } else if (const auto* take = std::get_if<TakeAlongAxis>(&t.definition)) {
    out.push_back(operand(take->index, p.at));
  } else {
    out = sources(p);
  }
  return out;
}

ValueId ValueGroup::append(const Point& p, DType dtype, decltype(Value::how) how, AxisSet axes) {
  const auto id = static_cast<ValueId>(refined_.values.size());
  refined_.values.push_back(
      {.tensor = p.tensor, .at = p.at, .dtype = dtype, .how = std::move(how), .axes = axes});
  known_.emplace(p, id);
  return id;
}

// Appends a value that is no tensor's.
ValueId ValueGroup::helper(DType dtype, decltype(Value::how) how, AxisSet axes) {
  refined_.values.push_back(
      {.tensor = nullptr, .at = {}, .dtype = dtype, .how = std::move(how), .axes = axes});
  return static_cast<ValueId>(refined_.values.size()) - 1;
}

Access ValueGroup::access(const Operand& a, const std::vector<Expr>& at) {
  if (!a.tensor) return {.otherwise = import(a.scalar)};
  return {.value = known_.at(operand(a.tensor, at))};
}

// An operand of an fma, negated.
Access ValueGroup::negated(const Access& a, DType compute) {
  if (a.value < 0)
    return {.otherwise =
                refined_.exprs.apply(Op::neg, {refined_.exprs.cast(compute, a.otherwise)})};
  const AxisSet axes = refined_.values[a.value].axes;
  return {.value = helper(compute, Apply{.op = Op::neg, .compute = compute, .args = {a}}, axes)};
}

// Where TakeAlongAxis at `p` reads its argument: the index wraps once and is clamped into the dim.
Point ValueGroup::taken(const Point& p) {
  const auto it = taken_.find(p);
  if (it != taken_.end()) return it->second;
  const auto& d = std::get<TakeAlongAxis>(p.tensor->definition);
  const Access index{.value = known_.at(operand(d.index, p.at))};
  const Expr size = import(d.arg->shape[d.dim]);
  Exprs& exprs = refined_.exprs;
  ValueId& clamped = clamped_.try_emplace({index.value, size}, -1).first->second;
  if (clamped < 0) {
    const AxisSet axes = refined_.values[index.value].axes;
    const auto apply = [&](Op op, DType dtype, std::vector<Access> args) {
      Apply how{.op = op, .compute = DType::Int64, .args = std::move(args)};
      return Access{.value = helper(dtype, std::move(how), axes)};
    };
    const Access zero{.otherwise = exprs.constant(0)};
    const Access below = apply(Op::lt, DType::Bool, {index, zero});
    const Access moved = apply(Op::add, DType::Int64, {index, {.otherwise = size}});
    const Access wrapped = apply(Op::where, DType::Int64, {below, moved, index});
    const Access last{.otherwise = exprs.sub(size, exprs.constant(1))};
    const Access low = apply(Op::minimum, DType::Int64, {wrapped, last});
    clamped = apply(Op::maximum, DType::Int64, {low, zero}).value;
  }
  std::vector<Expr> at = p.at;
  at[d.dim] = exprs.symbol(Symbol::Loaded, clamped);
  return taken_.emplace(p, operand(d.arg, at)).first->second;
}

Apply ValueGroup::apply(const Tensor& t, const Pointwise& d, const std::vector<Expr>& at) {
  const int absorbed = graph_.absorbed[t.id];
  const bool short_form = graph_.narrow[t.id] && d.compute == DType::Float32;
  Apply how{.op = short_form ? half_form(d.op) : d.op, .compute = d.compute, .args = {}};
  if (absorbed < 0) {
    for (const Operand& a : d.args) how.args.push_back(access(a, at));
    return how;
  }
  const bool first = d.args[0].tensor && d.args[0].tensor->id == absorbed;
  const auto& product = std::get<Pointwise>(d.args[first ? 0 : 1].tensor->definition);
  Access x = access(product.args[0], at), y = access(product.args[1], at);
  Access z = access(d.args[first ? 1 : 0], at);
  if (d.op == Op::sub) {  // x * y - z, or z - x * y
    if (first)
      z = negated(z, d.compute);
    else
      x = negated(x, d.compute);
  }
  how.op = Op::fma;
  how.args = {x, y, z};
  return how;
}

void ValueGroup::reduce(const Point& p, const Reduction& d) {
  const State::Reducing& r = reducing_.at(p);
  const Access element{.value = known_.at(operand(d.arg, r.at))};
  if (!r.over) {  // of one element
    if (refined_.values[element.value].dtype == p.tensor->dtype)
      known_.emplace(p, element.value);
    else
      append(p, p.tensor->dtype, Convert{element}, refined_.values[element.value].axes);
    return;
  }
  Reduced how{.op = d.op, .compute = d.compute, .args = {element}, .over = r.over};
  if (row(d.op).operands > 1) {
    Exprs& exprs = refined_.exprs;
    Expr position = exprs.constant(0);
    for (int64_t dim : d.dims)
      position = exprs.add(exprs.mul(position, import(d.arg->shape[dim])), r.at[dim]);
    how.args.push_back({.value = helper(DType::Int64, Coordinate{position}, axes_of({position}))});
  }
  append(p, p.tensor->dtype, std::move(how), axes_of(p.at));
}

void ValueGroup::compute(const Point& p) {
  const Tensor& t = *p.tensor;
  if (std::holds_alternative<Input>(t.definition) || cut.count(t.id)) {
    if (graph_.plain)
      offer(&t, p.at);
    else
      offer_origins(p);
    append(p, t.dtype, Read{}, axes_of(p.at));
  } else if (const auto* f = std::get_if<Full>(&t.definition)) {
    append(p, t.dtype, Uniform{refined_.exprs.cast(t.dtype, import(f->value))}, 0);
  } else if (std::holds_alternative<Iota>(t.definition)) {
    append(p, t.dtype, Coordinate{p.at[0]}, axes_of(p.at));
  } else if (const auto* c = std::get_if<Cast>(&t.definition)) {
    const Access a = access({.tensor = c->arg}, p.at);
    append(p, t.dtype, Convert{a}, axes_of({&a, 1}));
  } else if (const auto* d = std::get_if<Pointwise>(&t.definition)) {
    Apply how = apply(t, *d, p.at);
    const AxisSet axes = axes_of(how.args);
    append(p, t.dtype, std::move(how), axes);
  } else if (std::holds_alternative<Pad>(t.definition) ||
             std::holds_alternative<Cat>(t.definition)) {
    Choose how = chosen(p);
    AxisSet axes = axes_of(how.args);
    for (const Access& a : how.args)
      for (const Pred::Bound& b : a.in.bounds) axes |= axes_of({b.coord});
    append(p, t.dtype, std::move(how), axes);
  } else if (const auto* reduction = std::get_if<Reduction>(&t.definition)) {
    reduce(p, *reduction);
  } else if (const auto* result = std::get_if<Result>(&t.definition)) {
    const Point all = operand(result->of, p.at);
    if (!reducing_.at(all).over) {
      append(p, t.dtype, Uniform{refined_.exprs.constant(0)}, 0);
    } else {
      const ValueId of = known_.at(all);
      append(p, t.dtype, Pick{of, result->index}, refined_.values[of].axes);
    }
  } else {
    FUSER_ASSERT(false, "t", t.id, " has no value of its own");
  }
}

// Computes the value at `root` and everything it needs; iterative. false: see add().
bool ValueGroup::demand(const Point& root) {
  std::vector<std::pair<Point, bool>> open{{root, false}};
  while (!open.empty()) {
    auto [p, expanded] = std::move(open.back());
    open.pop_back();
    if (known_.count(p)) continue;
    if (!expanded) {
      std::vector<Point> next = needs(p);
      if (strict_ && !refused.empty()) return false;
      open.emplace_back(std::move(p), true);
      for (auto it = next.rbegin(); it != next.rend(); ++it)
        if (!known_.count(*it)) open.emplace_back(std::move(*it), false);
      continue;
    }
    if (std::holds_alternative<TakeAlongAxis>(p.tensor->definition) && !cut.count(p.tensor->id)) {
      Point source = taken(p);
      const auto it = known_.find(source);
      if (it != known_.end()) {
        known_.emplace(std::move(p), it->second);
      } else {
        open.emplace_back(std::move(p), true);
        open.emplace_back(std::move(source), false);
      }
      continue;
    }
    compute(p);
  }
  return true;
}

bool ValueGroup::add(int output, const std::vector<Expr>& at, bool strict) {
  strict_ = strict;
  const Tensor* t = graph_.fusion->outputs[output].tensor;
  all_ |= axes_of(at);
  refined_.stores.push_back({.output = output, .access = {}, .at = at});
  if (!graph_.plain) offer_origins({t, at});
  const Point root = operand(t, at);
  if (!demand(root)) return false;
  refined_.stores.back().access.value = known_.at(root);
  return true;
}

ValueGroup::State ValueGroup::state() const {
  return {refined_.axes, refined_.values, refined_.stores, known_, taken_, clamped_,
          reducing_,     read_at_,        overs_,          all_,   cut};
}

void ValueGroup::restore(State s) {
  refined_.axes = std::move(s.axes);
  refined_.values = std::move(s.values);
  refined_.stores = std::move(s.stores);
  known_ = std::move(s.known);
  taken_ = std::move(s.taken);
  clamped_ = std::move(s.clamped);
  reducing_ = std::move(s.reducing);
  read_at_ = std::move(s.read_at);
  overs_ = std::move(s.overs);
  all_ = s.all;
  cut = std::move(s.cut);
  refused.clear();
  repeated.clear();
}

}  // namespace fuser
