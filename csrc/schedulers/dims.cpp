#include "schedulers/dims.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "fusion/across.h"
#include "fusion/walks.h"
#include "fusion/work.h"

namespace fuser {

int ceil_pow2(int64_t n) {
  constexpr int most = 1 << 30;
  int p = 1;
  while (p < n && p < most) p *= 2;
  return p;
}

Expr extent_of(Problem& p, const std::vector<AxisId>& axes) {
  Expr e = p.refined.exprs.constant(1);
  for (AxisId a : axes) e = p.refined.exprs.mul(e, p.refined.axes[a].extent);
  return e;
}

Expr coefficient(Problem& p, const MemoryAccess& access, const std::vector<AxisId>& axes) {
  if (!access.strides) return nullptr;
  // A mask on one axis needs its coordinate, for which a collapsed index would have to be divided.
  if (axes.size() > 1)
    for (const Pred::Bound& b : access.in.bounds)
      for (AxisId a : axes)
        if (axes_of({b.coord}) >> a & 1) return nullptr;
  Exprs& exprs = p.refined.exprs;
  const auto& c = access.strides->coefficients;
  for (size_t i = 0; i + 1 < axes.size(); ++i)
    if (c[axes[i]] != exprs.mul(c[axes[i + 1]], p.refined.axes[axes[i + 1]].extent)) return nullptr;
  return axes.empty() ? exprs.constant(0) : c[axes.back()];
}

Expr offset_along(Problem& p, const MemoryAccess& access, const std::vector<AxisId>& axes) {
  Exprs& exprs = p.refined.exprs;
  Expr offset = access.strides->rest;
  for (AxisId k : axes)
    offset = exprs.add(offset,
                       exprs.mul(access.strides->coefficients[k], exprs.symbol(Symbol::Axis, k)));
  return offset;
}

Dims collapse(Problem& p, const std::vector<AxisId>& axes,
              const std::vector<const MemoryAccess*>& accesses) {
  Dims dims;
  for (AxisId a : axes) {
    if (!dims.empty()) {
      std::vector<AxisId> both = dims.back();
      both.push_back(a);
      if (std::all_of(accesses.begin(), accesses.end(),
                      [&](const MemoryAccess* m) { return coefficient(p, *m, both) != nullptr; })) {
        dims.back() = std::move(both);
        continue;
      }
    }
    dims.push_back({a});
  }
  return dims;
}

int longest_vector(const MemoryAccess& a) { return vector_bytes / size_of(a.dtype); }

std::vector<const MemoryAccess*> all_accesses(const Problem& p) {
  std::vector<const MemoryAccess*> out;
  for (const MemoryAccess& a : p.accesses) out.push_back(&a);
  return out;
}

namespace {

bool is_uniform(Expr e) { return !e->has(Symbol::Loaded) && !e->has(Symbol::Axis); }

// Appends expressions that must be multiples of a number for `e` to be a multiple of it. Returns
// false if the conditions are unknown.
bool multiple_needs(Problem& p, Expr e, std::vector<Expr>& multiples) {
  if (const auto form = linear(p.refined.exprs, e, static_cast<int>(p.refined.axes.size()))) {
    multiples.insert(multiples.end(), form->coefficients.begin(), form->coefficients.end());
    multiples.push_back(form->rest);
    return true;
  }
  if (e->kind != ExprNode::Kind::Apply || e->op != Op::mul) return false;
  for (Expr factor : e->operands())
    if (is_uniform(factor)) {
      multiples.push_back(factor);
      return true;
    }
  return false;
}

// Returns true if the coordinate grows by one per lane of a vector along `inner`, false if it is
// uniform across the lanes, nullopt if neither is known. The vector starts at a multiple of its
// length. Appends the expressions that must be multiples of the vector length for that, including
// sizes by which a reshape divides if they are not known to nest.
std::optional<bool> grows(Problem& p, Expr coordinate, AxisId inner, std::vector<Expr>& multiples) {
  std::unordered_map<Expr, std::optional<bool>> memo;
  const auto of_apply = [&](Expr e) -> std::optional<bool> {
    bool any = false;
    for (Expr o : e->operands()) {
      if (!memo[o]) return std::nullopt;
      any = any || *memo[o];
    }
    if (!any) return false;
    if (e->arity != 2) return std::nullopt;
    Expr a = e->args[0], b = e->args[1];
    if (e->op == Op::add && *memo[b]) std::swap(a, b);
    if (*memo[b]) return std::nullopt;
    if (e->op == Op::add || e->op == Op::sub)
      return multiple_needs(p, b, multiples) ? std::optional(true) : std::nullopt;
    if ((e->op != Op::div && e->op != Op::mod) || !is_uniform(b)) return std::nullopt;
    multiples.push_back(b);
    return e->op == Op::mod;
  };
  visit(coordinate, [&](Expr e) {
    if (e->kind == ExprNode::Kind::Apply)
      memo.insert_or_assign(e, of_apply(e));
    else if (e->is_symbol(Symbol::Axis))
      memo.insert_or_assign(e, e->a == inner);
    else
      memo.insert_or_assign(e, is_uniform(e) ? std::optional(false) : std::nullopt);
  });
  return memo[coordinate];
}

// Appends the expressions that must be multiples of the vector length for the mask `in` to be
// uniform across the lanes of a vector along `inner`. Returns false if no list of multiples implies
// that.
bool bound_needs(Problem& p, const Pred& in, const std::vector<AxisId>& inner,
                 std::vector<Expr>& multiples) {
  for (const Pred::Bound& b : in.bounds) {
    const AxisSet axes = axes_of({b.coord});
    const bool along =
        std::any_of(inner.begin(), inner.end(), [&](AxisId a) { return (axes >> a & 1) != 0; });
    // A collapsed index would have to be divided for the coordinate of one axis.
    if (along && inner.size() > 1) return false;
    const auto moves = grows(p, b.coord, inner.back(), multiples);
    if (!moves) return false;
    if (!*moves) continue;
    if (b.lo) multiples.push_back(b.lo);
    if (b.hi) multiples.push_back(b.hi);
  }
  return true;
}

// vector_needs() for an access that is not linear in the axes.
std::optional<std::vector<Expr>> divided_needs(Problem& p, const MemoryAccess& access,
                                               const std::vector<AxisId>& inner) {
  std::vector<Expr> multiples;
  int along = 0;
  for (size_t d = 0; d < access.at.size(); ++d) {
    Expr stride = access.tensor_strides[d];
    const auto moves = grows(p, access.at[d], inner.back(), multiples);
    if (!moves || (*moves && !stride->is_constant(1))) return std::nullopt;
    along += *moves;
    if (!*moves && !multiple_needs(p, p.refined.exprs.mul(access.at[d], stride), multiples))
      return std::nullopt;
  }
  if (along != 1 || !bound_needs(p, access.in, inner, multiples)) return std::nullopt;
  return multiples;
}

}  // namespace

std::optional<std::vector<Expr>> vector_needs(Problem& p, const MemoryAccess& access,
                                              const std::vector<AxisId>& inner) {
  if (inner.empty()) return std::nullopt;
  if (!access.strides && inner.size() == 1) return divided_needs(p, access, inner);
  Expr along = coefficient(p, access, inner);
  if (!along || !along->is_constant(1)) return std::nullopt;
  std::vector<Expr> multiples;
  for (size_t a = 0; a < access.strides->coefficients.size(); ++a)
    if (std::find(inner.begin(), inner.end(), static_cast<AxisId>(a)) == inner.end())
      multiples.push_back(access.strides->coefficients[a]);
  multiples.push_back(access.strides->rest);
  // A vector is read completely or not at all, so its mask must be uniform.
  if (!bound_needs(p, access.in, inner, multiples)) return std::nullopt;
  return multiples;
}

std::optional<std::vector<Expr>> one_side_needs(Problem& p, const std::vector<AxisId>& inner) {
  std::vector<Expr> multiples;
  bool chosen = false;
  for (const Value& v : p.refined.values)
    if (const auto* choose = std::get_if<Choose>(&v.how)) {
      chosen = true;
      for (const Access& a : choose->args)
        if (!bound_needs(p, a.in, inner, multiples)) return std::nullopt;
    }
  // The mask of a read may have other bounds than the select, e.g. in a cat of slices of slices.
  if (chosen)
    for (const MemoryAccess& a : p.accesses)
      if (!bound_needs(p, a.in, inner, multiples)) return std::nullopt;
  return chosen ? std::optional(multiples) : std::nullopt;
}

void ask_one_side(Problem& p, Verdict& verdict, const std::vector<AxisId>& inner, int vector) {
  if (const auto needs = one_side_needs(p, inner))
    for (Expr e : *needs) ask_divides(verdict, e, vector);
}

bool one_side(Problem& p, const std::vector<AxisId>& inner, const Hints& hints, int vector) {
  const auto needs = one_side_needs(p, inner);
  return needs && std::all_of(needs->begin(), needs->end(),
                              [&](Expr e) { return hints.divides(e, vector); });
}

bool is_conditional(const Problem& p) {
  return std::any_of(p.accesses.begin(), p.accesses.end(),
                     [](const MemoryAccess& a) { return !a.in.bounds.empty(); });
}

bool can_vector(Problem& p, const MemoryAccess& access, const std::vector<AxisId>& inner,
                const Hints& hints, int vector) {
  const auto needs = vector_needs(p, access, inner);
  return needs && hints.aligned[access.buffer] &&
         std::all_of(needs->begin(), needs->end(),
                     [&](Expr e) { return hints.divides(e, vector); });
}

void ask_divides(Verdict& verdict, Expr value, int64_t divisor) {
  if (divisor > 1 && !value->is_constant()) verdict.facts.push_back({value, divisor});
}

void ask_vector(Problem& p, Verdict& verdict, const MemoryAccess& access,
                const std::vector<AxisId>& inner, int vector) {
  if (const auto needs = vector_needs(p, access, inner))
    for (Expr e : *needs) ask_divides(verdict, e, vector);
}

void ask_vectors(Problem& p, Verdict& verdict, const std::vector<AxisId>& inner, int vector) {
  ask_divides(verdict, extent_of(p, inner), vector);
  for (const MemoryAccess& a : p.accesses) ask_vector(p, verdict, a, inner, vector);
}

AccessSet wide_accesses(Problem& p, AxisSet axes, const std::vector<AxisId>& inner,
                        const Hints& hints, int vector) {
  AccessSet wide;
  for (size_t i = 0; vector > 1 && i < p.accesses.size(); ++i)
    if ((axes_of(p, p.accesses[i]) & axes) && can_vector(p, p.accesses[i], inner, hints, vector))
      wide.insert(i);
  return wide;
}

std::optional<Window> window_of(Problem& p, const MemoryAccess& access,
                                const std::vector<AxisId>& inner, int vector,
                                std::vector<Expr>& multiples) {
  if (access.store || !access.strides || !access.in.bounds.empty() || inner.empty())
    return std::nullopt;
  std::vector<AxisId> run = inner;
  Window out;
  Expr last = p.refined.axes[run.back()].extent;
  if (access.strides->coefficients[run.back()]->is_constant(0) && last->is_constant()) {
    const int64_t lanes = last->value.integer;
    if (lanes < 1 || lanes > vector || vector % lanes) return std::nullopt;
    out.repeat = static_cast<int>(lanes);
    run.pop_back();
  }
  Expr step = coefficient(p, access, run);
  if (run.empty() || !step || !step->is_constant()) return std::nullopt;
  const int64_t k = step->value.integer;
  // A step of more than four elements reads mostly unused ones.
  if (k < 1 || k > 4 || k == 3 || (k == 1 && out.repeat == 1)) return std::nullopt;
  out.step = static_cast<int>(k);
  out.width = vector / out.repeat * out.step;

  // The window must end within the dim, and the dims inside it must be dense.
  const Tensor& tensor = *p.buffers[access.buffer].tensor;
  const auto extent = [&](size_t d) {
    return rewrite(p.refined.exprs, tensor.shape[d], [](Expr) -> Expr { return nullptr; });
  };
  const auto moves = [&](Expr at) { return (axes_of({at}) >> run.back() & 1) != 0; };
  const auto dim = std::find_if(access.at.begin(), access.at.end(), moves) - access.at.begin();
  Expr stride = access.tensor_strides[dim];
  const auto fills = [&](Expr smaller, size_t d) {
    return smaller->is_constant(1) && extent(d) == stride;
  };
  bool dense = stride->is_constant(1);
  for (size_t d = 0; d < access.at.size(); ++d) dense = dense || fills(access.tensor_strides[d], d);
  if (!dense) return std::nullopt;
  multiples.push_back(p.refined.exprs.mul(extent(dim), stride));
  for (size_t a = 0; a < access.strides->coefficients.size(); ++a)
    if (std::find(inner.begin(), inner.end(), static_cast<AxisId>(a)) == inner.end())
      multiples.push_back(access.strides->coefficients[a]);
  Expr rest = access.strides->rest;
  if (rest->is_constant() && rest->value.integer >= 0) {
    out.start = static_cast<int>(rest->value.integer % k);
    rest = p.refined.exprs.constant(rest->value.integer - out.start);
  }
  multiples.push_back(rest);
  return out;
}

void ask_windows(Problem& p, Verdict& verdict, const std::vector<AxisId>& inner, int vector) {
  for (const MemoryAccess& a : p.accesses) {
    std::vector<Expr> multiples;
    if (const auto window = window_of(p, a, inner, vector, multiples))
      for (Expr e : multiples) ask_divides(verdict, e, window->width);
  }
}

AccessSet windows(Problem& p, const std::vector<AxisId>& inner, const Hints& hints, int vector) {
  AccessSet out;
  for (size_t i = 0; vector > 1 && i < p.accesses.size(); ++i) {
    std::vector<Expr> multiples;
    const auto window = window_of(p, p.accesses[i], inner, vector, multiples);
    // A vector that crosses the end of its dim could read past the end of the tensor.
    if (window && hints.divides(extent_of(p, inner), vector) &&
        hints.aligned[p.accesses[i].buffer] &&
        std::all_of(multiples.begin(), multiples.end(),
                    [&](Expr e) { return hints.divides(e, window->width); }))
      out.insert(i);
  }
  return out;
}

int axes_of_lanes(const Problem& p, const std::vector<AxisId>& axes,
                  const std::vector<AxisId>& inner, const Hints& hints, int vector) {
  if (hints.divides(p.refined.axes[axes.back()].extent, vector)) return 1;
  return inner.size() < axes.size() ? static_cast<int>(inner.size()) : 0;
}

bool reads_earlier(const Problem& p) {
  return std::any_of(p.buffers.begin(), p.buffers.end(),
                     [](const BufferUse& b) { return b.output >= 0 && b.read && !b.written; });
}

namespace {

std::vector<AxisId> axes_in(const Problem& p, bool reduced) {
  std::vector<AxisId> out;
  for (AxisId a : p.order)
    if (((p.reduced >> a & 1) != 0) == reduced) out.push_back(a);
  return out;
}

}  // namespace

std::vector<AxisId> kept_axes(const Problem& p) { return axes_in(p, false); }
std::vector<AxisId> reduced_axes(const Problem& p) { return axes_in(p, true); }

void ask_across(Problem& p, Verdict& verdict) {
  for (size_t a : accesses_across(p, {}))
    verdict.extents.push_back(p.refined.axes[near_axis(p.accesses[a])].extent);
}

bool lies_across(Problem& p, const Hints& hints) {
  // Elements from which an uncoalesced access takes longer than the launch and traffic of a copy. A
  // store takes several times as long as a read.
  constexpr int64_t least_read = 1 << 20, least_stored = least_read / 4;
  constexpr int sector = 32;  // bytes of a transaction; neighbours in one sector are read together
  const int64_t elements =
      hints.at_most(extent_of(p, kept_axes(p))) * hints.at_most(extent_of(p, reduced_axes(p)));
  const std::vector<size_t> across = accesses_across(p, {});
  return std::any_of(across.begin(), across.end(), [&](size_t i) {
    const MemoryAccess& a = p.accesses[i];
    return elements >= (a.store ? least_stored : least_read) &&
           hints.at_most(p.refined.axes[near_axis(a)].extent) * size_of(a.dtype) >= sector;
  });
}

bool copies_across(Problem& p, const Hints& hints) {
  return hints.pieces == Pieces::AlongLanes && lies_across(p, hints);
}

Run run_of(Problem& p, std::vector<AxisId> axes, bool (*moves)(Problem&, const MemoryAccess&)) {
  std::vector<const MemoryAccess*> moved;
  for (const MemoryAccess& a : p.accesses)
    if (moves(p, a)) moved.push_back(&a);
  const Dims runs = collapse(p, axes, moved);
  return {.axes = std::move(axes),
          .inner = runs.back(),
          .whole = runs.size() == 1,
          .vector = std::max(1, vector_bytes / shape_of(p).widest)};
}

void ask_row_vectors(Problem& p, Verdict& verdict, const Run& rows, int vector) {
  ask_divides(verdict, p.refined.axes[rows.axes.back()].extent, vector);
  ask_vectors(p, verdict, rows.inner, vector);
}

void ask_rows(Problem& p, Verdict& verdict, const Run& rows) {
  ask_row_vectors(p, verdict, rows, rows.vector);
  verdict.extents = {extent_of(p, rows.axes), extent_of(p, kept_axes(p))};
  ask_across(p, verdict);
}

bool moves_rows(const Problem& p, const MemoryAccess& a) {
  const AxisSet axes = axes_of(p, a);
  return (axes & p.reduced) == p.reduced && ((axes & ~p.reduced) || kept_axes(p).empty());
}

namespace {

// By reduction loop: the values that it reduces or stores.
std::vector<std::vector<bool>> roots_of_walks(const Problem& p) {
  const std::vector<Value>& values = p.refined.values;
  const Walks walks = walks_of(p);
  std::vector<std::vector<bool>> roots(walks.phases + 1, std::vector<bool>(values.size(), false));
  for (size_t v = 0; v < values.size(); ++v) {
    const auto* r = std::get_if<Reduced>(&values[v].how);
    if (!r) continue;
    const int walk = walks.phase[v] - (r->over == p.reduced ? 1 : 0);
    visit_operands(values[v], [&](ValueId o) { roots[walk][o] = true; });
  }
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    if (!p.accesses[i].store) continue;
    const ValueId v = p.refined.stores[p.accesses[i].index].access.value;
    if (v >= 0) roots[walks.store[i]][v] = true;
  }
  return roots;
}

// Returns whether a loop computes the value for every element of a row.
bool is_of_walks(const Problem& p, const Value& v) {
  return (v.axes & p.reduced) && !std::holds_alternative<Reduced>(v.how);
}

}  // namespace

std::vector<ValueId> computed_again(const Problem& p) {
  const std::vector<Value>& values = p.refined.values;
  std::vector<bool> kept(values.size(), false), before(values.size(), false);
  for (std::vector<bool>& need : roots_of_walks(p)) {
    for (size_t v = values.size(); v-- > 0;) {
      if (!need[v] || !is_of_walks(p, values[v])) continue;
      if (before[v] && std::holds_alternative<Apply>(values[v].how))
        kept[v] = true;  // its operands are not requested
      else
        visit_operands(values[v], [&](ValueId o) { need[o] = true; });
    }
    for (size_t v = 0; v < values.size(); ++v) before[v] = before[v] || need[v];
  }
  std::vector<ValueId> out;
  for (size_t v = 0; v < values.size(); ++v)
    if (kept[v] && (values[v].axes >> p.order.back() & 1) && (values[v].axes & ~p.reduced))
      out.push_back(static_cast<ValueId>(v));
  return out;
}

WalkWork work_of_walks(const Problem& p) {
  const std::vector<Value>& values = p.refined.values;
  WalkWork out;
  std::vector<bool> before(values.size(), false);
  for (std::vector<bool>& need : roots_of_walks(p)) {
    for (size_t v = values.size(); v-- > 0;) {
      if (!need[v] || !is_of_walks(p, values[v])) continue;
      out.slots += slots(values[v]);
      if (before[v]) out.again += slots(values[v]);
      visit_operands(values[v], [&](ValueId o) { need[o] = true; });
    }
    for (size_t v = 0; v < values.size(); ++v) before[v] = before[v] || need[v];
  }
  for (const MemoryAccess& a : p.accesses)
    if (moves_rows(p, a)) out.bytes += size_of(a.dtype);
  return out;
}

Shape shape_of(const Problem& p) {
  Shape s;
  const Walks walks = walks_of(p);
  s.phases = walks.phases;
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    const AxisSet axes = axes_of(p, a);
    const bool whole = (axes & p.reduced) != 0;
    const bool kept = (axes & ~p.reduced) != 0 || kept_axes(p).empty();
    if (a.store && whole && kept) {
      s.stores_rows = true;
      s.stores_last = s.stores_last || walks.store[i] == s.phases;
    }
    if (!a.store && whole && !kept) s.cached_bytes += size_of(a.dtype);
    if (!a.store && moves_rows(p, a)) {
      ++s.staged;
      s.staged_bytes += size_of(a.dtype);
    }
    if (whole && kept && (axes >> p.order.back() & 1) && !is_loaded(a))
      s.widest = std::max(s.widest, size_of(a.dtype));
  }
  for (const Value& v : p.refined.values)
    s.operations += std::holds_alternative<Apply>(v.how) && (v.axes & p.reduced);
  s.walks = s.phases + (s.stores_last || p.columns ? 1 : 0);
  return s;
}

std::vector<int> widths_of(const Problem& p, const AccessSet& wide, int vector) {
  std::vector<int> out;
  for (size_t i = 0; i < p.accesses.size(); ++i) out.push_back(wide.contains(i) ? vector : 1);
  return out;
}

Schedule start_of_reduction(const Problem& p, const Plan& plan) {
  Schedule s;
  s.dims = {{.axes = kept_axes(p)}, {.axes = reduced_axes(p)}};
  s.threads = static_cast<int>(plan.get("threads_x") * plan.get("threads_y"));
  s.whole = static_cast<int>(plan.get("whole"));
  s.widths = widths_of(p, plan.set("wide"), static_cast<int>(plan.get("vector")));
  return s;
}

void loop_along_rows(Stage& stage, const Plan& plan) {
  enum { K, R };
  const int64_t cluster = plan.get("cluster"), vector = plan.get("vector");
  stage.loops.push_back({.dim = R, .extent = plan.get("unroll"), .bind = Bind::Unroll});
  if (cluster > 1) stage.loops.push_back({.dim = R, .extent = cluster, .bind = Bind::Cluster});
  stage.loops.push_back({.dim = K, .extent = plan.get("threads_y"), .bind = Bind::ThreadY});
  stage.loops.push_back({.dim = R, .extent = plan.get("threads_x"), .bind = Bind::ThreadX});
  if (vector > 1) stage.loops.push_back({.dim = R, .extent = vector, .bind = Bind::Vector});
}

Expr persistent_blocks(Problem& p, int64_t blocks, Expr tiles) {
  Exprs& exprs = p.refined.exprs;
  Expr most = exprs.apply(Op::minimum, {exprs.constant(blocks), tiles});
  return exprs.apply(Op::maximum, {most, exprs.constant(1)});
}

Expr blocks_a_tile(Problem& p, int64_t blocks, Expr tiles, Expr steps) {
  Exprs& exprs = p.refined.exprs;
  Expr share =
      exprs.div(exprs.constant(blocks), exprs.apply(Op::maximum, {tiles, exprs.constant(1)}));
  Expr count = exprs.apply(Op::minimum, {share, steps});
  return exprs.apply(Op::maximum, {count, exprs.constant(1)});
}

}  // namespace fuser
