// Kernels with reductions. A tile of rows is traversed by one reduction loop per phase.
//
// dims[0] is K, the kept axes, and dims[1] is R, the reduced axes. Each dim is one linear index
// whose digits are the loops of the schedule. The Vector loop determines the dim along which a
// thread's lanes run. Along R, the threads of a row combine their partial results. Along K, each
// lane is a column of its own, and threads along Y combine.
//
// Values over K alone are computed between the loops, by every thread that needs them. All other
// values are rematerialized in each loop: persistent are loaded tensors and the values that the
// schedule stores.
#include <algorithm>

#include "base/error.h"
#include "lower/build/reduction_builder.h"

namespace fuser::lower::reduction {

using namespace fusion;
using namespace ir;
using namespace schedule;

Expr Builder::ceil_div(Expr a, Expr b) {
  if (b->is_constant()) return exprs().ceil_div(a, b->value.integer);
  return exprs().div(exprs().add(a, exprs().sub(b, constant(1))), b);
}

// Returns the position of a lane of the unrolled step in a register array.
Expr Builder::element(Expr lane, int per_step) {
  Expr step = exprs().mul(step_at, constant(per_step));
  return per_step > 1 ? exprs().add(step, lane) : step;
}

int Builder::new_shared(std::string name, DType dtype, int elements, std::optional<State> state) {
  return new_shared(std::move(name), dtype, constant(elements), state);
}

int Builder::new_shared(std::string name, DType dtype, Expr elements, std::optional<State> state) {
  kernel.buffers.push_back({.name = std::move(name),
                            .dtype = dtype,
                            .read = true,
                            .written = true,
                            .kind = Buffer::Kind::Shared,
                            .state = state,
                            .elements = elements});
  return static_cast<int>(kernel.buffers.size()) - 1;
}

int Builder::new_scratch(std::string name, Buffer::Kind kind, DType dtype, Expr elements,
                         std::optional<State> state) {
  kernel.buffers.push_back({.name = std::move(name),
                            .dtype = dtype,
                            .read = true,
                            .written = true,
                            .restrict_ = false,
                            .kind = kind,
                            .state = state,
                            .elements = elements});
  return static_cast<int>(kernel.buffers.size()) - 1;
}

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

bool Builder::reduces_columns(const Value& v) const {
  const auto* r = std::get_if<Reduced>(&v.how);
  return r && problem.columns && r->over == problem.columns;
}

std::vector<ValueId> Builder::operands_of(const Value& v) {
  std::vector<ValueId> out;
  visit_operands(v, [&](ValueId a) { out.push_back(a); });
  return out;
}

void Builder::analyse() {
  const size_t n = values().size();
  phases = reduction_phases(problem);
  finish.assign(n, false);
  access_of.assign(n, -1);
  state_of.assign(n, -1);
  array_of.assign(n, -1);
  taken_of.assign(n, -1);
  positions_of.assign(n, -1);
  takes.assign(n, false);
  slots_of.assign(n, -1);
  kept_of.assign(n, -1);
  total_of.assign(n, -1);
  find_products();
  for (size_t i = 0; i < problem.accesses.size(); ++i)
    if (!problem.accesses[i].store) access_of[problem.accesses[i].index] = static_cast<int>(i);
  for (size_t v = 0; v < n; ++v) {
    for (ValueId o : operands_of(values()[v])) finish[v] = finish[v] || finish[o];
    if (const auto* r = std::get_if<Reduced>(&values()[v].how)) {
      if (reduces_columns(values()[v])) finish[v] = true;
      takes[v] = takes_arrays(static_cast<ValueId>(v));
      int extent = takes[v] && lane_dim == R ? 1 : vector;
      if (reduces_columns(values()[v])) extent *= unroll;
      state_of[v] = new_array(text("r_", row(r->op).name, v), r->compute, extent, State{r->op});
    }
  }
}

// Returns whether a position increases along R in traversal order.
bool Builder::ascends(Expr position) {
  const auto form =
      linear(exprs(), import(kernel, position), static_cast<int>(problem.refined.axes.size()));
  if (!form || index_map[R].axes.empty() || !is_linear_in_index(exprs(), *form, index_map[R]))
    return false;
  Expr step = form->coefficients[index_map[R].axes.back()];
  return step->is_constant() && step->value.integer > 0;
}

// Returns whether a thread has one partial result for all of its lanes.
bool Builder::takes_arrays(ValueId v) {
  const auto& r = std::get<Reduced>(values()[v].how);
  if (!row(r.op).takes_positions()) return row(r.op).has_state();
  const ValueId position = r.args[1].value;
  const auto* at = position >= 0 ? std::get_if<Coordinate>(&values()[position].how) : nullptr;
  return at && ascends(at->at);
}

bool Builder::takes_steps(ValueId v) const {
  return takes[v] && unroll > 1 && serial_var >= 0 && across_rows() &&
         !reduces_columns(values()[v]);
}

// A product becomes part of a sum if the sum is its only user and contract() marked the sum.
void Builder::find_products() {
  product_of.assign(values().size(), -1);
  std::vector<int> uses(values().size(), 0);
  for (const Value& v : values())
    for (ValueId o : operands_of(v)) ++uses[o];
  for (const Store& s : problem.refined.stores)
    if (s.access.value >= 0) ++uses[s.access.value];
  for (size_t v = 0; v < values().size(); ++v) {
    const auto* r = std::get_if<Reduced>(&values()[v].how);
    if (!r || !r->unrounded) continue;
    const ValueId arg = r->args[0].value;
    const auto* a = arg >= 0 ? std::get_if<Apply>(&values()[arg].how) : nullptr;
    if (a && a->op == Op::mul && a->compute == r->compute && uses[arg] == 1) product_of[v] = arg;
  }
}

// Returns the reductions that end with phase p. A reduction over K belongs to the first phase that
// has its operands.
std::vector<ValueId> Builder::reductions_of(int p) const {
  std::vector<ValueId> out;
  for (size_t v = 0; v < values().size(); ++v) {
    if (!is_reduced(static_cast<ValueId>(v))) continue;
    if (phases.phase[v] == (reduces_columns(values()[v]) ? p : p + 1))
      out.push_back(static_cast<ValueId>(v));
  }
  return out;
}

std::vector<int> Builder::stores_over(bool k, bool r) const {
  std::vector<int> out;
  for (size_t i = 0; i < problem.accesses.size(); ++i) {
    const MemoryAccess& a = problem.accesses[i];
    if (!a.store) continue;
    const AxisSet axes = axes_of(problem, a);
    const bool has_r = over(axes, R);
    if (has_r != r) continue;
    if (has_r && (over(axes, K) || !axes_of_dim[K]) != k) continue;
    out.push_back(static_cast<int>(i));
  }
  return out;
}

ValueId Builder::stored_value(int access) const {
  return problem.refined.stores[problem.accesses[access].index].access.value;
}

bool Builder::is_finish_store(int access) const {
  const ValueId v = stored_value(access);
  return v >= 0 && finish[v];
}

// Returns the values that `roots` are computed from inside a reduction loop, operands first. Known
// values and values over K alone are left out.
std::vector<ValueId> Builder::needed(const std::vector<ValueId>& roots, const Known& known) const {
  std::vector<bool> want(values().size(), false);
  for (ValueId v : roots) want[v] = true;
  std::vector<ValueId> out;
  for (size_t v = values().size(); v-- > 0;) {
    if (!want[v] || known[v]) continue;
    out.push_back(static_cast<ValueId>(v));
    if (is_reduced(static_cast<ValueId>(v))) continue;
    for (ValueId o : operands_of(values()[v])) want[o] = true;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

bool Builder::is_vectorized(int access) const {
  return vector > 1 && schedule.accesses[access].kind == VectorKind::Aligned &&
         in_lanes(axes_of(problem, problem.accesses[access]));
}

bool Builder::is_unaligned(int access) const {
  return vector > 1 && schedule.accesses[access].kind == VectorKind::Unaligned &&
         in_lanes(axes_of(problem, problem.accesses[access]));
}

bool Builder::stays(int access) const {
  return place_of(access) == Place::Registers || place_of(access) == Place::Shared;
}

Body Builder::unrolled(Body body, Body reads) {
  if (unroll == 1 || body.empty()) return body;
  Body out;
  for (Body* part : {&reads, &body})
    if (!part->empty())
      out.push_back(
          {For{.var = unroll_var, .extent = pairs ? 2 : unroll, .body = std::move(*part)}});
  if (pair_var < 0) return out;
  For all{.var = pair_var, .extent = unroll / 2, .body = std::move(out)};
  Body looped;
  looped.push_back({std::move(all)});
  return looped;
}

Body Builder::stepped(Body body) {
  if (!rolled()) return unrolled(std::move(body));
  Body out;
  if (!body.empty())
    out.push_back({Serial{.var = serial_var,
                          .extent = serial_count,
                          .unroll = serial_unroll,
                          .body = unrolled(std::move(body))}});
  return out;
}

void Builder::append(Body& to, Body from) {
  for (Stmt& s : from) to.push_back(std::move(s));
}

void Builder::compute_row(Body& body) {
  Known known(values().size(), nullptr);
  between_loops(body, 0, known);
  append(body, read_ahead(exprs().add(row_at(), constant(1))));
  for (int p = 0; p <= phases.count; ++p) {
    if (p > 0) between_loops(body, p, known);
    if (p == 0 && peeled) append(body, read_edges(known));
    if (p == 0 && has_copies() && !takes_rows()) {
      append(body, copies(nullptr, nullptr, known));
      body.push_back({AsyncWait{0}});
    }
    if (p == 0 && kernel.cluster > 1 && row_var < 0)
      body.push_back({SyncCluster{SyncCluster::Part::Wait}});
    nest(body, p, known);
    if (p == phases.count) break;
    std::vector<ValueId> reduced = reductions_of(p);
    std::erase_if(reduced, [&](ValueId v) { return reduces_columns(values()[v]); });
    // Slots are reused one iteration later with a single barrier in between, so they alternate.
    const bool alternate = row_var >= 0 && phases.count == 1 && !packed;
    Expr parity = alternate ? exprs().mod(var(row_var), constant(2)) : nullptr;
    combine(body, reduced, parity);
    if (splits) {
      FUSER_ASSERT(phases.count == 1, "a grid reduction must be the last phase");
      last_block(body, reduced, known);
      return;
    }
  }
  store_kept(body, known);
}

// Load operands that all rows read into registers, and start the copies and reads of the first
// rows.
Body Builder::before_rows() {
  Body first;
  for (size_t i = 0; i < problem.accesses.size(); ++i) {
    const MemoryAccess& a = problem.accesses[i];
    const AxisSet axes = axes_of(problem, a);
    if (a.store || over(axes, K) || !is_vectorized(static_cast<int>(i)) || is_loaded(a)) continue;
    raw_of[i] = new_array(name_of("q", static_cast<int>(i)), a.dtype, unroll, {}, vector);
    const Mask g = mask(axes, nullptr);
    first.push_back({Load{.array = raw_of[i],
                          .element = step_at,
                          .width = vector,
                          .buffer = a.buffer,
                          .offset = offset_of(kernel, a, Known(values().size(), nullptr)),
                          .in = inside(g, a)}});
  }
  first = unrolled(std::move(first));
  append(first, read_ahead(constant(0)));
  append(first, first_copies());
  return first;
}

// Emits the persistent loop over rows, with prefetched copies.
void Builder::rows_loop() {
  append(kernel.body, before_rows());
  Body body = next_copies();
  compute_row(body);
  if (kernel.cluster > 1) kernel.body.push_back({SyncCluster{SyncCluster::Part::Wait}});
  kernel.body.push_back({Serial{.var = row_var, .extent = row_count, .body = std::move(body)}});
}

void Builder::declare_staging() {
  declare_places();
  declare_ahead();
  declare_prefetch();
}

void Builder::init_cluster() {
  if (kernel.cluster == 1) return;
  arrivals = new_shared("s_arrivals", DType::Int64, 0);
  kernel.body.push_back({SyncCluster{SyncCluster::Part::Arrive, arrivals}});
}

void Builder::init_columns() {
  for (size_t v = 0; v < values().size(); ++v)
    if (reduces_columns(values()[v])) kernel.body.push_back({InitState{state_of[v]}});
}

void Builder::emit_rows() {
  if (has_tile())
    take_tile();
  else if (row_var >= 0)
    rows_loop();
  else
    compute_row(kernel.body);
}

void Builder::end_cluster() {
  if (kernel.cluster > 1) kernel.buffers[arrivals].elements = constant(places_of_arrival);
}

void Builder::limit_registers() {
  if (!kernel.min_blocks) kernel.min_blocks = is_crowded();
}

}  // namespace fuser::lower::reduction

namespace fuser::lower {

using namespace fusion;
using namespace ir;
using namespace schedule;

namespace {

constexpr Step<reduction::Builder> steps[] = {
    {"stagings", &reduction::Builder::take_stagings, "the staging of each access"},
    {"index map", &reduction::Builder::make_index_map,
     "the position of a thread in K and R, its loops, and the grid"},
    {"analysis", &reduction::Builder::analyse,
     "the phase of each value, and the partial results of each reduction"},
    {"staging", &reduction::Builder::declare_staging,
     "shared memory and registers of persistent rows, copies and tiles"},
    {"cluster", &reduction::Builder::init_cluster, "barriers between the blocks of a cluster"},
    {"columns", &reduction::Builder::init_columns, "identities of the reductions over K"},
    {"rows", &reduction::Builder::emit_rows,
     "for each phase: loads, vectors, accumulation, combination over threads; then stores"},
    {"merge", &reduction::Builder::finish_columns, "results of the reductions over K"},
    {"arrivals", &reduction::Builder::end_cluster, "the number of barriers of a cluster"},
    {"registers", &reduction::Builder::limit_registers, "the limit of registers"},
};

}  // namespace

KernelIR build_reduction(const Problem& whole, const Schedule& schedule, bool index64) {
  const Problem& problem = schedule.single_pass ? *whole.single_pass : whole;
  reduction::Builder b{{problem, schedule, declare_kernel(problem, schedule, index64)}};
  return run_steps(b, steps);
}

}  // namespace fuser::lower
