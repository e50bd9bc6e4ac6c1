// Pointwise kernels: each thread takes one vector of neighbouring elements of the iteration space.
// It makes one 16-byte access per tensor, all loads before any store, in a grid without loops.
// Unrolling and grid-stride loops are slower.
//
// The space is linearized over all threads of the grid, so that short rows leave no thread idle.
// Its innermost dim is the innermost axis alone if its extent is a multiple of the vector length.
// Else it collapses as many axes as are needed for the large tensors to be contiguous; they keep
// 16-byte accesses at any size. Only tensors that are not contiguous over the collapsed axes (a
// broadcast row) are read element by element.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "cost/model.h"
#include "fusion/segment/issue_slots.h"
#include "schedule/verify_schedule.h"
#include "schedulers/analysis/coalescing.h"
#include "schedulers/analysis/collapse.h"
#include "schedulers/analysis/vectorize.h"
#include "schedulers/legal.h"
#include "schedulers/schedulers.h"

namespace fuser::schedulers {

using namespace fusion;
using namespace ir;
using namespace schedule;
using namespace cost::pointwise;

namespace {

// Neighbouring elements that use one call of the random number generator.
constexpr int drawn_together = 4;

// Collapses the innermost `collapsed` dims into one.
Dims merge(Dims dims, int collapsed) {
  while (collapsed-- > 1) {
    std::vector<AxisId> last = std::move(dims.back());
    dims.pop_back();
    dims.back().insert(dims.back().end(), last.begin(), last.end());
  }
  return dims;
}

// Returns whether a read is constant along rows of the innermost axis, or masked, in the collapsed
// dim whose last axes are `inner`. A vector that lies in one row, as most do if rows are long,
// needs only one coordinate of its row then.
bool reads_of_rows(const Problem& p, const std::vector<AxisId>& inner) {
  if (inner.size() < 2) return false;
  AxisSet collapsed = 0;
  for (AxisId a : inner) collapsed |= AxisSet{1} << a;
  return std::any_of(p.accesses.begin(), p.accesses.end(), [&](const MemoryAccess& a) {
    const AxisSet axes = axes_of(p, a);
    return !a.store && (axes & collapsed) && (!(axes >> inner.back() & 1) || !a.in.bounds.empty());
  });
}

bool draws(const Problem& p) {
  return std::any_of(p.refined.values.begin(), p.refined.values.end(), [](const Value& v) {
    const auto* a = std::get_if<Apply>(&v.how);
    return a && (a->op == Op::random32 || a->op == Op::random64);
  });
}

}  // namespace

int pointwise_vector(const Problem& p) {
  AxisSet all = 0;
  for (AxisId a : p.order) all |= AxisSet{1} << a;
  int widest = 1, bytes = 0;
  for (const MemoryAccess& a : p.accesses) {
    if (axes_of(p, a) == all) widest = std::max(widest, size_of(a.dtype));
    bytes += size_of(a.dtype);
  }
  int vector = std::max(1, vector_bytes / widest);
  while (vector > 1 && bytes * vector / 4 > live_registers) vector /= 2;
  double code = 0.0;
  for (const Value& v : p.refined.values) code += slots(v);
  const int least = draws(p) ? drawn_together : 1;
  // If instructions dominate the memory time, then no access needs to be vectorized.
  if (code > much_longer * cost::time_of(bytes, 0.0) && code * vector > most_slots)
    while (vector > least && code * vector > code_slots) vector /= 2;
  return vector;
}

MatchResult match_pointwise(const Problem& p) {
  if (p.reduced) return refuse("pointwise-1", "the kernel has reductions");
  return accept;
}

Decision plan_pointwise(const Problem& p, SizeHints& hints, const Device&) {
  return plan_pointwise(p, p.order, hints);
}

Plan plan_pointwise(const Problem& p, const std::vector<AxisId>& order, SizeHints& hints) {
  const Dims dims = collapse(p, order, all_accesses(p));
  int vector = pointwise_vector(p);
  // Choose the number of collapsed dims that vectorizes the most bytes, then the most stored bytes:
  // element stores write the same sectors of L2 several times, while L1 merges element loads. Among
  // equals collapse the fewest, because every collapsed dim costs divisions.
  int collapsed = 1;
  std::pair<int, int> best{-1, -1};  // bytes of all vectorized accesses, of the stores among them
  for (int m = 1; m <= static_cast<int>(dims.size()); ++m) {
    const Dims collapsed_dims = merge(dims, m);
    const AccessSet strided = strided_accesses(p, collapsed_dims.back(), hints, vector);
    std::pair<int, int> bytes;
    for (size_t i = 0; i < p.accesses.size(); ++i) {
      const MemoryAccess& a = p.accesses[i];
      if (!strided.contains(i) && !can_vector(p, a, collapsed_dims.back(), hints, vector)) continue;
      bytes.first += size_of(a.dtype);
      if (a.store) bytes.second += size_of(a.dtype);
    }
    if (bytes > best) {
      best = bytes;
      collapsed = m;
    }
  }
  if (best.first <= 0) {
    vector = 1;  // no access is vectorized: neighbouring threads take neighbouring elements
    collapsed = 1;
  }
  const std::vector<AxisId> inner = dims.empty() ? order : merge(dims, collapsed).back();
  const bool split_at_rows =
      vector > 1 && reads_of_rows(p, inner) &&
      hints.at_most(p.refined.axes[inner.back()].extent) >= least_vectors * vector;
  // If all elements fit one wave of threads, then all threads wait for memory at once and compute
  // at once. Halving the vector makes two waves, of which one computes while the other loads.
  const AccessSet strided = strided_accesses(p, inner, hints, vector);
  const bool halved = vector > 2 && !draws(p) && strided.empty() && hints.one_wave();
  return to_plan(PointwisePlan{
      .threads = block_threads,
      .vector = halved ? vector / 2 : vector,
      .collapsed = collapsed,
      .tail = !hints.divides(extent_of(p, hints.exprs(), inner), vector),
      .vectorized = vectorized_accesses(p, ~AxisSet{0}, inner, hints, vector),
      .strided = strided,
      .split_at_rows = split_at_rows,
      .uniform_select = vector > 1 && uniform_select(p, inner, hints, vector),
  });
}

Schedule schedule_pointwise(Problem& p, const Plan& plan) {
  return schedule_pointwise(p, p.order, plan);
}

Schedule schedule_pointwise(Problem& p, const std::vector<AxisId>& order, const Plan& plan) {
  const auto fields = typed<PointwisePlan>(plan);
  Schedule s;
  const auto vector = static_cast<int>(fields.vector);
  s.launch = {.threads = static_cast<int>(fields.threads), .reverse_grid = reads_earlier(p)};
  for (auto& axes : merge(collapse(p, order, all_accesses(p)), static_cast<int>(fields.collapsed)))
    s.dims.push_back({.axes = std::move(axes)});
  LoopNest& nest = s.nests.emplace_back();
  for (DimId d = 0; d < static_cast<int>(s.dims.size()); ++d)
    nest.loops.push_back({.dim = d, .extent = 0, .bind = Bind::GridThread});
  if (!s.dims.empty() && vector > 1) {
    nest.loops.push_back(
        {.dim = static_cast<DimId>(s.dims.size()) - 1, .extent = vector, .bind = Bind::Vector});
    nest.lanes = {.tail = fields.tail,
                  .uniform_select = fields.uniform_select,
                  .split_at_rows = fields.split_at_rows};
  }
  for (size_t v = 0; v < p.refined.values.size(); ++v)
    nest.computed.push_back(static_cast<ValueId>(v));
  s.accesses.resize(p.accesses.size());
  vectorize(s, fields.vectorized, VectorKind::Aligned, vector);
  std::vector<Expr> multiples;
  for (size_t i = 0; i < p.accesses.size() && vector > 1; ++i)
    if (fields.strided.contains(i))
      // A changed plan may have vectors that are too short for the access.
      if (const auto window =
              lane_window_of(p, p.accesses[i], s.dims.back().axes, vector, multiples))
        s.accesses[i] = {.kind = VectorKind::Strided, .width = vector, .window = *window};
  // Limits the register allocation to one resident block per SM if lanes are masked one by one, or
  // if many scalar reads accompany a vector. By default the compiler spills to fit one more block.
  bool lanes = false;
  int of_rows = 0;
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    if (vector == 1 || s.accesses[i].kind == VectorKind::Aligned) continue;
    lanes |= !p.accesses[i].in.bounds.empty();
    of_rows += nest.lanes.split_at_rows;
  }
  if (lanes || of_rows > few_of_rows) s.launch.min_blocks_per_sm = 1;
  verify(p, s);
  return s;
}

void check_pointwise(const Problem&, const Plan& planned, const Plan& wanted) {
  const auto was = typed<PointwisePlan>(planned);
  check_fields(planned, wanted, {{"vector", 1, was.vector}, {"tail", was.tail, 1}});
}

}  // namespace fuser::schedulers
