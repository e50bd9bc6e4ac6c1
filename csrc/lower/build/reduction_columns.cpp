// Reductions over K: each block has partial results of its columns. After a grid barrier, all
// blocks merge them in a fixed order and store what depends on them. See reduction.cpp.
#include <algorithm>

#include "base/error.h"
#include "lower/build/reduction_builder.h"

namespace fuser::lower::reduction {

using namespace fusion;
using namespace ir;
using namespace schedule;

void Builder::init_columns() {
  for (size_t v = 0; v < values().size(); ++v)
    if (reduces_columns(values()[v])) kernel.body.push_back({InitState{state_of[v]}});
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
