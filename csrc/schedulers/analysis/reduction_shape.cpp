#include "schedulers/analysis/reduction_shape.h"

#include <algorithm>

#include "fusion/kernel/reduction_phases.h"
#include "fusion/segment/issue_slots.h"
#include "schedulers/analysis/coalescing.h"
#include "schedulers/analysis/collapse.h"
#include "schedulers/analysis/vectorize.h"

namespace fuser::schedulers {

using namespace fusion;
using namespace ir;
using namespace schedule;

VectorAxes vector_axes_of(const Problem& p, std::vector<AxisId> axes,
                          bool (*moves)(const Problem&, const MemoryAccess&)) {
  std::vector<const MemoryAccess*> moved;
  for (const MemoryAccess& a : p.accesses)
    if (moves(p, a)) moved.push_back(&a);
  const Dims runs = collapse(p, axes, moved);
  return {.axes = std::move(axes),
          .inner = runs.back(),
          .complete = runs.size() == 1,
          .vector = std::max(1, vector_bytes / reduction_shape_of(p).widest)};
}

bool moves_rows(const Problem& p, const MemoryAccess& a) {
  const AxisSet axes = axes_of(p, a);
  return (axes & p.reduced) == p.reduced && ((axes & ~p.reduced) || kept_axes(p).empty());
}

namespace {

// By reduction loop: the values that it reduces or stores.
std::vector<std::vector<bool>> roots_of_loops(const Problem& p) {
  const std::vector<Value>& values = p.refined.values;
  const ReductionPhases phases = reduction_phases(p);
  std::vector<std::vector<bool>> roots(phases.count + 1, std::vector<bool>(values.size(), false));
  for (size_t v = 0; v < values.size(); ++v) {
    const auto* r = std::get_if<Reduced>(&values[v].how);
    if (!r) continue;
    const int phase = phases.phase[v] - (r->over == p.reduced ? 1 : 0);
    visit_operands(values[v], [&](ValueId o) { roots[phase][o] = true; });
  }
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    if (!p.accesses[i].store) continue;
    const ValueId v = p.refined.stores[p.accesses[i].index].access.value;
    if (v >= 0) roots[phases.store[i]][v] = true;
  }
  return roots;
}

// Returns whether a loop computes the value for every element of a row.
bool is_of_loops(const Problem& p, const Value& v) {
  return (v.axes & p.reduced) && !std::holds_alternative<Reduced>(v.how);
}

}  // namespace

std::vector<ValueId> computed_again(const Problem& p) {
  const std::vector<Value>& values = p.refined.values;
  std::vector<bool> kept(values.size(), false), before(values.size(), false);
  for (std::vector<bool>& need : roots_of_loops(p)) {
    for (size_t v = values.size(); v-- > 0;) {
      if (!need[v] || !is_of_loops(p, values[v])) continue;
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

RowWork row_work(const Problem& p) {
  const std::vector<Value>& values = p.refined.values;
  RowWork out;
  std::vector<bool> before(values.size(), false);
  for (std::vector<bool>& need : roots_of_loops(p)) {
    for (size_t v = values.size(); v-- > 0;) {
      if (!need[v] || !is_of_loops(p, values[v])) continue;
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

ReductionShape reduction_shape_of(const Problem& p) {
  ReductionShape s;
  const ReductionPhases phases = reduction_phases(p);
  s.phases = phases.count;
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    const AxisSet axes = axes_of(p, a);
    const bool whole = (axes & p.reduced) != 0;
    const bool kept = (axes & ~p.reduced) != 0 || kept_axes(p).empty();
    if (a.store && whole && kept) {
      s.stores_rows = true;
      s.stores_last = s.stores_last || phases.store[i] == s.phases;
    }
    if (!a.store && whole && !kept) s.cached_bytes += size_of(a.dtype);
    if (!a.store && moves_rows(p, a)) {
      ++s.persistent;
      s.persistent_bytes += size_of(a.dtype);
    }
    if (whole && kept && (axes >> p.order.back() & 1) && !is_loaded(a))
      s.widest = std::max(s.widest, size_of(a.dtype));
  }
  for (const Value& v : p.refined.values)
    s.operations += std::holds_alternative<Apply>(v.how) && (v.axes & p.reduced);
  s.loops = s.phases + (s.stores_last || p.columns ? 1 : 0);
  return s;
}

template <class P>
Schedule start_of_reduction(const Problem& p, const P& plan) {
  Schedule s;
  s.dims = {{.axes = kept_axes(p)}, {.axes = reduced_axes(p)}};
  s.launch = {.threads = static_cast<int>(plan.threads_x * plan.threads_y),
              .min_blocks_per_sm = static_cast<int>(plan.min_blocks_per_sm)};
  s.accesses.resize(p.accesses.size());
  vectorize(s, plan.vectorized, VectorKind::Aligned, static_cast<int>(plan.vector));
  s.reductions = {{.dim = 1}};
  s.nests = {{.loops = {}, .lanes = {.axes = static_cast<int>(plan.lane_axes)}}};
  return s;
}
template Schedule start_of_reduction(const Problem& p, const InnerPlan& plan);
template Schedule start_of_reduction(const Problem& p, const OuterPlan& plan);
template Schedule start_of_reduction(const Problem& p, const InnerOuterPlan& plan);

template <class P>
void loop_along_rows(LoopNest& nest, const P& plan) {
  enum { K, R };
  const int64_t cluster = plan.cluster_size, vector = plan.vector;
  nest.loops.push_back({.dim = R, .extent = plan.unroll, .bind = Bind::Unroll});
  if (cluster > 1) nest.loops.push_back({.dim = R, .extent = cluster, .bind = Bind::Cluster});
  nest.loops.push_back({.dim = K, .extent = plan.threads_y, .bind = Bind::ThreadY});
  nest.loops.push_back({.dim = R, .extent = plan.threads_x, .bind = Bind::ThreadX});
  if (vector > 1) nest.loops.push_back({.dim = R, .extent = vector, .bind = Bind::Vector});
}
template void loop_along_rows(LoopNest& nest, const InnerPlan& plan);
template void loop_along_rows(LoopNest& nest, const InnerOuterPlan& plan);

}  // namespace fuser::schedulers
