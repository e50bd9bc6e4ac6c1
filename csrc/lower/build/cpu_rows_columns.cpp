// CPU kernels that reduce rows and columns (norm backward). A task takes a block of rows. Its loops
// over a row reduce the row, and accumulate each element into the task's partial results of all
// columns, which stay in cache. The last task merges the partial results of all tasks in order, and
// stores what follows from them. See cpu.cpp.
#include "base/error.h"
#include "lower/build/cpu_builder.h"

namespace fuser::lower::cpu {

using namespace fusion;
using namespace ir;

bool Builder::reduces_columns(ValueId v) const {
  const auto* r = std::get_if<Reduced>(&values()[v].how);
  return r && problem.columns && r->over == problem.columns;
}

std::vector<ValueId> Builder::columns_of(int phase) const {
  std::vector<ValueId> out;
  for (size_t v = 0; v < values().size(); ++v)
    if (reduces_columns(static_cast<ValueId>(v)) && phases.phase[v] == phase)
      out.push_back(static_cast<ValueId>(v));
  return out;
}

bool Builder::stores_columns(int access) const {
  const MemoryAccess& a = problem.accesses[access];
  const ValueId v = a.store ? problem.refined.stores[a.index].access.value : -1;
  return v >= 0 && waits_for_columns[v];
}

void Builder::declare_columns() {
  waits_for_columns.assign(values().size(), false);
  column_buffers.assign(values().size(), -1);
  padded = exprs().mul(ceil_div(shares[L].extent, constant(lanes)), constant(lanes));
  const Expr columns = exprs().mul(shares[S].extent, padded);
  for (size_t i = 0; i < values().size(); ++i) {
    const auto v = static_cast<ValueId>(i);
    visit_operands(values()[v], [&](ValueId o) {
      if (waits_for_columns[o]) waits_for_columns[v] = true;
    });
    if (!reduces_columns(v)) continue;
    waits_for_columns[v] = true;
    const auto& r = std::get<Reduced>(values()[v].how);
    column_buffers[v] = scratch(text("g_partial", v), Buffer::Kind::Workspace, r.compute,
                                exprs().mul(shares[O].tasks, columns), State{r.op});
  }
}

// Returns the offset of the partial result of this column by a task.
Expr Builder::column_of(Expr task) {
  const Expr row = exprs().add(exprs().mul(task, shares[S].extent), index_map[S].index);
  return exprs().add(exprs().mul(row, padded), index_map[L].index);
}

void Builder::each_column(Body& body, const std::function<void(Body&)>& one) {
  const auto iterate = [&](Body& b, Expr count, const Make& make) { loop(b, count, make); };
  if (!axes[S]) return vectors(body, iterate, one, one);
  loop(body, shares[S].size, [&](Body& b, Expr i) {
    index_map[S].index = i;
    vectors(b, iterate, one, one);
  });
}

void Builder::move_column(Body& body, ValueId v, int array, bool store, Expr task) {
  const Expr zero = constant(0), at = column_of(task);
  if (store)
    body.push_back(
        {Write{.array = array, .element = zero, .buffer = column_buffers[v], .offset = at}});
  else
    body.push_back(
        {Load{.array = array, .element = zero, .buffer = column_buffers[v], .offset = at}});
}

void Builder::init_columns() {
  if (!problem.columns) return;
  each_column(kernel.body, [&](Body& b) {
    for (size_t i = 0; i < values().size(); ++i) {
      if (column_buffers[i] < 0) continue;
      b.push_back({InitState{states[i][0]}});
      move_column(b, static_cast<ValueId>(i), states[i][0], true, shares[O].task);
    }
  });
}

void Builder::accumulate_columns(Body& body, const std::vector<ValueId>& columns,
                                 const Known& known) {
  for (ValueId v : columns) {
    move_column(body, v, states[v][0], false, shares[O].task);
    accumulate(body, v, known, 0);
    move_column(body, v, states[v][0], true, shares[O].task);
  }
}

void Builder::finish_columns() {
  if (!problem.columns) return;
  std::vector<ValueId> reduced;
  std::vector<int> total, stores;
  for (size_t i = 0; i < values().size(); ++i) {
    if (column_buffers[i] < 0) continue;
    const auto& r = std::get<Reduced>(values()[i].how);
    reduced.push_back(static_cast<ValueId>(i));
    total.push_back(new_array(text("r_total", i), r.compute, State{r.op}));
  }
  for (int i = 0; i < static_cast<int>(problem.accesses.size()); ++i)
    if (stores_columns(i)) stores.push_back(i);
  const Expr tasks = shares[O].tasks;
  index_map[O].index = constant(0);
  If last{.condition = is_last_task(kernel.body, constant(1), constant(0), tasks),
          .uniform = true,
          .body = {}};
  each_column(last.body, [&](Body& b) {
    Known known = outside;
    for (int array : total) b.push_back({InitState{array}});
    loop(b, tasks, [&](Body& inner, Expr task) {
      for (size_t i = 0; i < reduced.size(); ++i) {
        const int one = states[reduced[i]][0];
        move_column(inner, reduced[i], one, false, task);
        inner.push_back({Merge{.array = total[i],
                               .element = constant(0),
                               .other = one,
                               .other_element = constant(0)}});
      }
    });
    take_results(b, reduced, total, known);
    for (ValueId v : needed({}, stores, known)) emit(b, v, known);
    for (int i : stores) store(b, i, known);
  });
  kernel.body.push_back({std::move(last)});
}

}  // namespace fuser::lower::cpu
