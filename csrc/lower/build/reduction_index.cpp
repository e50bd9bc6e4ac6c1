// Index map of kernels with reductions: the loops of the schedule, the position of each thread in K
// and R, the grid, and the masks of elements that do not exist. See reduction.cpp.
#include <algorithm>

#include "base/error.h"
#include "lower/build/reduction_builder.h"

namespace fuser::lower::reduction {

using namespace fusion;
using namespace ir;
using namespace schedule;

Expr Builder::index_let(Expr value) {
  if (value->is_constant() || value->kind == ExprNode::Kind::Symbol) return value;
  const int v = new_var();
  kernel.body.push_back({Let{.var = v, .value = value, .index = true}});
  return var(v);
}

void Builder::take_stagings() {
  for (size_t i = 0; i < problem.accesses.size(); ++i) {
    const Staging* s = staging_of_access(schedule, static_cast<AccessId>(i));
    stagings.push_back(s);
    if (!s) continue;
    packed |= s->shape == StagingShape::PackedRows;
    staged |= s->shape == StagingShape::Tile;
    prefetches |= s->prefetch;
    stages = std::max(stages, s->stages);
  }
}

void Builder::take_loops() {
  for (int d : {K, R}) {
    extents[d] = constant(1);
    for (AxisId a : schedule.dims[d].axes) {
      axes_of_dim[d] |= AxisSet{1} << a;
      extents[d] = exprs().mul(extents[d], import(kernel, problem.refined.axes[a].extent));
    }
  }
  for (const Loop& l : loops()) {
    const int extent = static_cast<int>(l.extent);
    if (l.bind == Bind::Vector) vector = extent, lane_dim = l.dim;
    if (l.bind == Bind::Unroll) unroll = extent;
    if (l.bind == Bind::ThreadX) threads_x = extent;
    if (l.bind == Bind::ThreadY) threads_y = extent;
    if (l.bind == Bind::Cluster) kernel.cluster = extent;
    if (l.bind == Bind::Serial && l.dim == R) serial_unroll = l.unroll;
    if (l.bind == Bind::Serial && l.dim == K && has_tile() && extent) rows_per_thread = extent;
  }
  const std::vector<AxisId>& lane_run = schedule.dims[lane_dim].axes;
  const size_t within = nest_of_rows().lanes.axes ? nest_of_rows().lanes.axes : lane_run.size();
  for (size_t i = lane_run.size() - within; i < lane_run.size(); ++i)
    lane_axes |= AxisSet{1} << lane_run[i];
  FUSER_ASSERT(threads_y * threads_x == schedule.launch.threads, threads_y, " x ", threads_x,
               " threads of ", schedule.launch.threads);
}

// Returns the number of tiles that the loops inside of the Grid loop over a dim leave.
Expr Builder::tiles_of(int dim) {
  int64_t per_tile = 1;
  for (const Loop& l : loops())
    if (l.dim == dim && l.bind != Bind::Grid && l.extent) per_tile *= l.extent;
  return exprs().ceil_div(extents[dim], per_tile);
}

// Returns the blocks of a Grid loop with a limit, at least one. Blocks over K are persistent.
// Blocks over R share one tile of K: the limit is divided among the tiles.
Expr Builder::blocks_of(const Loop& loop) {
  Expr most = constant(loop.extent);
  if (loop.dim == R)
    most = exprs().div(most, exprs().apply(Op::maximum, {tiles_of(K), constant(1)}));
  most = exprs().apply(Op::minimum, {most, tiles_of(loop.dim)});
  return exprs().apply(Op::maximum, {most, constant(1)});
}

std::vector<Expr> Builder::trip_counts() {
  const std::vector<Loop>& loops = this->loops();
  std::vector<Expr> counts;
  for (const Loop& l : loops)
    counts.push_back(l.bind == Bind::Grid && l.extent ? blocks_of(l)
                     : l.extent                       ? constant(l.extent)
                                                      : nullptr);
  for (int d : {K, R}) {
    Expr others = constant(1);
    for (size_t i = 0; i < loops.size(); ++i)
      if (loops[i].dim == d && counts[i]) others = exprs().mul(others, counts[i]);
    // Peeled rows have whole vectors only.
    Expr extent = extents[d];
    if (d == R && peels()) extent = exprs().sub(extent, constant(vector - 1));
    for (size_t i = 0; i < loops.size(); ++i)
      if (loops[i].dim == d && !counts[i]) counts[i] = ceil_div(extent, others);
  }
  return counts;
}

std::vector<Expr> Builder::place_blocks(const std::vector<Expr>& counts) {
  const std::vector<Loop>& loops = this->loops();
  Expr thread = exprs().symbol(Symbol::Thread, 0), block = exprs().symbol(Symbol::Block, 0);
  x = threads_y == 1 ? thread : index_let(exprs().mod(thread, constant(threads_x)));
  y = threads_y == 1   ? constant(0)
      : threads_x == 1 ? thread
                       : index_let(exprs().div(thread, constant(threads_x)));
  if (packed) y = spread_row();
  if (kernel.cluster > 1) {
    rank = index_let(exprs().mod(block, constant(kernel.cluster)));
    block = index_let(exprs().div(block, constant(kernel.cluster)));
  }
  kernel.blocks = constant(kernel.cluster);
  std::vector<Expr> index(loops.size(), nullptr);
  size_t grids = 0;
  Expr all_blocks = constant(1);
  for (size_t i = 0; i < loops.size(); ++i) {
    if (loops[i].bind != Bind::Grid) continue;
    ++grids;
    all_blocks = exprs().mul(all_blocks, counts[i]);
  }
  if (schedule.launch.reverse_grid)
    block = exprs().sub(exprs().sub(all_blocks, constant(1)), block);
  for (size_t i = loops.size(); i-- > 0;) {
    if (loops[i].bind != Bind::Grid) continue;
    index[i] = counts[i]->is_constant(1) ? constant(0)
               : grids == 1              ? block
                                         : index_let(exprs().mod(block, counts[i]));
    if (grids > 1) block = index_let(exprs().div(block, counts[i]));
    --grids;
    kernel.blocks = exprs().mul(kernel.blocks, counts[i]);
    if (loops[i].dim == K) tile = index[i], tiles = counts[i];
    if (loops[i].dim == R) splits = counts[i], split = index[i];  // at least 1
  }
  if (!tile) tile = constant(0);
  return index;
}

void Builder::index_loops(const std::vector<Expr>& counts, std::vector<Expr>& index) {
  const std::vector<Loop>& loops = this->loops();
  step_at = unroll > 1 ? var(unroll_var = new_var()) : constant(0);
  if (pairs && unroll > 2)
    step_at = exprs().add(exprs().mul(var(pair_var = new_var()), constant(2)), step_at);
  for (size_t i = 0; i < loops.size(); ++i) {
    switch (loops[i].bind) {
      case Bind::Serial: {
        const bool along_k = loops[i].dim == K,
                   of_tiles = along_k && has_tile() && !loops[i].extent;
        (of_tiles ? tile_count : along_k ? row_count : serial_count) = counts[i];
        index[i] = var((of_tiles ? tile_var : along_k ? row_var : serial_var) = new_var());
        break;
      }
      case Bind::Unroll:
        index[i] = step_at;
        break;
      case Bind::ThreadX:
        index[i] = x;
        break;
      case Bind::ThreadY:
        index[i] = y;
        break;
      case Bind::Cluster:
        index[i] = rank;
        break;
      case Bind::Vector:
        lane_var = new_var();
        break;
      default:
        break;
    }
  }
}

void Builder::make_index_map() {
  take_loops();
  const std::vector<Expr> counts = trip_counts();
  std::vector<Expr> index = place_blocks(counts);
  pairs = takes_pairs();
  index_loops(counts, index);
  for (int d : {K, R}) {
    LinearAxes w{.axes = schedule.dims[d].axes};
    for (AxisId a : w.axes) w.extents.push_back(import(kernel, problem.refined.axes[a].extent));
    Expr stride = constant(1);
    w.index = constant(0);
    for (size_t i = loops().size(); i-- > 0;) {
      if (loops()[i].dim != d) continue;
      if (index[i]) w.index = exprs().add(exprs().mul(index[i], stride), w.index);
      stride = exprs().mul(stride, counts[i]);
    }
    w.vector = vector > 1 && lane_dim == d;
    w.whole = w.vector && nest_of_rows().lanes.axes == 1;
    index_map.push_back(std::move(w));
  }
  if (peels()) peel();
  if (packed) place_packed();
  kernel.axes = index_map;
}

// Vectors that vary over R alone come from L2. If each is loaded in its own step, then the loads
// are serialized. More than two at once would take registers that are better spent on resident
// blocks.
bool Builder::takes_pairs() const {
  if (unroll % 2 || (unroll == 2 && !serial_unroll) || !axes_of_dim[K] || packed) return false;
  for (const Loop& l : loops())
    if (l.bind == Bind::Serial && l.dim == K) return false;
  for (size_t i = 0; i < problem.accesses.size(); ++i) {
    const MemoryAccess& a = problem.accesses[i];
    const AxisSet axes = axes_of(problem, a);
    if (!a.store && is_vectorized(static_cast<int>(i)) && over(axes, R) && !over(axes, K))
      return true;
  }
  return false;
}

// Returns the mask of a value or access that varies over `axes`: of one lane, or of the whole
// vector if `lane` is nullptr.
Mask Builder::mask(AxisSet axes, Expr lane) {
  Mask g;
  if (!checks) return g;
  for (int d : {K, R}) {
    // A kernel without K axes has a single row. Threads outside it must neither read nor write,
    // because the row may be updated in place.
    if (!over(axes, d) && !schedule.dims[d].axes.empty()) continue;
    if (peeled && d == R) {
      g.in = both(g.in, less(exprs().add(index_map[d].index, constant(reach - 1)), extents[d]));
    } else if (d == lane_dim && vector > 1 && nest_of_rows().lanes.tail) {
      g.count = exprs().sub(extents[d], index_map[d].index);
      if (lane) g.count = exprs().sub(g.count, lane);
    } else {
      g.in = both(g.in, less(index_map[d].index, extents[d]));
    }
  }
  return g;
}

// Returns whether the element of a lane exists, as one condition.
Expr Builder::exists(AxisSet axes, Expr lane) {
  const Mask g = mask(axes, lane);
  Expr e = g.in;
  if (g.count) e = both(e, less(constant(0), g.count));
  return e;
}

}  // namespace fuser::lower::reduction
