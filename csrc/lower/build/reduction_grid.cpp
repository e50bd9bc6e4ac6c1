// Reductions of partial results over threads, clusters and the grid. The last block of a tile, or
// all blocks after a grid barrier, finish in a fixed order. See reduction.cpp.
#include <algorithm>

#include "base/error.h"
#include "lower/build/reduction_builder.h"

namespace fuser::lower::reduction {

using namespace fusion;
using namespace ir;
using namespace schedule;

void Builder::combine(Body& body, const std::vector<ValueId>& reduced, Expr parity) {
  if (reduced.empty()) return;
  const auto shared_for = [&](ValueId v, int states) {
    const auto& r = std::get<Reduced>(values()[v].how);
    return new_shared(text("s_", row(r.op).name, slot_index++), r.compute,
                      states * (parity ? 2 : 1), State{r.op});
  };
  // Threads along Y share a column.
  const bool by_columns = vector > 1 && lane_dim == K;
  if (by_columns || across_rows()) {
    if (threads_y == 1) return;
    BlockReduceColumns c{.threads_y = threads_y, .threads_x = threads_x};
    for (ValueId v : reduced) {
      // The last block of a tile reuses the slots, with barriers in between.
      if (slots_of[v] < 0)
        slots_of[v] = shared_for(v, (by_columns ? vector : 1) * schedule.launch.threads);
      c.arrays.push_back(state_of[v]);
      c.slots.push_back(slots_of[v]);
    }
    body.push_back({std::move(c)});
    return;
  }
  // Data sent to other blocks consists of whole words.
  const auto words_of = [&](ValueId v) {
    const auto& r = std::get<Reduced>(values()[v].how);
    return std::max(1, least_sent_bytes / state_bytes(r.op, r.compute));
  };
  BlockReduce c{.group = threads_x, .parity = parity};
  for (ValueId v : reduced) {
    body.push_back({ThreadReduce{state_of[v]}});
    c.arrays.push_back(state_of[v]);
    const int warps = schedule.launch.threads / warp;
    if (kernel.cluster > 1)
      c.cluster_slots.push_back(shared_for(v, kernel.cluster * warps * words_of(v)));
    else if (threads_x > warp)
      c.slots.push_back(shared_for(v, warps));
  }
  if (kernel.cluster > 1) {
    c.arrivals = arrivals;
    c.arrival = constant(places_of_arrival);
    if (parity) c.arrival = exprs().add(c.arrival, parity);
    const int repeats = parity ? 2 : 1;  // iterations after which the barrier is reused
    c.turn = row_var < 0 ? constant(0)
                         : exprs().mod(exprs().div(var(row_var), constant(repeats)), constant(2));
    places_of_arrival += repeats;
  }
  if (threads_x > 1 || kernel.cluster > 1) body.push_back({std::move(c)});
}

// Returns whether threads along Y (ThreadY) share a column and hold one element each.
bool Builder::across_rows() const {
  for (const Loop& l : loops())
    if (l.bind == Bind::ThreadY) return l.dim == R;
  return false;
}

namespace {

// Partial results of all blocks of a tile, in a workspace.
struct GridPartials {
  Builder& b;
  const std::vector<ValueId>& reduced;
  bool by_columns = b.across_rows();
  // elements of a tile, and elements per thread
  int64_t per_tile = by_columns ? int64_t{b.threads_x} * b.vector : b.threads_y;
  int per_lane = by_columns ? b.vector : 1;
  Expr padded = b.exprs().mul(b.tiles_along_k(), b.constant(per_tile));
  std::vector<int> buffers = {};  // by reduction

  const Reduced& reduction(ValueId v) const { return std::get<Reduced>(b.values()[v].how); }

  void allocate() {
    for (ValueId v : reduced)
      buffers.push_back(b.new_scratch(text("g_partial", buffers.size()), Buffer::Kind::Workspace,
                                      reduction(v).compute, b.exprs().mul(padded, b.splits),
                                      State{reduction(v).op}));
  }

  // Returns the position of a partial result in the workspace: the splits of one element are
  // adjacent, or (columns) the elements of one split.
  Expr at(Expr which) const {
    Exprs& x = b.exprs();
    Expr within = by_columns ? x.mul(b.x, b.constant(b.vector)) : b.y;
    Expr e = x.add(x.mul(b.tile, b.constant(per_tile)), within);
    return by_columns ? x.add(x.mul(which, padded), e) : x.add(x.mul(e, b.splits), which);
  }

  void write(Body& body) const {
    Expr owner = b.exprs().apply(Op::eq, {by_columns ? b.y : b.x, b.constant(0)});
    if ((by_columns ? b.threads_y : b.threads_x) == 1) owner = nullptr;
    for (size_t i = 0; i < reduced.size(); ++i)
      body.push_back({Write{.array = b.state_of[reduced[i]],
                            .element = b.constant(0),
                            .width = per_lane,
                            .buffer = buffers[i],
                            .offset = at(b.split),
                            .in = owner}});
  }

  // Merges the partial results of all splits, a fraction per thread. Several loads are in flight at
  // once; loads past the end yield identities.
  void merge(Body& body) const {
    const int ahead_var = b.new_var();
    int fields = 0;
    for (ValueId v : reduced) fields += row(reduction(v).op).results();
    // loads in flight, limited by registers
    const int ahead = std::clamp(32 / (per_lane * fields), 2, 8);
    std::vector<int> read;
    for (ValueId v : reduced) {
      body.push_back({InitState{b.state_of[v]}});
      read.push_back(b.new_array(text("r_partial", read.size()), reduction(v).compute,
                                 ahead * per_lane, State{reduction(v).op}));
    }
    const int step = b.new_var();
    const int width = by_columns ? b.threads_y : b.threads_x;
    Exprs& x = b.exprs();
    Expr turn = x.add(x.mul(b.var(step), b.constant(ahead)), b.var(ahead_var));
    Expr which = x.add(x.mul(turn, b.constant(width)), by_columns ? b.y : b.x);
    Serial loop{.var = step,
                .extent = b.ceil_div(b.splits, b.constant(int64_t{width} * ahead)),
                .body = {}};
    for (int array : read) loop.body.push_back({InitState{array}});
    loop.body.push_back({loads(read, which, {.var = ahead_var, .extent = ahead, .body = {}})});
    loop.body.push_back({merges(read, {.var = ahead_var, .extent = ahead, .body = {}})});
    body.push_back({std::move(loop)});
  }

  Expr place(int ahead_var, Expr lane) const {
    Expr first = b.exprs().mul(b.var(ahead_var), b.constant(per_lane));
    return per_lane > 1 ? b.exprs().add(first, lane) : first;
  }

  For loads(const std::vector<int>& read, Expr which, For each) const {
    for (size_t i = 0; i < reduced.size(); ++i)
      each.body.push_back({Load{.array = read[i],
                                .element = place(each.var, b.constant(0)),
                                .width = per_lane,
                                .buffer = buffers[i],
                                .offset = at(which),
                                .in = b.less(which, b.splits)}});
    return each;
  }

  For merges(const std::vector<int>& read, For each) const {
    const auto merge = [&](Body& to, Expr lane) {
      for (size_t i = 0; i < reduced.size(); ++i)
        to.push_back({Merge{.array = b.state_of[reduced[i]],
                            .element = lane,
                            .other = read[i],
                            .other_element = place(each.var, lane)}});
    };
    if (per_lane == 1) {
      merge(each.body, b.constant(0));
      return each;
    }
    For all{.var = b.lane_var, .extent = b.vector, .body = {}};
    merge(all.body, b.var(b.lane_var));
    each.body.push_back({std::move(all)});
    return each;
  }
};

}  // namespace

void Builder::last_block(Body& body, const std::vector<ValueId>& reduced, const Known& start) {
  const int counters =
      new_scratch("g_counters", Buffer::Kind::Counters, DType::Int32, tiles_along_k());
  const int flag = new_shared("s_last", DType::Int32, 1);
  GridPartials partials{*this, reduced};
  partials.allocate();
  partials.write(body);
  const int is_last = new_var();
  body.push_back({IsLastBlock{
      .var = is_last, .counters = counters, .index = tile, .count = splits, .slot = flag}});
  If then{.condition = exprs().symbol(Symbol::Var, is_last, 0, DType::Bool), .uniform = true};
  partials.merge(then.body);
  combine_states(then.body, reduced);
  Known known = start;
  between_loops(then.body, 1, known);
  store_kept(then.body, known);
  body.push_back({std::move(then)});
}

// Combines states without folding lanes first: the entries are merged already.
void Builder::combine_states(Body& body, const std::vector<ValueId>& reduced) {
  Body all;
  combine(all, reduced, nullptr);
  for (Stmt& s : all)
    if (!std::holds_alternative<ThreadReduce>(s.node)) body.push_back(std::move(s));
}

Expr Builder::tiles_along_k() {
  for (const Loop& l : loops())
    if (l.bind == Bind::Grid && l.dim == K) return tiles_of(K);
  return constant(1);
}

// Stores outputs over K alone: one thread of each row or column stores.
void Builder::store_kept(Body& body, const Known& known) {
  std::vector<int> stores;
  for (int i : stores_over(true, false))
    if (!is_finish_store(i)) stores.push_back(i);
  if (stores.empty()) return;
  for (int i : stores)
    if (output_of[i] < 0)
      output_of[i] = new_array(name_of("r", i), problem.accesses[i].dtype,
                               in_lanes(axes_of(problem, problem.accesses[i])) ? vector : 1);
  const bool column = vector > 1 && lane_dim == K;
  if (column) {
    for_lanes(body, known, [&](Body& b, Expr lane, Known& here) {
      for (int i : stores)
        if (in_lanes(axes_of(problem, problem.accesses[i]))) assign_output(b, i, lane, here);
    });
  }
  for (int i : stores)
    if (!column || !in_lanes(axes_of(problem, problem.accesses[i])))
      assign_output(body, i, constant(0), known);
  for (int i : stores) {
    const bool by_columns = across_rows();
    Expr owner = nullptr;
    if (by_columns ? threads_y > 1 : threads_x > 1)
      owner = exprs().apply(Op::eq, {by_columns ? y : x, constant(0)});
    if (rank) owner = both(owner, exprs().apply(Op::eq, {rank, constant(0)}));
    if (!over(axes_of(problem, problem.accesses[i]), K) && !by_columns && threads_y > 1)
      owner = both(owner, exprs().apply(Op::eq, {y, constant(0)}));
    store(body, i, known, owner);
  }
}

// Writes the partial results of a block's columns, by reduction: [block along K][column].
std::vector<int> Builder::write_columns(const std::vector<ValueId>& reduced) {
  Body& body = kernel.body;
  if (threads_y > 1) {
    BlockReduceColumns c{.threads_y = threads_y, .threads_x = threads_x};
    for (ValueId v : reduced) {
      const auto& r = std::get<Reduced>(values()[v].how);
      // A tile leaves little shared memory, so reductions of one kind use one set of slots in
      // sequence.
      for (size_t i = 0; has_tile() && reduced[i] != v; ++i) {
        const auto& before = std::get<Reduced>(values()[reduced[i]].how);
        if (before.op == r.op && before.compute == r.compute) slots_of[v] = slots_of[reduced[i]];
      }
      if (slots_of[v] >= 0) {
        body.push_back({c});
        body.push_back({Barrier{}});
        c.arrays.clear(), c.slots.clear();
      } else {
        slots_of[v] = new_shared(text("s_", row(r.op).name, slot_index++), r.compute,
                                 unroll * vector * schedule.launch.threads, State{r.op});
      }
      c.arrays.push_back(state_of[v]);
      c.slots.push_back(slots_of[v]);
    }
    body.push_back({std::move(c)});
  }
  std::vector<int> partials;
  // Lanes along R are whole vectors: they exist together and are stored together.
  Body writes;
  Expr start = exprs().mul(tile, extents[R]);
  Expr in = exists(axes_of_dim[R], nullptr);
  if (threads_y > 1) in = both(exprs().apply(Op::eq, {y, constant(0)}), in);
  for (ValueId v : reduced) {
    const auto& r = std::get<Reduced>(values()[v].how);
    partials.push_back(new_scratch(text("g_partial", partials.size()), Buffer::Kind::Workspace,
                                   r.compute, exprs().mul(extents[R], tiles), State{r.op}));
    writes.push_back({Write{.array = state_of[v],
                            .element = element(constant(0), vector),
                            .width = vector,
                            .buffer = partials.back(),
                            .offset = exprs().add(start, index_map[R].index),
                            .in = in}});
  }
  append(body, unrolled(std::move(writes)));
  return partials;
}

// Merges the partial results of all blocks for one column per thread. Threads along Y share a
// column and have several loads in flight. The results are left in `known`.
void Builder::merge_blocks(Body& body, const std::vector<ValueId>& reduced,
                           const std::vector<int>& partials, Expr column, Expr y, Known& known) {
  const int across = columns_per_merge(), height = schedule.launch.threads / across;
  const int ahead = std::clamp(20 / static_cast<int>(reduced.size()), 1, 10);
  const int step = new_var(), ahead_var = new_var();
  Serial loop{.var = step,
              .extent = ceil_div(tiles, constant(int64_t{height} * ahead)),
              .unroll = 1,
              .body = {}};
  Expr first = exprs().add(exprs().mul(var(step), constant(ahead)), var(ahead_var));
  Expr which = exprs().add(exprs().mul(first, constant(height)), y);
  For loads{.var = ahead_var, .extent = ahead, .body = {}};
  For merges{.var = ahead_var, .extent = ahead, .body = {}};
  // One condition covers all loads, because each condition is a branch.
  If there{.condition = both(less(column, extents[R]), less(which, tiles)), .body = {}};
  // Reductions of one kind are adjacent in one array, so that one statement combines them.
  std::vector<int> totals;
  for (size_t i = 0; i < reduced.size(); ++i) {
    const auto& r = std::get<Reduced>(values()[reduced[i]].how);
    auto total = std::find_if(totals.begin(), totals.end(), [&](int t) {
      return kernel.arrays[t].state == State{r.op} && kernel.arrays[t].dtype == r.compute;
    });
    if (total == totals.end()) {
      totals.push_back(new_array(text("r_total", totals.size()), r.compute, 0, State{r.op}));
      total = totals.end() - 1;
    }
    Expr place = constant(kernel.arrays[*total].extent++);
    known[reduced[i]] = exprs().element(*total, place, result_dtype(r.op, r.compute, 0), 0);
    const int read = new_array(text("r_partial", i), r.compute, ahead, State{r.op});
    loop.body.push_back({InitState{read}});
    there.body.push_back({Load{.array = read,
                               .element = var(ahead_var),
                               .width = 1,
                               .buffer = partials[i],
                               .offset = exprs().add(exprs().mul(which, extents[R]), column)}});
    merges.body.push_back(
        {Merge{.array = *total, .element = place, .other = read, .other_element = var(ahead_var)}});
  }
  for (int total : totals) body.push_back({InitState{total}});
  loads.body.push_back({std::move(there)});
  loop.body.push_back({std::move(loads)});
  loop.body.push_back({std::move(merges)});
  body.push_back({std::move(loop)});
  if (height == 1) return;
  BlockReduceColumns c{.threads_y = height, .threads_x = across};
  for (int total : totals) {
    const Array& a = kernel.arrays[total];
    c.arrays.push_back(total);
    c.slots.push_back(new_shared(text("s_", row(a.state->op).name, slot_index++), a.dtype,
                                 schedule.launch.threads * a.extent, a.state));
  }
  body.push_back({std::move(c)});
}

// Computes and stores the values that depend on the columns' results, one column per thread. The
// first thread along Y stores.
void Builder::store_columns(Body& body, Expr column, Expr owner, Known& known) {
  std::vector<LinearAxes> columns_map = index_map;
  columns_map[R].index = column;
  columns_map[R].vector = false;
  const auto place = [&](Expr e) { return address(exprs(), columns_map, e, nullptr); };
  std::vector<int> stores;
  std::vector<ValueId> roots;
  for (size_t i = 0; i < problem.accesses.size(); ++i) {
    if (!problem.accesses[i].store || !is_finish_store(static_cast<int>(i))) continue;
    stores.push_back(static_cast<int>(i));
    roots.push_back(stored_value(static_cast<int>(i)));
  }
  Expr in = less(column, extents[R]);
  for (ValueId v : needed(roots, known)) {
    const Value& value = values()[v];
    if (const auto* p = std::get_if<Project>(&value.how)) {
      const auto& r = std::get<Reduced>(values()[p->reduced].how);
      Expr whole = known[p->reduced];
      known[v] = exprs().element(whole->a, whole->args[0], result_dtype(r.op, r.compute, p->result),
                                 p->result);
    } else if (access_of[v] >= 0) {
      const MemoryAccess& a = problem.accesses[access_of[v]];
      const int array = new_array(text(name_of("r", access_of[v]), "_end"), a.dtype, 1);
      Expr inside = within(kernel, a.in, known);
      inside = both(in, inside ? place(inside) : nullptr);
      check_indices(problem, kernel, body, a, inside, known, place);
      body.push_back({Load{.array = array,
                           .element = constant(0),
                           .width = 1,
                           .buffer = a.buffer,
                           .offset = place(offset_of(kernel, a, known)),
                           .in = inside}});
      known[v] = exprs().element(array, constant(0), a.dtype);
    } else if (const auto* at = std::get_if<Coordinate>(&value.how)) {
      known[v] = coordinate(kernel, body, *at, known, place);
    } else if (const auto* select = std::get_if<Select>(&value.how)) {
      known[v] = selected(kernel, body, *select, value.dtype, known, place);
    } else {
      compute(v, known, body, constant(0));
    }
  }
  for (int i : stores) {
    const MemoryAccess& a = problem.accesses[i];
    const int array = new_array(name_of("r", i), a.dtype, 1);
    body.push_back(
        {Assign{.array = array,
                .element = constant(0),
                .value = exprs().cast(
                    a.dtype, operand(kernel, problem.refined.stores[a.index].access, known))}});
    body.push_back({Write{.array = array,
                          .element = constant(0),
                          .width = 1,
                          .buffer = a.buffer,
                          .offset = place(offset_of(kernel, a, known)),
                          .in = both(owner, in)}});
  }
}

int Builder::columns_per_merge() const {
  for (const Combination& c : schedule.reductions)
    if (c.dim == K) return c.columns;
  FUSER_ASSERT(false, "the schedule has no reduction over K");
}

void Builder::finish_columns() {
  if (!problem.columns) return;
  std::vector<ValueId> reduced;
  for (size_t v = 0; v < values().size(); ++v)
    if (reduces_columns(values()[v])) reduced.push_back(static_cast<ValueId>(v));
  const int barrier = new_scratch("g_barrier", Buffer::Kind::Counters, DType::Int32, constant(3));
  const std::vector<int> partials = write_columns(reduced);
  kernel.body.push_back({SyncGrid{barrier}});

  // Process groups of columns in sequence.
  const int across = columns_per_merge(), group = new_var();
  Expr thread = exprs().symbol(Symbol::Thread, 0), block = exprs().symbol(Symbol::Block, 0);
  Expr fx = index_let(exprs().mod(thread, constant(across)));
  Expr fy = index_let(exprs().div(thread, constant(across)));
  Expr mine = exprs().add(exprs().mul(var(group), kernel.blocks), block);
  Expr column = exprs().add(exprs().mul(mine, constant(across)), fx);
  Expr groups = exprs().ceil_div(extents[R], across);
  Serial loop{.var = group, .extent = ceil_div(groups, kernel.blocks), .unroll = 1, .body = {}};
  Known known(values().size(), nullptr);
  merge_blocks(loop.body, reduced, partials, column, fy, known);
  Expr owner = exprs().apply(Op::eq, {fy, constant(0)});
  store_columns(loop.body, column, schedule.launch.threads > across ? owner : nullptr, known);
  loop.body.push_back({Barrier{}});
  kernel.body.push_back({std::move(loop)});
}

}  // namespace fuser::lower::reduction
