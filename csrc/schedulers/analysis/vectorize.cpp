#include "schedulers/analysis/vectorize.h"

#include <algorithm>
#include <unordered_map>

#include "schedulers/analysis/collapse.h"

namespace fuser::schedulers {

using namespace fusion;
using namespace ir;
using namespace schedule;

int longest_vector(const MemoryAccess& a) { return vector_bytes / size_of(a.dtype); }

namespace {

bool is_uniform(Expr e) { return !e->has(Symbol::Indirect) && !e->has(Symbol::Axis); }

// Appends expressions that must be multiples of a number for `e` to be a multiple of it. Returns
// false if the conditions are unknown.
bool multiple_needs(const Problem& p, Exprs& exprs, Expr e, std::vector<Expr>& multiples) {
  if (const auto form = linear(exprs, e, static_cast<int>(p.refined.axes.size()))) {
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
std::optional<bool> grows(const Problem& p, Exprs& exprs, Expr coordinate, AxisId inner,
                          std::vector<Expr>& multiples) {
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
      return multiple_needs(p, exprs, b, multiples) ? std::optional(true) : std::nullopt;
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
bool bound_needs(const Problem& p, Exprs& exprs, const Pred& in, const std::vector<AxisId>& inner,
                 std::vector<Expr>& multiples) {
  for (const Pred::Bound& b : in.bounds) {
    const AxisSet axes = axes_of({b.coord});
    const bool along =
        std::any_of(inner.begin(), inner.end(), [&](AxisId a) { return (axes >> a & 1) != 0; });
    // A collapsed index would have to be divided for the coordinate of one axis.
    if (along && inner.size() > 1) return false;
    const auto moves = grows(p, exprs, b.coord, inner.back(), multiples);
    if (!moves) return false;
    if (!*moves) continue;
    if (b.lo) multiples.push_back(b.lo);
    if (b.hi) multiples.push_back(b.hi);
  }
  return true;
}

// vector_needs() for an access that is not linear in the axes.
std::optional<std::vector<Expr>> divided_needs(const Problem& p, Exprs& exprs,
                                               const MemoryAccess& access,
                                               const std::vector<AxisId>& inner) {
  std::vector<Expr> multiples;
  int along = 0;
  for (size_t d = 0; d < access.at.size(); ++d) {
    Expr stride = access.tensor_strides[d];
    const auto moves = grows(p, exprs, access.at[d], inner.back(), multiples);
    if (!moves || (*moves && !stride->is_constant(1))) return std::nullopt;
    along += *moves;
    if (!*moves && !multiple_needs(p, exprs, exprs.mul(access.at[d], stride), multiples))
      return std::nullopt;
  }
  if (along != 1 || !bound_needs(p, exprs, access.in, inner, multiples)) return std::nullopt;
  return multiples;
}

// Returns the divisibility conditions under which `access` can be vectorized along `inner`: each
// expression must be a multiple of the vector length. nullopt if it can never be vectorized.
std::optional<std::vector<Expr>> vector_needs(const Problem& p, Exprs& exprs,
                                              const MemoryAccess& access,
                                              const std::vector<AxisId>& inner) {
  if (inner.empty()) return std::nullopt;
  if (!access.strides && inner.size() == 1) return divided_needs(p, exprs, access, inner);
  Expr along = coefficient(p, access, inner);
  if (!along || !along->is_constant(1)) return std::nullopt;
  std::vector<Expr> multiples;
  for (size_t a = 0; a < access.strides->coefficients.size(); ++a)
    if (std::find(inner.begin(), inner.end(), static_cast<AxisId>(a)) == inner.end())
      multiples.push_back(access.strides->coefficients[a]);
  multiples.push_back(access.strides->rest);
  // A vector is read completely or not at all, so its mask must be uniform.
  if (!bound_needs(p, exprs, access.in, inner, multiples)) return std::nullopt;
  return multiples;
}

// Returns the divisibility conditions under which every select predicate is uniform across a vector
// along `inner`. nullopt if there is no select, or if it can never be uniform.
std::optional<std::vector<Expr>> uniform_select_needs(const Problem& p, Exprs& exprs,
                                                      const std::vector<AxisId>& inner) {
  std::vector<Expr> multiples;
  bool chosen = false;
  for (const Value& v : p.refined.values)
    if (const auto* select = std::get_if<Select>(&v.how)) {
      chosen = true;
      for (const Access& a : select->args)
        if (!bound_needs(p, exprs, a.in, inner, multiples)) return std::nullopt;
    }
  // The mask of a read may have other bounds than the select, e.g. in a cat of slices of slices.
  if (chosen)
    for (const MemoryAccess& a : p.accesses)
      if (!bound_needs(p, exprs, a.in, inner, multiples)) return std::nullopt;
  return chosen ? std::optional(multiples) : std::nullopt;
}

}  // namespace

bool uniform_select(const Problem& p, const std::vector<AxisId>& inner, SizeHints& hints,
                    int vector) {
  const auto needs = uniform_select_needs(p, hints.exprs(), inner);
  return needs && std::all_of(needs->begin(), needs->end(),
                              [&](Expr e) { return hints.divides(e, vector); });
}

bool is_conditional(const Problem& p) {
  return std::any_of(p.accesses.begin(), p.accesses.end(),
                     [](const MemoryAccess& a) { return !a.in.bounds.empty(); });
}

bool can_vector(const Problem& p, const MemoryAccess& access, const std::vector<AxisId>& inner,
                SizeHints& hints, int vector) {
  const auto needs = vector_needs(p, hints.exprs(), access, inner);
  return needs && hints.aligned(access.buffer) &&
         std::all_of(needs->begin(), needs->end(),
                     [&](Expr e) { return hints.divides(e, vector); });
}

AccessSet vectorized_accesses(const Problem& p, AxisSet axes, const std::vector<AxisId>& inner,
                              SizeHints& hints, int vector) {
  AccessSet vectorized;
  for (size_t i = 0; vector > 1 && i < p.accesses.size(); ++i)
    if ((axes_of(p, p.accesses[i]) & axes) && can_vector(p, p.accesses[i], inner, hints, vector))
      vectorized.insert(i);
  return vectorized;
}

std::optional<LaneWindow> lane_window_of(const Problem& p, Exprs& exprs, const MemoryAccess& access,
                                         const std::vector<AxisId>& inner, int vector,
                                         std::vector<Expr>& multiples) {
  if (access.store || !access.strides || !access.in.bounds.empty() || inner.empty())
    return std::nullopt;
  std::vector<AxisId> run = inner;
  LaneWindow out;
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
    return rewrite(exprs, tensor.shape[d], [](Expr) -> Expr { return nullptr; });
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
  multiples.push_back(exprs.mul(extent(dim), stride));
  for (size_t a = 0; a < access.strides->coefficients.size(); ++a)
    if (std::find(inner.begin(), inner.end(), static_cast<AxisId>(a)) == inner.end())
      multiples.push_back(access.strides->coefficients[a]);
  Expr rest = access.strides->rest;
  if (rest->is_constant() && rest->value.integer >= 0) {
    out.start = static_cast<int>(rest->value.integer % k);
    rest = exprs.constant(rest->value.integer - out.start);
  }
  multiples.push_back(rest);
  return out;
}

std::optional<LaneWindow> lane_window_of(Problem& p, const MemoryAccess& access,
                                         const std::vector<AxisId>& inner, int vector,
                                         std::vector<Expr>& multiples) {
  return lane_window_of(p, p.refined.exprs, access, inner, vector, multiples);
}

AccessSet strided_accesses(const Problem& p, const std::vector<AxisId>& inner, SizeHints& hints,
                           int vector) {
  AccessSet out;
  for (size_t i = 0; vector > 1 && i < p.accesses.size(); ++i) {
    std::vector<Expr> multiples;
    const auto window = lane_window_of(p, hints.exprs(), p.accesses[i], inner, vector, multiples);
    // A vector that crosses the end of its dim could read past the end of the tensor.
    if (window && hints.divides(extent_of(p, hints.exprs(), inner), vector) &&
        hints.aligned(p.accesses[i].buffer) &&
        std::all_of(multiples.begin(), multiples.end(),
                    [&](Expr e) { return hints.divides(e, window->width); }))
      out.insert(i);
  }
  return out;
}

int lane_axes_of(const Problem& p, const std::vector<AxisId>& axes,
                 const std::vector<AxisId>& inner, SizeHints& hints, int vector) {
  if (hints.divides(p.refined.axes[axes.back()].extent, vector)) return 1;
  return inner.size() < axes.size() ? static_cast<int>(inner.size()) : 0;
}

}  // namespace fuser::schedulers
