// Reductions along outer axes: each lane of a thread is a column, threads above each other share
// it.
//
// A warp reads 32 neighbouring vectors of a row; the rows are cut over the threads above each
// other, the steps of a thread and, for few columns, over the grid, where the last block of each
// tile finishes in fixed order. A column that is walked more than once stays in registers where it
// is short; else its statistics and what is made of them are two kernels, or it is read again.
#include <algorithm>

#include "base/error.h"
#include "schedulers/dims.h"
#include "schedulers/schedulers.h"

namespace fuser {
namespace {

constexpr int warp = 32;
constexpr int most_steps = 8;         // rows in flight a thread
constexpr int resident_rows = 8 * 8;  // of a column that stays in registers: threads x steps

int ceil_pow2(int64_t n) {
  int p = 1;
  while (p < n) p *= 2;
  return p;
}

struct Columns {
  std::vector<AxisId> axes, inner;  // of K; of its innermost run
  int vector = 1;
};

Columns columns_of(Problem& p) {
  Columns c;
  c.axes = kept_axes(p);
  std::vector<const MemoryAccess*> whole;
  for (const MemoryAccess& a : p.accesses)
    if ((axes_of(p, a) & ~p.reduced) && !is_loaded(a)) whole.push_back(&a);
  c.inner = collapse(p, c.axes, whole).back();
  c.vector = std::max(1, vector_bytes / shape_of(p).widest);
  return c;
}

}  // namespace

Verdict match_outer(Problem& p) {
  Verdict verdict;
  const auto refuse = [&](const char* rule, const char* text) {
    verdict.reject = Reject{.rule = rule, .text = text, .tensor = -1};
    return verdict;
  };
  if (!p.reduced) return refuse("outer-1", "it reduces nothing");
  if (p.columns) return refuse("outer-2", "it also reduces the kept axes");
  if (p.order.empty() || (p.reduced >> p.order.back() & 1))
    return refuse("outer-3", "the innermost axis is reduced");
  const Columns c = columns_of(p);
  const auto ask = [&](Expr value, int64_t divisor) {
    if (divisor > 1 && !value->is_constant()) verdict.facts.push_back({value, divisor});
  };
  ask(extent_of(p, c.inner), c.vector);
  ask(p.refined.axes[c.axes.back()].extent, c.vector);
  for (const MemoryAccess& a : p.accesses)
    if (const auto needs = vector_needs(p, a, c.inner))
      for (Expr e : *needs) ask(e, c.vector);
  verdict.extents = {extent_of(p, reduced_axes(p)), extent_of(p, c.axes)};
  return verdict;
}

Plan plan_outer(Problem& p, const Hints& hints, const Device& device) {
  const Columns c = columns_of(p);
  const int64_t length = hints.at_most(extent_of(p, reduced_axes(p)));
  const int64_t width = hints.at_most(extent_of(p, c.axes));
  int vector = c.vector;
  int64_t wide = 0;
  if (vector > 1 && hints.divides(extent_of(p, c.inner), vector))
    for (size_t i = 0; i < p.accesses.size() && i < 63; ++i)
      if (axes_of(p, p.accesses[i]) & ~p.reduced &&
          can_vector(p, p.accesses[i], c.inner, hints, vector))
        wide |= int64_t{1} << i;
  if (!wide) vector = 1;
  const bool whole = vector > 1 && hints.divides(p.refined.axes[c.axes.back()].extent, vector);

  Shape shape = shape_of(p);
  bool single_pass = false;
  // Few tiles of columns are made narrower, 128 bytes of a row: more blocks finish side by side.
  const int64_t vectors = (width + vector - 1) / vector;
  const int threads_x =
      static_cast<int>(std::min<int64_t>(vectors < 8 * warp ? 8 : warp, ceil_pow2(vectors)));
  int threads = 256;
  Place place = Place::Reload;
  int threads_y, unroll;
  bool serial = false;
  int64_t blocks = 0;
  if (shape.walks > 1 && length <= resident_rows) {
    place = Place::Registers;
    threads_y = static_cast<int>(std::min<int64_t>(8, ceil_pow2((length + 3) / 4)));
    unroll = ceil_pow2((length + threads_y - 1) / threads_y);
  } else {
    if (shape.walks > 1 && p.single_pass) {
      single_pass = true;
      shape = shape_of(*p.single_pass);
    }
    const int64_t tiles = (width + threads_x * vector - 1) / (threads_x * vector);
    if (shape.walks > 1 && hints.pieces && tiles < 2 * device.processors)
      return {.scheduler = "pieces", .fields = {}};
    while (threads > 64 && threads / threads_x > length) threads /= 2;
    threads_y = std::max(1, threads / threads_x);
    unroll = static_cast<int>(
        std::clamp<int64_t>(ceil_pow2((length + threads_y - 1) / threads_y), 1, most_steps));
    if (shape.staged > 1) unroll = std::min(unroll, most_steps / 2);
    serial = int64_t{threads_y} * unroll < length;
    if (serial && shape.walks == 1 && tiles < 4 * device.processors) blocks = 4 * device.processors;
  }
  return {.scheduler = "outer",
          .fields = {{"threads_x", threads_x},
                     {"threads_y", threads_y},
                     {"unroll", unroll},
                     {"vector", vector},
                     {"serial", serial},
                     {"place", static_cast<int64_t>(place)},
                     {"blocks", blocks},
                     {"single_pass", single_pass},
                     {"whole", whole},
                     {"wide", wide}}};
}

Schedule schedule_outer(Problem& both, const Plan& plan) {
  Schedule s;
  s.single_pass = plan.get("single_pass") != 0;
  Problem& p = s.single_pass ? *both.single_pass : both;
  Exprs& exprs = p.refined.exprs;
  const int vector = static_cast<int>(plan.get("vector"));
  const int64_t x = plan.get("threads_x"), y = plan.get("threads_y"), unroll = plan.get("unroll");
  enum { K, R };
  s.dims = {{.axes = kept_axes(p)}, {.axes = reduced_axes(p)}};
  s.threads = static_cast<int>(x * y);
  s.whole = plan.get("whole") != 0;
  s.widths = widths_of(p, plan.get("wide"), vector);
  Stage stage;
  const auto loop = [&](DimId dim, Bind bind, int64_t extent, Expr count = nullptr) {
    stage.loops.push_back({.dim = dim, .extent = extent, .bind = bind, .count = count});
  };
  if (plan.get("serial")) loop(R, Bind::Serial, 0);
  if (plan.get("blocks")) {
    Expr tiles = exprs.ceil_div(extent_of(p, kept_axes(p)), x * vector);
    Expr share = exprs.div(exprs.constant(plan.get("blocks")),
                           exprs.apply(Op::maximum, {tiles, exprs.constant(1)}));
    Expr steps = exprs.ceil_div(extent_of(p, reduced_axes(p)), y * unroll);
    Expr count = exprs.apply(Op::minimum, {share, steps});
    loop(R, Bind::Grid, 0, exprs.apply(Op::maximum, {count, exprs.constant(1)}));
    s.finish = Finish::LastBlock;
  }
  loop(K, Bind::Grid, 0);
  loop(R, Bind::Unroll, unroll);
  loop(R, Bind::ThreadY, y);
  loop(K, Bind::ThreadX, x);
  if (vector > 1) loop(K, Bind::Vector, vector);
  s.stages.push_back(std::move(stage));
  const auto place = static_cast<Place>(plan.get("place"));
  for (const MemoryAccess& a : p.accesses) {
    const AxisSet axes = axes_of(p, a);
    const bool column = !a.store && (axes & p.reduced) && (axes & ~p.reduced) && !is_loaded(a);
    s.places.push_back(column ? place : Place::Reload);
  }
  verify(s, static_cast<int>(p.refined.axes.size()));
  return s;
}

void check_outer(const Plan& planned, const Plan& wanted) {
  check_fields(planned, wanted, {{"unroll", planned.get("unroll"), 32}});
}

}  // namespace fuser
