// Combination of partial results over threads, clusters and the blocks that share a row. The last
// block of a tile finishes in a fixed order. See reduction.cpp.
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

void Builder::combine_threads(Phase& phase) {
  if (phase.index == phases.count) return;
  // Slots are reused one iteration later with a single barrier in between, so they alternate.
  const bool alternate = row_var >= 0 && phases.count == 1 && !packed;
  Expr parity = alternate ? exprs().mod(var(row_var), constant(2)) : nullptr;
  combine(phase.body, row_reductions_of(phase.index), parity);
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
  Phase behind{.index = 1, .body = then.body, .known = known};
  between_loops(behind);
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

void Builder::combine_blocks(Phase& phase) {
  if (!splits || phase.index == phases.count) return;
  FUSER_ASSERT(phases.count == 1, "a grid reduction must be the last phase");
  last_block(phase.body, row_reductions_of(phase.index), phase.known);
}

}  // namespace fuser::lower::reduction
