// Axis mappings: the axes that outputs and reductions can share with a kernel, through tensors that
// it reads already, and the check whether the kernel can contain them.
#include <algorithm>

#include "fusion/index/kernel_builder.h"

namespace fuser::fusion {

using namespace ir;

namespace {

constexpr size_t most_reads = 8;  // coordinates of one tensor that are kept for mappings

AxisSet bit(Expr axis) { return AxisSet{1} << axis->a; }

// Returns the input at the end of the largest operand chain of `t`. It follows one path, so that
// the cost does not grow with the width of the graph.
std::optional<AxisSource> anchor(const Tensor* t) {
  Exprs exprs;
  Merges merges;
  std::unordered_set<Expr> outside;
  Coordinates coordinates{exprs, merges, outside, [](Expr e) { return e; }};
  Point p{t, {}};
  for (int d = 0; d < t->rank(); ++d) p.at.push_back(exprs.symbol(Symbol::Axis, d));
  const auto extent_count = [](const Tensor* x) {
    return std::count_if(x->shape.begin(), x->shape.end(),
                         [](Expr e) { return !e->is_constant(1); });
  };
  while (true) {
    if (is_movement(*p.tensor)) {
      p = step(coordinates, p);
      continue;
    }
    const std::vector<const Tensor*> args = ir::operands(*p.tensor);
    if (args.empty()) break;
    const Tensor* best = *std::max_element(
        args.begin(), args.end(),
        [&](const Tensor* x, const Tensor* y) { return extent_count(x) < extent_count(y); });
    for (int d = 0; d < best->rank(); ++d)
      if (best->shape[d]->is_constant(1)) p.at[d] = exprs.constant(0);
    p.tensor = best;
  }
  if (!std::holds_alternative<Input>(p.tensor->definition)) return std::nullopt;
  AxisSource source{.tensor = p.tensor, .dims = {}};
  for (Expr e : p.at) source.dims.push_back(e->is_symbol(Symbol::Axis) ? e->a : -1);
  return source;
}

}  // namespace

bool KernelBuilder::has_all_axes(AxisSet axes) const {
  return static_cast<size_t>(__builtin_popcountll(axes)) == refined_.axes.size();
}

// Records that `t` is read, or will be read, at these coordinates.
void KernelBuilder::offer(const Tensor* t, std::vector<Expr> at) {
  std::vector<std::vector<Expr>>& reads = read_at_[t->id];
  if (reads.size() < (graph_.plain ? 1 : most_reads) &&
      std::find(reads.begin(), reads.end(), at) == reads.end())
    reads.push_back(std::move(at));
}

// Records the coordinates that `p` determines for its axis sources.
void KernelBuilder::map_axis_sources(const Point& p) {
  const std::vector<Expr> mine = parts(p.tensor, p.at);
  for (const AxisSource& o : graph_.axis_sources[p.tensor->id]) {
    const std::vector<Expr> sizes = extents(o.tensor);
    std::vector<Expr> at;
    for (size_t d = 0; d < o.dims.size(); ++d) {
      if (o.dims[d] >= 0) at.push_back(mine[o.dims[d]]);
      if (o.dims[d] < 0 && sizes[d]->is_constant(1)) at.push_back(refined_.exprs.constant(0));
    }
    if (at.size() == o.dims.size()) offer(o.tensor, std::move(at));
  }
}

// Returns coordinates for the dims of `t` if its axis source is read at `read`; nullopt if the
// mapping is rejected.
std::optional<std::vector<Expr>> KernelBuilder::join(const Tensor* t, const AxisSource& source,
                                                     const std::vector<Expr>& read) {
  const std::vector<Expr> sizes = extents(t);
  std::vector<Expr> at(sizes.size(), nullptr);
  for (size_t d = 0; d < at.size(); ++d)
    if (sizes[d]->is_constant(1)) at[d] = refined_.exprs.constant(0);
  for (size_t d = 0; d < source.dims.size(); ++d)
    if (source.dims[d] >= 0 && read[d]->is_symbol(Symbol::Axis)) at[source.dims[d]] = read[d];
  AxisSet used = 0;
  for (size_t d = 0; d < at.size(); ++d) {
    if (!at[d]) return std::nullopt;
    if (!at[d]->is_symbol(Symbol::Axis)) continue;
    if ((used & bit(at[d])) || refined_.axes[at[d]->a].extent != sizes[d]) return std::nullopt;
    used |= bit(at[d]);
  }
  if (!graph_.reduces[t->id] && !has_all_axes(used)) return std::nullopt;
  return coordinates(t, at);
}

// Coordinates for the dims of `t` that tensors which both read tell together: a dim of one element
// needs none of them. Return nullopt if a dim is left.
std::optional<std::vector<Expr>> KernelBuilder::join_reads(const Tensor* t) {
  const std::vector<Expr> sizes = extents(t);
  std::vector<Expr> at(sizes.size(), nullptr);
  for (size_t d = 0; d < at.size(); ++d)
    if (sizes[d]->is_constant(1)) at[d] = refined_.exprs.constant(0);
  const AxisSet used = take_axes_of_reads(t, sizes, 0, at);
  if (std::find(at.begin(), at.end(), nullptr) != at.end()) return std::nullopt;
  if (!graph_.reduces[t->id] && !has_all_axes(used)) return std::nullopt;
  return coordinates(t, at);
}

std::vector<std::vector<Expr>> KernelBuilder::axis_mappings(const Tensor* t) {
  std::vector<std::vector<Expr>> out;
  const auto take = [&](std::vector<Expr> at) {
    if (std::find(out.begin(), out.end(), at) == out.end()) out.push_back(std::move(at));
  };
  std::vector<AxisSource> axis_sources;
  if (!graph_.plain) {
    axis_sources = graph_.axis_sources[t->id];
  } else if (auto at_input = anchor(t)) {
    axis_sources.push_back(std::move(*at_input));
  }
  for (const AxisSource& o : axis_sources) {
    const auto reads = read_at_.find(o.tensor->id);
    if (reads == read_at_.end()) continue;
    for (const std::vector<Expr>& read : reads->second)
      if (auto at = join(t, o, read)) take(std::move(*at));
  }
  for (const Store& s : refined_.stores) {
    if (graph_.fusion->outputs[s.output].tensor->shape != t->shape) continue;
    if (graph_.reduces[t->id] || has_all_axes(axes_of(s.at))) take(s.at);
  }
  if (!graph_.plain)
    if (auto at = join_reads(t)) take(std::move(*at));
  return out;
}

// Fills the open coordinates (nullptr) of `arg` with the axes at which its axis sources are read,
// if extents are equal. Returns these axes.
AxisSet KernelBuilder::take_axes_of_reads(const Tensor* arg, const std::vector<Expr>& sizes,
                                          AxisSet kept, std::vector<Expr>& at) const {
  AxisSet over = 0;
  for (const AxisSource& o : graph_.axis_sources[arg->id]) {
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
  return over;
}

// Fills the open coordinates with the axes of another reduction of the kernel, all or no axes of
// it.
AxisSet KernelBuilder::take_reduced_axes(const std::vector<Expr>& sizes, AxisSet kept,
                                         std::vector<Expr>& at) {
  const auto open = static_cast<size_t>(std::count(at.begin(), at.end(), nullptr));
  for (const AxisSet over : overs_) {
    if ((over & kept) || static_cast<size_t>(__builtin_popcountll(over)) != open) continue;
    std::vector<Expr> all = at;
    AxisId axis = 0;
    bool fits = true;
    for (size_t i = 0; i < at.size() && fits; ++i) {
      if (at[i]) continue;
      while (!(over >> axis & 1)) ++axis;
      fits = refined_.axes[axis].extent == sizes[i];
      all[i] = refined_.exprs.symbol(Symbol::Axis, axis++);
    }
    if (!fits) continue;
    at = std::move(all);
    return over;
  }
  return 0;
}

// Assigns axes to the reduction at `p`, shared with existing reads if a mapping exists. Returns
// false if this kernel cannot contain it (see refine() in access.h).
bool KernelBuilder::admit(const Point& p) {
  if (reducing_.count(p)) return true;
  const auto& d = std::get<Reduction>(p.tensor->definition);
  AxisSet kept = 0;
  for (Expr e : parts(p.tensor, p.at)) {
    if (e->is_constant()) continue;
    if (!e->is_symbol(Symbol::Axis) || (kept & bit(e))) return false;
    kept |= bit(e);
  }
  const std::vector<Expr> sizes = extents(d.arg);
  std::vector<Expr> at;  // by factor; nullptr: open
  size_t next = 0;
  for (int i = 0; i < d.arg->rank(); ++i) {
    const size_t count = graph_.split_factors_of(d.arg, i).size();
    if (std::binary_search(d.dims.begin(), d.dims.end(), i)) {
      at.insert(at.end(), count, nullptr);
    } else {
      for (Expr e : parts(d.arg, i, p.at[next])) at.push_back(e);
      ++next;
    }
  }
  for (size_t i = 0; i < at.size(); ++i)
    if (sizes[i]->is_constant(1)) at[i] = refined_.exprs.constant(0);

  AxisSet over = take_axes_of_reads(d.arg, sizes, kept, at);
  if (!over) over = take_reduced_axes(sizes, kept, at);
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
  map_axis_sources({d.arg, reducing_[p].at});
  if (over) {
    all_ |= over | kept;
    if (std::find(overs_.begin(), overs_.end(), over) == overs_.end()) overs_.push_back(over);
  }
  return true;
}

// Returns whether the kernel can contain a reduction. All reductions of a kernel reduce one set of
// its axes and keep the remaining ones, or reduce the axes that the first set keeps.
bool KernelBuilder::takes(AxisSet over, AxisSet kept) const {
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

}  // namespace fuser::fusion
