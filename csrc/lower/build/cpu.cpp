// CPU kernels. The block of a CPU kernel is a task, and the threads of the block are the lanes of a
// vector: one statement is one vector operation (codegen/cpp.cpp). No statement synchronizes lanes
// except a reduction over them.
//
// A task computes a range of rows. A row is one index of O. Lanes run along L. If L is kept, then
// each lane is a point of its own, and the loop over S inside it reduces. If L is reduced, then a
// row has one loop over S and L per phase, and the lanes are merged at its end. Without reductions,
// S has rows inside each vector, or S and L are the two sides of tiles (cpu_tiles.cpp).
#include "base/error.h"
#include "lower/build/cpu_builder.h"

namespace fuser::lower {

using namespace fusion;
using namespace ir;
using namespace schedule;

namespace cpu {

int Builder::new_array(std::string name, DType dtype, std::optional<State> state, int extent) {
  kernel.arrays.push_back(
      {.name = std::move(name), .dtype = dtype, .extent = extent, .state = state});
  return static_cast<int>(kernel.arrays.size()) - 1;
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

Expr Builder::index_let(Body& body, Expr value) {
  if (value->is_constant() || value->kind == ExprNode::Kind::Symbol) return value;
  const int v = kernel.vars++;
  body.push_back({Let{.var = v, .value = value, .index = true}});
  return var(v);
}

Expr Builder::ceil_div(Expr a, Expr b) {
  if (b->is_constant()) return exprs().ceil_div(a, b->value.integer);
  return exprs().div(exprs().add(a, exprs().sub(b, constant(1))), b);
}

void Builder::loop(Body& out, Expr count, const Make& make) {
  if (count->is_constant(1)) return make(out, constant(0));
  ir::Serial s{.var = kernel.vars++, .extent = count, .body = {}};
  make(s.body, var(s.var));
  out.push_back({std::move(s)});
}

void Builder::take_schedule() {
  for (int d = 0; d < dims; ++d) {
    LinearAxes linear{.axes = schedule.dims[d].axes};
    shares[d].extent = constant(1);
    for (AxisId a : linear.axes) {
      axes[d] |= AxisSet{1} << a;
      linear.extents.push_back(import(kernel, problem.refined.axes[a].extent));
      shares[d].extent = exprs().mul(shares[d].extent, linear.extents.back());
    }
    linear.index = constant(0);
    index_map.push_back(std::move(linear));
  }
  lanes_reduced = is_per_element(axes[L]);
  const std::optional<CpuLoops> loops = cpu_loops(schedule.nests[0]);
  FUSER_ASSERT(loops, "verify_cpu() accepted loops in another order");
  lanes = static_cast<int>(loops->lanes->extent);
  if (loops->block) block_rows = static_cast<int>(loops->block->extent);
  for (DimId d = 0; d < dims; ++d) {
    const auto [grid, task] = loops->tasks[d];
    if (!grid) continue;
    const Expr count =
        task->elements ? indices_of_task(*task, grid->extent) : constant(task->extent);
    shares[d].each = exprs().mul(count, constant(d == L ? lanes : 1));
  }
  kernel.threads = lanes;
}

// Returns the number of indices of a dim in a task that has as many elements as the loop says. At
// most `most_tasks` tasks divide the dim (0: any number). A column adds its blocks in sequence, so
// their number is limited too.
Expr Builder::indices_of_task(const Loop& loop, int64_t most_tasks) {
  const auto larger = [&](Expr a, Expr b) { return exprs().apply(Op::maximum, {a, b}); };
  const Share& s = shares[S];
  Expr each = constant(1);
  if (loop.dim != L) each = shares[L].extent;
  if (loop.dim == O) each = exprs().mul(s.extent, each);
  if (loop.dim == L)
    each = exprs().mul(s.each ? exprs().apply(Op::minimum, {s.each, s.extent}) : s.extent,
                       constant(lanes));
  Expr count = larger(exprs().div(constant(loop.elements), each), constant(1));
  if (most_tasks) count = larger(ceil_div(shares[loop.dim].extent, constant(most_tasks)), count);
  if (block_rows && loop.dim == S)
    count = exprs().apply(Op::minimum, {count, constant(int64_t{most_in_sequence} * block_rows)});
  return count;
}

// Divides the grid among the dims that have several tasks; the innermost dim varies fastest.
void Builder::place_task() {
  Expr task = exprs().symbol(Symbol::Block, 0);
  kernel.blocks = constant(1);
  int left = 0;
  for (const Share& s : shares) left += s.each != nullptr;
  for (int d : {S, L, O}) {
    Share& s = shares[d];
    s.first = constant(0);
    s.size = s.extent;
    s.tasks = constant(1);
    s.task = constant(0);
    if (!s.each) continue;
    s.tasks = ceil_div(s.extent, s.each);
    // A reduction over no elements has a result.
    if (axes[d] & (problem.reduced | problem.columns))
      s.tasks = exprs().apply(Op::maximum, {s.tasks, constant(1)});
    kernel.blocks = exprs().mul(kernel.blocks, s.tasks);
    s.task = --left ? index_let(kernel.body, exprs().mod(task, s.tasks)) : task;
    if (left) task = index_let(kernel.body, exprs().div(task, s.tasks));
    s.first = index_let(kernel.body, exprs().mul(s.task, s.each));
    s.size = index_let(kernel.body,
                       exprs().apply(Op::minimum, {s.each, exprs().sub(s.extent, s.first)}));
  }
}

void Builder::analyse() {
  phases = reduction_phases(problem);
  access_of.assign(values().size(), -1);
  std::vector<int> accesses_of_buffer(kernel.buffers.size(), 0);
  for (size_t i = 0; i < problem.accesses.size(); ++i) {
    const MemoryAccess& a = problem.accesses[i];
    if (!a.store) access_of[a.index] = static_cast<int>(i);
    const std::string& buffer = kernel.buffers[a.buffer].name;
    const int earlier = accesses_of_buffer[a.buffer]++;
    array_of_access.push_back(
        new_array(text("r", buffer.substr(1), earlier ? text("_", earlier) : ""), a.dtype, {},
                  is_tiled(static_cast<int>(i)) ? lanes : 1));
  }
  find_products();
  make_states();
  declare_columns();
}

void Builder::emit(Body& body, ValueId v, Known& known) {
  const Value& value = values()[v];
  const auto placed = [&](Expr e) { return place(e); };
  known[v] = computed(problem, kernel, body, v, known, placed);
  if (known[v]) return;
  const int i = access_of[v];
  if (i < 0) {
    // A value without a memory access is a CPU tensor of no dims, passed by value.
    known[v] = exprs().symbol(Symbol::Value, std::get<Input>(value.tensor->definition).index, 0,
                              value.dtype);
    return;
  }
  const MemoryAccess& a = problem.accesses[i];
  const bool of_lanes = ((value.axes | axes_of(problem, a)) & axes[L]) != 0;
  const Expr in = place(within(kernel, a.in, known));
  const Expr count = rest && of_lanes ? exprs().sub(rest, lane()) : nullptr;
  if (is_loaded(a)) {
    const Expr exists = count ? exprs().apply(Op::lt, {constant(0), count}) : nullptr;
    check_indices(problem, kernel, body, a, both(exprs(), exists, in), known, placed);
  }
  body.push_back({Load{.array = array_of_access[i],
                       .element = constant(0),
                       .buffer = a.buffer,
                       .offset = place(offset_of(kernel, a, known)),
                       .in = in,
                       .count = count}});
  known[v] = exprs().element(array_of_access[i], constant(0), a.dtype);
}

void Builder::emit_kept(Body& body, int phase, Known& known,
                        const std::function<bool(AxisSet)>& here) {
  for (size_t v = 0; v < values().size(); ++v) {
    const Value& value = values()[v];
    if (is_per_element(value.axes) || known[v] || phases.phase[v] != phase || !here(value.axes))
      continue;
    if (const auto* p = std::get_if<Project>(&value.how)) {
      known[v] = exprs().element(states[p->reduced].back(), constant(0), value.dtype, p->result);
      continue;
    }
    if (!std::holds_alternative<Reduced>(value.how)) emit(body, static_cast<ValueId>(v), known);
  }
}

// Stores at the first coordinate of each enclosing axis that the store does not vary over.
void Builder::store(Body& body, int access, const Known& known) {
  const MemoryAccess& a = problem.accesses[access];
  const AxisSet mine = axes_of(problem, a);
  Expr once = nullptr, in = nullptr;
  const auto first = [&](Expr index) {
    return index->is_constant(0) ? nullptr : exprs().apply(Op::eq, {index, constant(0)});
  };
  const AxisSet around = kept() | (is_per_element(mine) ? problem.reduced : 0);
  for (int d = 0; d < dims; ++d) {
    if (!(axes[d] & around & ~mine)) continue;
    if (!(axes[d] & mine)) {
      once = both(exprs(), once, first(d == L ? lane_base : index_map[d].index));
      continue;
    }
    for (AxisId x : schedule.dims[d].axes)
      if (!(mine >> x & 1))
        (d == L ? in : once) =
            both(exprs(), d == L ? in : once, first(place(exprs().symbol(Symbol::Axis, x))));
  }
  Body stores;
  const int array = array_of_access[access];
  const Expr value =
      exprs().cast(a.dtype, operand(kernel, problem.refined.stores[a.index].access, known));
  if (is_tiled(access)) {
    body.push_back({Assign{.array = array, .element = tile_index, .value = value}});
    return;
  }
  stores.push_back({Assign{.array = array, .element = constant(0), .value = value}});
  const bool of_lanes = (mine & axes[L]) != 0;
  stores.push_back({Write{.array = array,
                          .element = constant(0),
                          .buffer = a.buffer,
                          .offset = place(offset_of(kernel, a, known)),
                          .in = in,
                          .count = rest && of_lanes ? exprs().sub(rest, lane()) : nullptr,
                          .cache = schedule.accesses[access].cache}});
  if (once)
    body.push_back({If{.condition = once, .uniform = true, .body = std::move(stores)}});
  else
    std::move(stores.begin(), stores.end(), std::back_inserter(body));
}

void Builder::kept_stores(Body& body, const Known& known) {
  for (size_t i = 0; i < problem.accesses.size(); ++i)
    if (const MemoryAccess& a = problem.accesses[i];
        a.store && !is_per_element(axes_of(problem, a)))
      store(body, static_cast<int>(i), known);
}

void Builder::vectors(Body& body,
                      const std::function<void(Body&, Expr count, const Make&)>& iterate,
                      const std::function<void(Body&)>& one,
                      const std::function<void(Body&)>& last) {
  const Share& l = shares[L];
  const Expr full = index_let(body, exprs().div(l.size, constant(lanes)));
  const auto step = [&](Body& b, Expr i) {
    lane_base = index_let(b, exprs().add(l.first, exprs().mul(i, constant(lanes))));
    index_map[L].index = exprs().add(lane_base, lane());
  };
  iterate(body, full, [&](Body& b, Expr i) {
    step(b, i);
    one(b);
  });
  const Expr remaining = index_let(body, exprs().mod(l.size, constant(lanes)));
  if (remaining->is_constant(0)) return;
  If tail{
      .condition = exprs().apply(Op::lt, {constant(0), remaining}), .uniform = true, .body = {}};
  step(tail.body, full);
  rest = remaining;
  last(tail.body);
  rest = nullptr;
  body.push_back({std::move(tail)});
}

void Builder::each_row(Body& body, const Known& before) {
  Known known = before;
  emit_kept(body, 0, known,
            [&](AxisSet of) { return lanes_reduced || !(of & (axes[L] | axes[S])); });
  if (lanes_reduced) {
    reduce(body, known);
    return;
  }
  if (block_rows) return reduce_columns(body, known);
  if (!schedule.stagings.empty()) return tile_rows(body, known);
  if (axes[S] & ~problem.reduced) return rows_of_vectors(body, known);
  const auto one = [&](Body& b) { point(b, known); };
  const auto iterate = [&](Body& b, Expr count, const Make& make) { loop(b, count, make); };
  vectors(body, iterate, one, one);
}

// Appends a loop over the rows of S in each vector. Values that vary along the lanes alone are
// computed once per vector.
void Builder::rows_of_vectors(Body& body, const Known& known) {
  const auto rows = [&](Body& b) {
    Known of_vector = known;
    emit_kept(b, 0, of_vector, [&](AxisSet of) { return !(of & axes[S]); });
    loop(b, shares[S].size, [&](Body& inner, Expr i) {
      index_map[S].index = index_let(inner, exprs().add(shares[S].first, i));
      point(inner, of_vector);
    });
  };
  const auto iterate = [&](Body& b, Expr count, const Make& make) { loop(b, count, make); };
  vectors(body, iterate, rows, rows);
}

void Builder::point(Body& body, Known known) {
  emit_kept(body, 0, known, [](AxisSet) { return true; });
  reduce(body, known);
}

void Builder::declare_memory() { declare_buffers(problem, kernel); }

void Builder::emit_outside() {
  outside.assign(values().size(), nullptr);
  emit_kept(kernel.body, 0, outside, [&](AxisSet of) { return !(of & kept()); });
}

void Builder::emit_rows() {
  const Share& o = shares[O];
  loop(kernel.body, o.size, [&](Body& b, Expr i) {
    index_map[O].index = index_let(b, exprs().add(o.first, i));
    each_row(b, outside);
  });
}

namespace {

// The kernel.
constexpr Step<Builder> kernel_steps[] = {
    {"memory", &Builder::declare_memory, "a legal schedule of a CPU",
     "declares the memory of the problem", "Kernel IR without arrays and statements"},
    {"schedule", &Builder::take_schedule, "as after memory",
     "takes axes, lanes and elements per task from the loops", "dims, and shares without a place"},
    {"task", &Builder::place_task, "as after schedule",
     "divides the grid among the dims that several tasks share", "the range of a task in each dim"},
    {"analysis", &Builder::analyse, "the dims",
     "finds the phase of each value, and declares an array per access and reduction",
     "phases, products that sums take in unrounded, arrays of partial results"},
    {"values of the task", &Builder::emit_outside, "the arrays of accesses",
     "computes the values that vary over no kept axis", "these values are known in all rows"},
    {"columns", &Builder::init_columns, "reductions over kept axes",
     "initializes the partial results of the task", "partial results of no rows"},
    {"rows", &Builder::emit_rows, "all memory of the kernel is declared",
     "emits the loop over the rows of a task; phase_steps make each phase of a row or of a point",
     "outputs over rows are stored; partial results of the columns"},
    {"merge", &Builder::finish_columns, "partial results of the columns by task",
     "merges them in the order of the tasks, by the last one", "outputs over columns are stored"},
};

}  // namespace

}  // namespace cpu

KernelIR build_cpu(const Problem& problem, const Schedule& schedule, bool index64) {
  cpu::Builder b{.problem = problem, .schedule = schedule};
  b.kernel.index64 = index64;
  run_steps(b, cpu::kernel_steps);
  return std::move(b.kernel);
}

}  // namespace fuser::lower
