// Computes the values of one kernel from its outputs backwards: first the operands of each value,
// then the value. See access.h for coordinates and kernel_builder.h for the other files.
#include "fusion/index/kernel_builder.h"

#include <algorithm>

#include "base/error.h"

namespace fuser::fusion {

using namespace ir;

bool Point::operator<(const Point& o) const {
  if (tensor->id != o.tensor->id) return tensor->id < o.tensor->id;
  return std::lexicographical_compare(at.begin(), at.end(), o.at.begin(), o.at.end(),
                                      [](Expr x, Expr y) { return x->id < y->id; });
}

Expr KernelBuilder::import(Expr e) {
  return rewrite(
      refined_.exprs, e, [](Expr) -> Expr { return nullptr; }, imported_);
}

AxisSet KernelBuilder::axes_of(const std::vector<Expr>& at) const {
  AxisSet axes = fusion::axes_of(at);
  visit(
      at,
      [&](Expr e) {
        if (e->is_symbol(Symbol::Indirect)) axes |= refined_.values[e->a].axes;
      },
      ir::bit(Symbol::Indirect));
  return axes;
}

AxisSet KernelBuilder::axes_of(std::span<const Access> args) const {
  AxisSet axes = 0;
  for (const Access& a : args)
    if (a.value >= 0) axes |= refined_.values[a.value].axes;
  return axes;
}

int KernelBuilder::reads_and_stores() const {
  int reads = 0;
  for (const Value& v : refined_.values) reads += std::holds_alternative<Read>(v.how);
  return reads + static_cast<int>(refined_.stores.size());
}

ValueId KernelBuilder::value_of(const Tensor* t) const {
  const auto it = known_.lower_bound({t, {}});
  return it != known_.end() && it->first.tensor == t ? it->second : -1;
}

std::vector<Expr> KernelBuilder::fresh(const Tensor* t) {
  std::vector<Expr> parts;
  for (Expr extent : extents(t)) {
    if (extent->is_constant(1)) {
      parts.push_back(refined_.exprs.constant(0));
      continue;
    }
    parts.push_back(refined_.exprs.symbol(Symbol::Axis, static_cast<int>(refined_.axes.size())));
    refined_.axes.push_back({.extent = extent});
  }
  return coordinates(t, parts);
}

bool KernelBuilder::is_materialized(const Tensor* t) const {
  return (materialized_everywhere && (*materialized_everywhere)[t->id] && !except.count(t->id)) ||
         materialized.count(t->id);
}

void KernelBuilder::refuse(const Tensor* t) {
  materialized.insert(t->id);
  refused.push_back(t);
}

// Returns whether the tensor is computed at as many coordinates as one kernel should, and takes
// more than a few statements.
bool KernelBuilder::is_repeated(const Tensor* t) const {
  constexpr int most_tuples = 8;
  if (graph_.cost[t->id] <= few_statements) return false;
  auto it = known_.lower_bound({t, {}});
  int tuples = 0;
  while (it != known_.end() && it->first.tensor == t && tuples < most_tuples) ++it, ++tuples;
  return tuples == most_tuples;
}

// Ops without a value of their own: movement ops, which operand() steps through, and library calls,
// whose results are in memory.
template <class D>
constexpr bool is_stepped_over =
    MovementOp<D> || std::is_same_v<D, Library> || std::is_same_v<D, std::monostate>;

// Returns the points that the value at p is computed from. An absorbed product is replaced by the
// operands of the fma.
std::vector<Point> KernelBuilder::needs(const Point& p) {
  const Tensor& t = *p.tensor;
  if (is_materialized(&t)) return {};
  if (is_repeated(&t)) {
    repeated.insert(t.id);
    refuse(&t);
    return {};
  }
  if (graph_.parts[t.id]) return elements(p, std::get<Reduction>(t.definition));
  return std::visit([&](const auto& d) { return needs_of(p, d); }, t.definition);
}

template <class D>
std::vector<Point> KernelBuilder::needs_of(const Point& p, const D& d) {
  std::vector<Point> out;
  if constexpr (std::is_same_v<D, Pointwise>) {
    for (const Operand& a : d.args) {
      if (!a.tensor) continue;
      if (a.tensor->id == graph_.absorbed[p.tensor->id]) {
        for (const Operand& f : std::get<Pointwise>(a.tensor->definition).args)
          if (f.tensor) out.push_back(operand(f.tensor, p.at));
      } else {
        out.push_back(operand(a.tensor, p.at));
      }
    }
  } else if constexpr (std::is_same_v<D, Cast>) {
    out.push_back(operand(d.arg, p.at));
  } else if constexpr (std::is_same_v<D, Reduction>) {
    if (admit(p))
      out.push_back(operand(d.arg, reducing_.at(p).at));
    else
      refuse(p.tensor);
  } else if constexpr (std::is_same_v<D, Result>) {
    Point all = operand(d.of, p.at);
    if (is_materialized(all.tensor) || !admit(all))
      refuse(p.tensor);
    else if (reducing_.at(all).over)  // else one element, whose position is constant
      out.push_back(std::move(all));
  } else if constexpr (std::is_same_v<D, TakeAlongAxis>) {
    out.push_back(operand(d.index, p.at));
  } else if constexpr (std::is_same_v<D, Pad> || std::is_same_v<D, Cat>) {
    out = sources(p);
  } else {
    static_assert(std::is_same_v<D, Input> || std::is_same_v<D, Full> || std::is_same_v<D, Iota> ||
                      is_stepped_over<D>,
                  "needs_of() misses an op");
  }
  return out;
}

ValueId KernelBuilder::append(const Point& p, DType dtype, decltype(Value::how) how, AxisSet axes) {
  const auto id = static_cast<ValueId>(refined_.values.size());
  refined_.values.push_back(
      {.tensor = p.tensor, .at = p.at, .dtype = dtype, .how = std::move(how), .axes = axes});
  known_.emplace(p, id);
  return id;
}

// Appends a value that depends on its operands alone, unless an equal value exists. One tensor may
// be permuted and then cast, another cast and then permuted.
ValueId KernelBuilder::append_once(const Point& p, DType dtype, Computed how) {
  std::vector<int64_t> key{static_cast<int64_t>(how.index()), static_cast<int64_t>(dtype)};
  const auto* apply = std::get_if<Apply>(&how);
  if (apply)
    key.insert(key.end(), {static_cast<int64_t>(apply->op), static_cast<int64_t>(apply->compute)});
  const std::span<const Access> args =
      apply ? std::span<const Access>(apply->args) : std::span(&std::get<Convert>(how).arg, 1);
  for (const Access& a : args)
    key.insert(key.end(), {a.value, a.otherwise ? int64_t{a.otherwise->id} + 1 : 0});
  const auto [made, fresh] = computed_.try_emplace(std::move(key), -1);
  if (!fresh) return known_.emplace(p, made->second).first->second;
  const AxisSet axes = axes_of(args);
  const auto as_any = [](auto& one) -> decltype(Value::how) { return std::move(one); };
  return made->second = append(p, dtype, std::visit(as_any, how), axes);
}

// Appends a value that belongs to no tensor.
ValueId KernelBuilder::helper(DType dtype, decltype(Value::how) how, AxisSet axes) {
  refined_.values.push_back(
      {.tensor = nullptr, .at = {}, .dtype = dtype, .how = std::move(how), .axes = axes});
  return static_cast<ValueId>(refined_.values.size()) - 1;
}

Access KernelBuilder::access(const Operand& a, const std::vector<Expr>& at) {
  if (!a.tensor) return {.otherwise = import(a.scalar)};
  return {.value = known_.at(operand(a.tensor, at))};
}

// Returns the negated operand of an fma.
Access KernelBuilder::negated(const Access& a, DType compute) {
  if (a.value < 0)
    return {.otherwise =
                refined_.exprs.apply(Op::neg, {refined_.exprs.cast(compute, a.otherwise)})};
  const AxisSet axes = refined_.values[a.value].axes;
  return {.value = helper(compute, Apply{.op = Op::neg, .compute = compute, .args = {a}}, axes)};
}

// Returns the point at which TakeAlongAxis at `p` reads its argument: the index wraps once and is
// clamped into the dim.
Point KernelBuilder::taken(const Point& p) {
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
    GatherIndex& known = indices_[clamped];
    known = {.given = index.value, .size = size, .in = {}, .op = p.tensor};
    for (size_t i = 0; i < p.at.size(); ++i)
      if (outside_.count(p.at[i]) && (axes_of({p.at[i]}) & ~axes) == 0)
        known.in.bounds.push_back(
            {.coord = p.at[i], .lo = exprs.constant(0), .hi = import(p.tensor->shape[i])});
  }
  std::vector<Expr> at = p.at;
  at[d.dim] = exprs.symbol(Symbol::Indirect, clamped);
  return taken_.emplace(p, operand(d.arg, at)).first->second;
}

Apply KernelBuilder::apply(const Tensor& t, const Pointwise& d, const std::vector<Expr>& at) {
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

void KernelBuilder::reduce(const Point& p, const Reduction& d) {
  const State::Reducing& r = reducing_.at(p);
  const Access element{.value = known_.at(operand(d.arg, r.at))};
  if (!r.over) {  // a reduction of one element
    if (refined_.values[element.value].dtype == p.tensor->dtype)
      known_.emplace(p, element.value);
    else
      append(p, p.tensor->dtype, Convert{element}, refined_.values[element.value].axes);
    return;
  }
  Reduced how{.op = d.op, .compute = d.compute, .args = {element}, .over = r.over};
  how.unrounded = graph_.absorbed[p.tensor->id] >= 0;
  if (row(d.op).takes_positions()) {
    Exprs& exprs = refined_.exprs;
    Expr position = exprs.constant(0);
    for (int64_t dim : d.dims)
      position = exprs.add(exprs.mul(position, import(d.arg->shape[dim])), r.at[dim]);
    how.args.push_back({.value = helper(DType::Int64, Coordinate{position}, axes_of({position}))});
  }
  append(p, p.tensor->dtype, std::move(how), axes_of(p.at));
}

// Returns the points that an unrolled reduction reads.
std::vector<Point> KernelBuilder::elements(const Point& p, const Reduction& d) {
  std::vector<Point> out;
  int64_t count = 1;
  for (int64_t dim : d.dims) count *= d.arg->shape[dim]->value.integer;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<Expr> at(d.arg->rank(), nullptr);
    int64_t rest = i;
    for (size_t k = d.dims.size(); k-- > 0;) {
      const int64_t extent = d.arg->shape[d.dims[k]]->value.integer;
      at[d.dims[k]] = refined_.exprs.constant(rest % extent);
      rest /= extent;
    }
    size_t kept = 0;
    for (Expr& e : at)
      if (!e) e = p.at[kept++];
    out.push_back(operand(d.arg, at));
  }
  return out;
}

// Combines the elements of an unrolled reduction, neighbours first, as threads do.
void KernelBuilder::combine_parts(const Point& p, const Reduction& d) {
  std::vector<Access> open;
  for (const Point& e : elements(p, d)) open.push_back({.value = known_.at(e)});
  while (open.size() > 1) {
    std::vector<Access> merged;
    for (size_t i = 0; i + 1 < open.size(); i += 2) {
      Apply how{.op = *row(d.op).pair, .compute = d.compute, .args = {open[i], open[i + 1]}};
      const AxisSet axes = axes_of(how.args);
      merged.push_back({.value = helper(p.tensor->dtype, std::move(how), axes)});
    }
    if (open.size() % 2) merged.push_back(open.back());
    open = std::move(merged);
  }
  append(p, p.tensor->dtype, Convert{open[0]}, axes_of(open));
}

void KernelBuilder::compute(const Point& p) {
  const Tensor& t = *p.tensor;
  if (std::holds_alternative<Input>(t.definition) || is_materialized(&t)) {
    if (graph_.plain)
      offer(&t, p.at);
    else
      map_axis_sources(p);
    append(p, t.dtype, Read{}, axes_of(p.at));
  } else if (graph_.parts[t.id]) {
    combine_parts(p, std::get<Reduction>(t.definition));
  } else {
    std::visit([&](const auto& d) { compute_op(p, d); }, t.definition);
  }
}

template <class D>
void KernelBuilder::compute_op(const Point& p, const D& d) {
  const Tensor& t = *p.tensor;
  if constexpr (std::is_same_v<D, Full>) {
    append(p, t.dtype, Splat{refined_.exprs.cast(t.dtype, import(d.value))}, 0);
  } else if constexpr (std::is_same_v<D, Iota>) {
    append(p, t.dtype, Coordinate{p.at[0]}, axes_of(p.at));
  } else if constexpr (std::is_same_v<D, Cast>) {
    append_once(p, t.dtype, Convert{access({.tensor = d.arg}, p.at)});
  } else if constexpr (std::is_same_v<D, Pointwise>) {
    Apply how = apply(t, d, p.at);
    compare_integers(refined_.exprs, refined_.values, how);
    append_once(p, t.dtype, std::move(how));
  } else if constexpr (std::is_same_v<D, Pad> || std::is_same_v<D, Cat>) {
    select(p);
  } else if constexpr (std::is_same_v<D, Reduction>) {
    reduce(p, d);
  } else if constexpr (std::is_same_v<D, Result>) {
    const Point all = operand(d.of, p.at);
    if (!reducing_.at(all).over) {
      append(p, t.dtype, Splat{refined_.exprs.constant(0)}, 0);
    } else {
      const ValueId of = known_.at(all);
      append(p, t.dtype, Project{of, d.index}, refined_.values[of].axes);
    }
  } else {
    // Inputs are read, and demand() replaces gathers by their source.
    static_assert(
        std::is_same_v<D, Input> || std::is_same_v<D, TakeAlongAxis> || is_stepped_over<D>,
        "compute_op() misses an op");
    FUSER_ASSERT(false, "t", t.id, " has no value");
  }
}

// Computes a pad or cat: a select, or the operand that has the coordinate.
void KernelBuilder::select(const Point& p) {
  const auto* cat = std::get_if<Cat>(&p.tensor->definition);
  if (cat && part_at(*cat, p.at[cat->dim])) {
    known_.emplace(p, known_.at(sources(p)[0]));
    return;
  }
  Select how = selected(p);
  AxisSet axes = axes_of(how.args);
  for (const Access& a : how.args)
    for (const Pred::Bound& b : a.in.bounds) axes |= axes_of({b.coord});
  append(p, p.tensor->dtype, std::move(how), axes);
}

// Computes the value at `root` and all values that it depends on; iterative. Returns false as add()
// does.
bool KernelBuilder::demand(const Point& root) {
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
    if (std::holds_alternative<TakeAlongAxis>(p.tensor->definition) && !is_materialized(p.tensor)) {
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

bool KernelBuilder::add(int output, const std::vector<Expr>& at, bool strict) {
  strict_ = strict;
  const Tensor* t = graph_.fusion->outputs[output].tensor;
  all_ |= axes_of(at);
  refined_.stores.push_back({.output = output, .access = {}, .at = at});
  if (!graph_.plain) map_axis_sources({t, at});
  const Point root = operand(t, at);
  if (!demand(root)) return false;
  refined_.stores.back().access.value = known_.at(root);
  return true;
}

KernelBuilder::State KernelBuilder::state() const {
  return {refined_.axes, refined_.values, refined_.stores, known_, taken_, clamped_,
          indices_,      reducing_,       read_at_,        overs_, all_,   materialized};
}

void KernelBuilder::restore(State s) {
  refined_.axes = std::move(s.axes);
  refined_.values = std::move(s.values);
  const auto values = static_cast<ValueId>(refined_.values.size());
  std::erase_if(computed_, [&](const auto& c) { return c.second >= values; });
  refined_.stores = std::move(s.stores);
  known_ = std::move(s.known);
  taken_ = std::move(s.taken);
  clamped_ = std::move(s.clamped);
  indices_ = std::move(s.indices);
  reducing_ = std::move(s.reducing);
  read_at_ = std::move(s.read_at);
  overs_ = std::move(s.overs);
  all_ = s.all;
  materialized = std::move(s.materialized);
  refused.clear();
  repeated.clear();
}

std::vector<AxisSet> reduced_sets(const Refined& refined) {
  std::vector<AxisSet> sets;
  for (const Value& v : refined.values)
    if (const auto* r = std::get_if<Reduced>(&v.how))
      if (std::find(sets.begin(), sets.end(), r->over) == sets.end()) sets.push_back(r->over);
  return sets;
}

std::vector<uint8_t> fed_by(const Refined& refined, const std::vector<AxisSet>& overs) {
  std::vector<uint8_t> fed(refined.values.size(), 0);
  for (size_t v = 0; v < fed.size(); ++v) {
    const Value& value = refined.values[v];
    if (const auto* r = std::get_if<Reduced>(&value.how)) {
      for (size_t s = 0; s < overs.size(); ++s)
        if (overs[s] == r->over) fed[v] = static_cast<uint8_t>(1 << s);
    } else {
      visit_operands(value, [&](ValueId a) { fed[v] |= fed[a]; });
    }
  }
  return fed;
}

uint8_t fed_operands(const Value& value, const std::vector<uint8_t>& fed) {
  uint8_t out = 0;
  visit_operands(value, [&](ValueId a) { out |= fed[a]; });
  return out;
}

namespace {

AxisSet all_axes(const Refined& refined) {
  const size_t n = refined.axes.size();
  return n == 64 ? ~AxisSet{0} : (AxisSet{1} << n) - 1;
}

// Returns whether set `s` of two is terminal: values over its kept axes alone, which end in stores,
// read its results.
bool terminal(const Refined& r, const std::vector<AxisSet>& overs, const std::vector<uint8_t>& fed,
              size_t s) {
  const auto mine = static_cast<uint8_t>(1 << s);
  for (size_t v = 0; v < fed.size(); ++v) {
    const Value& value = r.values[v];
    if (std::holds_alternative<Reduced>(value.how)) {
      if (fed_operands(value, fed) & mine) return false;
    } else if ((fed[v] & mine) && (fed[v] != mine || (value.axes & overs[s]))) {
      return false;
    }
  }
  return std::none_of(r.stores.begin(), r.stores.end(), [&](const Store& store) {
    return (fed[store.access.value] & mine) && (axes_of(store.at) & overs[s]);
  });
}

}  // namespace

std::optional<ReductionSets> reduction_sets(const Refined& r) {
  const std::vector<AxisSet> overs = reduced_sets(r);
  const AxisSet all = all_axes(r);
  if (overs.empty()) {
    // If many threads stored one element, then no thread would store it along an axis of size 0.
    for (const Store& s : r.stores)
      if (axes_of(s.at) != all) return std::nullopt;
    return ReductionSets{};
  }
  if (overs.size() > 2 || (overs.size() == 2 && overs[0] != (all & ~overs[1]))) return std::nullopt;
  for (const Value& v : r.values)
    if (const auto* reduced = std::get_if<Reduced>(&v.how))
      if ((reduced->over | v.axes) != all) return std::nullopt;
  const std::vector<uint8_t> fed = fed_by(r, overs);
  for (const Store& s : r.stores) {
    const AxisSet axes = axes_of(s.at);
    bool fits = axes == all;
    for (size_t i = 0; i < overs.size(); ++i)
      fits = fits || (axes == (all & ~overs[i]) && (fed[s.access.value] >> i & 1));
    if (!fits) return std::nullopt;
  }
  if (overs.size() == 1) return ReductionSets{.rows = overs[0]};
  const bool first = terminal(r, overs, fed, 0), second = terminal(r, overs, fed, 1);
  if (!first && !second) return std::nullopt;
  const size_t rows = second ? 0 : 1;
  return ReductionSets{.rows = overs[rows], .columns = overs[1 - rows], .either = first && second};
}

}  // namespace fuser::fusion
