#include "base/error.h"
#include "lower/build/staged_builder.h"

namespace fuser::lower::staged {

using namespace fusion;
using namespace ir;
using namespace schedule;

namespace {

bool is_step(const Loop& l) { return l.bind != Bind::Grid; }

}  // namespace

void Builder::measure_dims() {
  for (const Dim& d : schedule.dims) {
    AxisSet axes = 0;
    Expr extent = constant(1);
    for (AxisId a : d.axes) {
      axes |= AxisSet{1} << a;
      extent = exprs().mul(extent, import(kernel, problem.refined.axes[a].extent));
    }
    axes_of_dim.push_back(axes);
    extents.push_back(extent);
  }
  tile.assign(schedule.dims.size(), 1);
  for (const Loop& l : schedule.nests[0].loops)
    if (is_step(l)) tile[l.dim] *= l.extent;
}

void Builder::place_block() {
  block_at.assign(schedule.dims.size(), constant(0));
  std::vector<DimId> dims;
  for (const Loop& l : schedule.nests[0].loops)
    if (l.bind == Bind::Grid) dims.push_back(l.dim);
  kernel.blocks = constant(1);
  for (DimId d : dims)
    kernel.blocks = exprs().mul(kernel.blocks, exprs().ceil_div(extents[d], tile[d]));
  Expr rest = exprs().symbol(Symbol::Block, 0);
  if (schedule.launch.reverse_grid)
    rest = exprs().sub(exprs().sub(kernel.blocks, constant(1)), rest);
  for (size_t i = dims.size(); i-- > 0;) {
    Expr steps = exprs().ceil_div(extents[dims[i]], tile[dims[i]]);
    block_at[dims[i]] = index_let(kernel.body, i == 0 ? rest : exprs().mod(rest, steps));
    rest = exprs().div(rest, steps);
  }
}

ThreadMapping Builder::make_mapping(const LoopNest& nest) {
  ThreadMapping w{.tail = nest.lanes.tail, .uniform_select = nest.lanes.uniform_select};
  if (nest.ends) w.cut = mappings.back().lanes;
  const size_t dims = schedule.dims.size();
  w.in_tile.assign(dims, constant(0));
  w.run.assign(dims, constant(0));
  std::vector<int64_t> inner(dims, 1), run(dims, 0);
  std::vector<Expr> start(dims, constant(0));
  int64_t threads = 1;
  for (size_t i = nest.loops.size(); i-- > 0;) {
    const Loop& l = nest.loops[i];
    if (l.bind == Bind::Grid) continue;
    Expr at = constant(0);
    if (l.bind == Bind::Vector) {
      w.lane_dim = l.dim;
      w.lanes = static_cast<int>(l.extent);
      w.lane_var = new_var();
    } else if (l.bind == Bind::Unroll) {
      if (l.extent > 1) at = var(new_var());
      w.steps.insert(w.steps.begin(), l);
      w.step.insert(w.step.begin(), at);
      w.stride.insert(w.stride.begin(), inner[l.dim]);
    } else {
      FUSER_ASSERT(l.bind == Bind::ThreadX || l.bind == Bind::ThreadY,
                   "build_staged() supports grid, thread, unrolled and vector loops");
      Expr thread = exprs().div(exprs().symbol(Symbol::Thread, 0), constant(threads));
      threads *= l.extent;
      at = threads == schedule.launch.threads ? thread : exprs().mod(thread, constant(l.extent));
      start[l.dim] = exprs().add(start[l.dim], exprs().mul(at, constant(inner[l.dim])));
    }
    w.in_tile[l.dim] = exprs().add(w.in_tile[l.dim], exprs().mul(at, constant(inner[l.dim])));
    if (run[l.dim])
      w.run[l.dim] =
          exprs().add(w.run[l.dim], exprs().mul(at, constant(inner[l.dim] / run[l.dim])));
    else
      run[l.dim] = l.extent;
    inner[l.dim] *= l.extent;
  }
  FUSER_ASSERT(threads == schedule.launch.threads, "a nest has ", threads, " threads of ",
               schedule.launch.threads);
  for (size_t d = 0; d < dims; ++d)
    FUSER_ASSERT(inner[d] == tile[d] || (w.cut && static_cast<DimId>(d) == w.lane_dim),
                 "nests have tiles of ", inner[d], " and ", tile[d]);
  index_axes(w, start);
  return w;
}

void Builder::index_axes(ThreadMapping& w, const std::vector<Expr>& start) {
  for (size_t d = 0; d < schedule.dims.size(); ++d) {
    LinearAxes& axes = w.axes.emplace_back();
    for (AxisId a : schedule.dims[d].axes) {
      axes.axes.push_back(a);
      axes.extents.push_back(import(kernel, problem.refined.axes[a].extent));
    }
    Expr block = exprs().mul(block_at[d], constant(tile[d]));
    axes.index = block;
    w.start.push_back(axes);
    // Line-aligned lanes wrap around the tile, so no single index holds for all of them: use the
    // tile's start.
    if (is_aligned(w, static_cast<DimId>(d))) continue;
    axes.index = exprs().add(block, w.in_tile[d]);
    axes.vector = static_cast<DimId>(d) == w.lane_dim && w.lanes > 1;
    w.start.back() = axes;
    w.start.back().index = exprs().add(block, start[d]);
  }
}

bool Builder::is_aligned(const ThreadMapping& w, DimId dim) const {
  return dim == w.lane_dim && schedule.dims[dim].line.elements > 0;
}

Offset Builder::start_behind(const ThreadMapping& w, DimId dim, int64_t unit, Body& body) {
  if (!schedule.dims[dim].line.elements) return [](Expr) -> Expr { return nullptr; };
  Expr origin = line_origin(kernel, problem, schedule, dim);
  const auto form = linear_in_dims(exprs(), w.axes, origin);
  FUSER_ASSERT(form, "unsupported origin of aligned rows: ", to_string(origin));
  Expr first = index_let(body, address(exprs(), w.start, origin, nullptr));
  return [=, this, &w](Expr lane) {
    Expr at = first;
    for (DimId d = 0; d < static_cast<int>(tile.size()); ++d) {
      const std::vector<int>& axes = w.axes[d].axes;
      if (axes.empty() || d == dim) continue;
      // Rows whose distance is a multiple of the unit start at equal distances from it.
      Expr rows = stepped(w, d);
      if (d == w.lane_dim) rows = exprs().add(rows, lane);
      rows = exprs().apply(Op::remainder, {rows, constant(unit)});
      at = exprs().add(at, exprs().mul(form->coefficients[axes.back()], rows));
    }
    return exprs().apply(Op::remainder, {at, constant(unit)});
  };
}

Expr Builder::place(const ThreadMapping& w, DimId dim, Expr start) {
  if (!is_aligned(w, dim)) return w.in_tile[dim];
  if (!w.cut)
    return exprs().apply(Op::remainder, {exprs().sub(w.in_tile[dim], start), constant(tile[dim])});
  const auto [at_start, distance] = from_end(w);
  Expr last = exprs().sub(end_of_row(w, dim), constant(1));
  return exprs().apply(Op::where, {at_start, distance, exprs().sub(last, distance)});
}

Expr Builder::end_of_row(const ThreadMapping& w, DimId dim) {
  if (schedule.dims[dim].divides) return constant(tile[dim]);
  return exprs().apply(Op::minimum,
                       {exprs().sub(extents[dim], w.axes[dim].index), constant(tile[dim])});
}

std::pair<Expr, Expr> Builder::from_end(const ThreadMapping& w) {
  Expr at = w.in_tile[w.lane_dim], cut = constant(w.cut);
  Expr at_start = exprs().apply(Op::lt, {at, cut});
  return {at_start, exprs().apply(Op::where, {at_start, at, exprs().sub(at, cut)})};
}

Expr Builder::is_cut(const ThreadMapping& w, Expr start) {
  const auto [at_start, distance] = from_end(w);
  Expr end = end_of_row(w, w.lane_dim), lanes = constant(w.cut);
  Expr before = exprs().apply(Op::remainder, {exprs().sub(lanes, start), lanes});
  Expr behind = exprs().apply(Op::remainder, {exprs().add(end, start), lanes});
  Expr left = exprs().apply(Op::where, {at_start, before, behind});
  return exprs().apply(Op::lt, {distance, exprs().apply(Op::minimum, {left, end})});
}

Expr Builder::stepped(const ThreadMapping& w, DimId dim) {
  Expr sum = constant(0);
  for (size_t i = 0; i < w.steps.size(); ++i)
    if (w.steps[i].dim == dim)
      sum = exprs().add(sum, exprs().mul(w.step[i], constant(w.stride[i])));
  return sum;
}

Mask Builder::mask(const ThreadMapping& w, AxisSet axes, Expr lane) {
  Mask g;
  for (DimId d = 0; d < static_cast<int>(tile.size()); ++d) {
    if (tile[d] == 1 || schedule.dims[d].divides || !over(axes, d)) continue;
    if (is_aligned(w, d)) continue;  // aligned stores have a mask of their own
    if (d == w.lane_dim && w.lanes > 1 && w.tail) {
      g.count = exprs().sub(extents[d], w.axes[d].index);
      if (lane) g.count = exprs().sub(g.count, lane);
    } else {
      // Compare the steps alone with the remaining extent, so that one limit serves all steps.
      Expr steps = stepped(w, d), at = steps->is_constant() ? w.axes[d].index : steps;
      Expr end = at == steps ? exprs().sub(extents[d], w.start[d].index) : extents[d];
      g.in = both(exprs(), g.in, exprs().apply(Op::lt, {at, end}));
    }
  }
  return g;
}

int Builder::elements(const ThreadMapping& w, AxisSet axes) const {
  int64_t n = in_lanes(w, axes) ? w.lanes : 1;
  for (const Loop& l : w.steps)
    if (over(axes, l.dim)) n *= l.extent;
  return static_cast<int>(n);
}

Expr Builder::element(const ThreadMapping& w, AxisSet axes, Expr lane) {
  Expr at = constant(0);
  for (size_t i = 0; i < w.steps.size(); ++i)
    if (over(axes, w.steps[i].dim))
      at = exprs().add(exprs().mul(at, constant(w.steps[i].extent)), w.step[i]);
  return in_lanes(w, axes) ? exprs().add(exprs().mul(at, constant(w.lanes)), lane) : at;
}

void Builder::nest(const ThreadMapping& w, AxisSet axes, Body& out,
                   const std::function<void(Body&)>& make, const Loop* without) {
  Body body;
  make(body);
  for (size_t i = w.steps.size(); i-- > 0;) {
    if (!w.step[i]->is_symbol(Symbol::Var) || !over(axes, w.steps[i].dim)) continue;
    if (&w.steps[i] == without) continue;
    Body outer;
    outer.push_back({For{.var = w.step[i]->a,
                         .extent = static_cast<int>(w.steps[i].extent),
                         .body = std::move(body)}});
    body = std::move(outer);
  }
  std::move(body.begin(), body.end(), std::back_inserter(out));
}

void Builder::for_lanes(const ThreadMapping& w, Body& out,
                        const std::function<void(Body&, Expr lane)>& make) {
  if (w.lanes == 1) return make(out, constant(0));
  For loop{.var = w.lane_var, .extent = w.lanes, .body = {}};
  make(loop.body, var(w.lane_var));
  out.push_back({std::move(loop)});
}

}  // namespace fuser::lower::staged
