// Reductions of columns by CPU kernels. A task takes a range of the reduced rows and a range of
// columns. It goes through the rows in blocks: a block is reduced in registers, vector by vector,
// and merged into the task's partial results in memory. So memory is read row by row. The last task
// of a range of columns merges the partial results of all tasks in order. See cpu.cpp.
#include "base/error.h"
#include "lower/build/cpu_builder.h"

namespace fuser::lower::cpu {

using namespace fusion;
using namespace ir;

int Builder::scratch(std::string name, Buffer::Kind kind, DType dtype, Expr elements,
                     std::optional<State> state) {
  for (size_t b = 0; b < kernel.buffers.size(); ++b)
    if (kernel.buffers[b].name == name) return static_cast<int>(b);
  return new_scratch(std::move(name), kind, dtype, elements, state);
}

Expr Builder::is_last_task(Body& body, Expr groups, Expr group, Expr tasks) {
  IsLastBlock last{.var = kernel.vars++, .index = group, .count = tasks};
  last.counters = scratch("g_arrived", Buffer::Kind::Counters, DType::UInt32, groups, {});
  last.slot = scratch("s_last", Buffer::Kind::Shared, DType::Int32, constant(1), {});
  const Expr is_last = var(last.var, DType::Bool);
  body.push_back({std::move(last)});
  return is_last;
}

namespace {

// Partial results of the columns, by reduction.
struct Columns {
  Builder& b;
  std::vector<ValueId> reduced = b.reductions_of(0);
  std::vector<int> buffers = {}, read = {}, total = {};
  Expr padded = nullptr;  // columns, rounded up to complete vectors

  Share& rows() { return b.shares[S]; }

  void allocate() {
    padded =
        b.exprs().mul(b.ceil_div(b.shares[L].extent, b.constant(b.lanes)), b.constant(b.lanes));
    const Expr copies = b.exprs().mul(b.shares[O].extent, rows().tasks);
    for (ValueId v : reduced) {
      const auto& r = std::get<Reduced>(b.values()[v].how);
      buffers.push_back(b.scratch(text("g_partial", v), Buffer::Kind::Workspace, r.compute,
                                  b.exprs().mul(copies, padded), State{r.op}));
      read.push_back(b.new_array(text("r_partial", v), r.compute, State{r.op}));
      total.push_back(b.new_array(text("r_total", v), r.compute, State{r.op}));
    }
  }

  // Offset of the partial result of this column by one of the tasks.
  Expr at(Expr task) {
    const Expr copy = b.exprs().add(b.exprs().mul(b.index_map[O].index, rows().tasks), task);
    return b.exprs().add(b.exprs().mul(copy, padded), b.index_map[L].index);
  }

  void load(Body& body, size_t i, Expr task) {
    body.push_back({Load{
        .array = read[i], .element = b.constant(0), .buffer = buffers[i], .offset = at(task)}});
  }
  void merge(Body& body, int into, int from) {
    body.push_back({Merge{
        .array = into, .element = b.constant(0), .other = from, .other_element = b.constant(0)}});
  }
  void write(Body& body, size_t i, int array) {
    body.push_back({Write{.array = array,
                          .element = b.constant(0),
                          .buffer = buffers[i],
                          .offset = at(rows().task)}});
  }

  // One vector of columns over one block of rows.
  void block(Body& body, Known known, Expr first, Expr count, Expr is_first) {
    b.emit_kept(body, 0, known, [](AxisSet) { return true; });
    const std::vector<int> stores = b.stores_of(0);
    const std::vector<ValueId> needed = b.needed(reduced, stores, known);
    for (ValueId v : reduced) body.push_back({InitState{b.states[v][0]}});
    b.loop(body, count, [&](Body& inner, Expr i) {
      b.index_map[S].index = b.index_let(inner, b.exprs().add(first, i));
      Known all = known;
      for (ValueId v : needed) b.emit(inner, v, all);
      for (ValueId v : reduced) b.accumulate(inner, v, all, 0);
      for (int s : stores) b.store(inner, s, all);
    });
    If begins{.condition = is_first, .uniform = true, .body = {}};
    If goes_on{
        .condition = b.exprs().apply(Op::logical_not, {is_first}), .uniform = true, .body = {}};
    for (size_t i = 0; i < reduced.size(); ++i) {
      write(begins.body, i, b.states[reduced[i]][0]);
      load(goes_on.body, i, rows().task);
      merge(goes_on.body, read[i], b.states[reduced[i]][0]);
      write(goes_on.body, i, read[i]);
    }
    body.push_back({std::move(begins)});
    body.push_back({std::move(goes_on)});
  }

  // Merges the partial results of all tasks, and stores what follows from them.
  void finish(Body& body, const Known& before) {
    Known known = before;
    b.emit_kept(body, 0, known, [](AxisSet) { return true; });
    for (int array : total) body.push_back({InitState{array}});
    b.loop(body, rows().tasks, [&](Body& inner, Expr task) {
      for (size_t i = 0; i < reduced.size(); ++i) {
        load(inner, i, task);
        merge(inner, total[i], read[i]);
      }
    });
    b.take_results(body, reduced, total, known);
    b.emit_kept(body, 1, known, [](AxisSet) { return true; });
    b.kept_stores(body, known);
  }
};

}  // namespace

void Builder::reduce_columns(Body& body, const Known& known) {
  Columns c{.b = *this};
  c.allocate();
  const Share &s = shares[S], &l = shares[L];
  const auto each = [&](Body& out, const std::function<void(Body&)>& one) {
    vectors(
        out, [&](Body& b, Expr count, const Make& make) { loop(b, count, make); }, one, one);
  };
  const Expr rows = constant(block_rows);
  // A block of no rows makes the identity.
  const Expr blocks = exprs().apply(Op::maximum, {ceil_div(s.size, rows), constant(1)});
  loop(body, blocks, [&](Body& b, Expr block) {
    const Expr first = index_let(b, exprs().mul(block, rows));
    const Expr count = index_let(b, exprs().apply(Op::minimum, {rows, exprs().sub(s.size, first)}));
    const Expr is_first = exprs().apply(Op::eq, {first, constant(0)});
    each(b, [&](Body& one) { c.block(one, known, exprs().add(s.first, first), count, is_first); });
  });
  if (s.tasks->is_constant(1)) return each(body, [&](Body& one) { c.finish(one, known); });
  const Expr groups = exprs().mul(shares[O].extent, l.tasks);
  const Expr group = exprs().add(exprs().mul(index_map[O].index, l.tasks), l.task);
  If last{.condition = is_last_task(body, groups, group, s.tasks), .uniform = true, .body = {}};
  each(last.body, [&](Body& one) { c.finish(one, known); });
  body.push_back({std::move(last)});
}

}  // namespace fuser::lower::cpu
