// Values over K between the reduction loops, and the values of a reduction loop: reads, computation
// in each phase, accumulation and stores. See reduction.cpp.
#include <algorithm>

#include "base/error.h"
#include "lower/build/reduction_builder.h"

namespace fuser::lower::reduction {

using namespace fusion;
using namespace ir;
using namespace schedule;

std::string Builder::name_of(const char* prefix, int access) {
  const MemoryAccess& a = problem.accesses[access];
  int earlier = 0;
  for (int i = 0; i < access; ++i) earlier += problem.accesses[i].buffer == a.buffer;
  return text(prefix, kernel.buffers[a.buffer].name.substr(1), earlier ? text("_", earlier) : "");
}

// Returns the array of a read value's elements: of one step, or of all unrolled steps.
int Builder::plain_array(int access, bool all_steps) {
  int& array = elements_of[access];
  if (array < 0) {
    const AxisSet axes = axes_of(problem, problem.accesses[access]);
    const int per_step = in_lanes(axes) ? vector : 1;
    array = new_array(name_of(all_exist    ? "w"
                              : at_edges() ? "e"
                                           : "r",
                              access),
                      problem.accesses[access].dtype, all_steps ? per_step * unroll : per_step);
  }
  return array;
}

// Loads the lanes of one step into the access's array of elements.
void Builder::load_step(Body& body, int access, const Known& known, bool all_steps) {
  const MemoryAccess& a = problem.accesses[access];
  const AxisSet axes = axes_of(problem, a);
  const int array = plain_array(access, all_steps);
  const bool lanewise = in_lanes(axes);
  const int per_step = all_steps ? (lanewise ? vector : 1) : 0;
  if (lanewise && !checks && !all_steps && is_unaligned(access)) {
    const bool known_words = part_here >= 0 && follows_rows(access);
    body.push_back(
        {Load{.array = array,
              .element = constant(0),
              .width = vector,
              .buffer = a.buffer,
              .offset = offset_of(kernel, a, known),
              .unaligned = true,
              .words = known_words ? part_here * (vector / parts) * size_of(a.dtype) / 4 : -1}});
    return;
  }
  if (lanewise && !is_vectorized(access)) {
    For loop{.var = lane_var, .extent = vector, .body = {}};
    Expr lane = var(lane_var);
    const Mask g = mask(axes, lane);
    loop.body.push_back({Load{.array = array,
                              .element = all_steps ? element(lane, per_step) : lane,
                              .width = 1,
                              .buffer = a.buffer,
                              .offset = offset_of(kernel, a, known),
                              .in = inside(g, a, known),
                              .count = g.count}});
    body.push_back({std::move(loop)});
    return;
  }
  const Mask g = mask(axes, nullptr);
  body.push_back({Load{.array = array,
                       .element = all_steps ? element(constant(0), per_step) : constant(0),
                       .width = lanewise ? vector : 1,
                       .buffer = a.buffer,
                       .offset = offset_of(kernel, a, known),
                       .in = inside(g, a, known),
                       .count = lanewise ? g.count : nullptr}});
}

// Computes value v in the present scope. Emits the load of a loaded coordinate's read, and names
// every other result.
void Builder::compute(ValueId v, Known& known, Body& body, Expr lane) {
  const Value& value = values()[v];
  if (const auto* c = std::get_if<Coordinate>(&value.how)) {
    known[v] = coordinate(kernel, body, *c, known, [](Expr e) { return e; });
  } else if (const auto* p = std::get_if<Project>(&value.how)) {
    known[v] = result(p->reduced, p->result, lane);
  } else if (const auto* select = std::get_if<Select>(&value.how)) {
    known[v] = selected(kernel, body, *select, value.dtype, known, [](Expr e) { return e; });
  } else if (std::holds_alternative<Read>(value.how)) {
    if (access_of[v] < 0) {
      known[v] = exprs().symbol(Symbol::Value, std::get<Input>(value.tensor->definition).index, 0,
                                value.dtype);
      return;
    }
    // A read at a loaded coordinate moves one element at a time.
    const MemoryAccess& a = problem.accesses[access_of[v]];
    FUSER_ASSERT(is_loaded(a), "value ", v, " is used before it is loaded");
    int& array = elements_of[access_of[v]];
    if (array < 0) array = new_array(name_of("r", access_of[v]), a.dtype, 1);
    const Mask g = mask(axes_of(problem, a), lane);
    const Expr here = inside(g, a, known);
    check_indices(problem, kernel, body, a,
                  both(here, g.count ? less(constant(0), g.count) : nullptr), known,
                  [](Expr e) { return e; });
    body.push_back({Load{.array = array,
                         .element = constant(0),
                         .width = 1,
                         .buffer = a.buffer,
                         .offset = offset_of(kernel, a, known),
                         .in = here,
                         .count = g.count}});
    const int name = new_var();
    body.push_back({Let{.var = name, .value = exprs().element(array, constant(0), a.dtype)}});
    known[v] = exprs().symbol(Symbol::Var, name, 0, a.dtype);
  } else {
    known[v] = named(kernel, body, arithmetic(problem, kernel, v, known));
  }
}

// Returns a field of a reduction's combined result.
Expr Builder::result(ValueId reduced, int field, Expr lane) {
  const auto& r = std::get<Reduced>(values()[reduced].how);
  const bool column = vector > 1 && lane_dim == K;
  return exprs().element(state_of[reduced], column ? lane : constant(0),
                         result_dtype(r.op, r.compute, field), field);
}

// Emits make(body, lane, known) for each lane.
void Builder::for_lanes(Body& body, const Known& known,
                        const std::function<void(Body&, Expr lane, Known&)>& make) {
  Known inner = known;
  if (vector == 1) return make(body, constant(0), inner);
  For loop{.var = lane_var, .extent = vector, .body = {}};
  make(loop.body, var(lane_var), inner);
  if (!loop.body.empty()) body.push_back({std::move(loop)});
}

// Computes the values over K alone, and over no axes, that are first known in phase p.
void Builder::between_loops(Body& body, int p, Known& known) {
  std::vector<ValueId> lanewise;
  for (size_t i = 0; i < values().size(); ++i) {
    const auto v = static_cast<ValueId>(i);
    const Value& value = values()[v];
    if (is_inner(v) || finish[v] || phases.phase[v] != p || known[v]) continue;
    const bool in_memory = access_of[v] >= 0 && !is_loaded(problem.accesses[access_of[v]]);
    if (in_memory && next_of[access_of[v]] >= 0) {
      const int array = plain_array(access_of[v], false);
      body.push_back(
          {Assign{.array = array,
                  .element = constant(0),
                  .value = exprs().element(next_of[access_of[v]], constant(0), value.dtype)}});
    } else if (in_memory) {
      load_step(body, access_of[v], known, false);
    }
    if (in_lanes(value.axes)) {
      lanewise.push_back(v);
      continue;
    }
    if (in_memory)
      known[v] = exprs().element(plain_array(access_of[v], false), constant(0), value.dtype);
    else if (is_reduced(v))
      known[v] = result(v, 0, constant(0));
    else
      compute(v, known, body, constant(0));
  }
  if (lanewise.empty()) return;
  // Values that other lane loops use need one register per lane.
  const Known outer = known;
  for_lanes(body, known, [&](Body& inner, Expr lane, Known& here) {
    for (ValueId v : lanewise) {
      if (access_of[v] >= 0 && !is_loaded(problem.accesses[access_of[v]])) {
        here[v] = exprs().element(plain_array(access_of[v], false), lane, values()[v].dtype);
        known[v] = here[v];
      } else if (is_reduced(v) || std::holds_alternative<Project>(values()[v].how)) {
        if (is_reduced(v))
          here[v] = result(v, 0, lane);
        else
          compute(v, here, inner, lane);
        known[v] = here[v];
      } else {
        compute(v, here, inner, lane);
        if (array_of[v] < 0) array_of[v] = new_array(text("r_v", v), here[v]->dtype, vector);
        inner.push_back({Assign{.array = array_of[v], .element = lane, .value = here[v]}});
        known[v] = exprs().element(array_of[v], lane, here[v]->dtype);
      }
    }
  });
}

void Builder::accumulate(Body& body, ValueId v, Expr lane, const Known& known) {
  const auto& r = std::get<Reduced>(values()[v].how);
  const bool one = takes[v] && lane_dim == R && vector > 1;
  const bool by_steps = takes_steps(v) && all_exist;
  if ((one && !checks) || by_steps) {  // after the loop over lanes or steps
    const auto take = [&](int& array, const char* name, DType dtype, const Access& arg) {
      if (array < 0) array = new_array(text(name, v), dtype, by_steps ? vector * unroll : vector);
      body.push_back({Assign{.array = array,
                             .element = by_steps ? element(lane, vector) : lane,
                             .value = exprs().cast(dtype, operand(kernel, arg, known))}});
    };
    take(taken_of[v], "r_x", r.compute, r.args[0]);
    if (r.args.size() > 1) take(positions_of[v], "r_at", DType::Int64, r.args[1]);
    return;
  }
  Accumulate s{.array = state_of[v], .element = one ? constant(0) : lane};
  if (reduces_columns(values()[v])) s.element = element(lane, vector);
  AxisSet axes = r.over;
  for (size_t i = 0; i < r.args.size(); ++i)
    if (r.args[i].value >= 0) axes |= values()[r.args[i].value].axes;
  const bool product = product_of[v] >= 0;
  const std::vector<Access>& args =
      product ? std::get<Apply>(values()[product_of[v]].how).args : r.args;
  for (size_t i = 0; i < args.size(); ++i)
    s.values.push_back(exprs().cast(i == 0 || product ? r.compute : DType::Int64,
                                    operand(kernel, args[i], known)));
  // Lanes along K have separate columns: columns that do not exist are not stored either.
  s.in = exists(lane_dim == K && vector > 1 ? axes & axes_of_dim[R] : r.over, lane);
  body.push_back({std::move(s)});
}

bool Builder::is_kept(ValueId v) const { return staging_of_value(schedule, v) != nullptr; }

void Builder::assign_output(Body& body, int access, Expr lane, const Known& known) {
  const MemoryAccess& a = problem.accesses[access];
  const Expr value = operand(kernel, problem.refined.stores[a.index].access, known);
  body.push_back(
      {Assign{.array = output_of[access], .element = lane, .value = exprs().cast(a.dtype, value)}});
}

void Builder::keep(Body& body, ValueId v, Expr lane, Expr value) {
  FUSER_ASSERT(serial_var < 0, "value ", v, " is persistent in a looped row");
  int& array = kept_of[v];
  if (array < 0) array = new_array(text("r_v", v), value->dtype, unroll * vector);
  body.push_back({Assign{.array = array, .element = element(lane, vector), .value = value}});
}

ReductionLoop Builder::reduction_loop_of(int phase, Known& outer) {
  ReductionLoop w{.phase = phase, .outer = outer, .reductions = reductions_of(phase)};
  for (int i : stores_over(true, true))
    if (!is_finish_store(i) && phases.store[i] == phase) w.stores.push_back(i);

  std::vector<ValueId> roots;
  for (ValueId v : w.reductions)
    for (ValueId o : operands_of(values()[product_of[v] >= 0 ? product_of[v] : v]))
      roots.push_back(o);
  for (int i : w.stores)
    if (stored_value(i) >= 0) roots.push_back(stored_value(i));
  w.wanted = needed(roots, outer);

  w.all_steps.assign(problem.accesses.size(), false);
  w.in_pairs = w.all_steps;
  for (ValueId v : w.wanted) {
    const int access = access_of[v];
    if (access < 0 || is_loaded(problem.accesses[access]) || shared_of[access] >= 0) continue;
    // Operands that vary over R alone are in cache. They are read at their use, for two steps at a
    // time.
    const bool in_cache = axes_of_dim[K] && !over(values()[v].axes, K);
    w.in_pairs[access] = in_cache && pairs && is_vectorized(access);
    if (in_cache && !w.in_pairs[access]) continue;
    w.all_steps[access] = !is_vectorized(access);
    const bool fresh = (is_vectorized(access) ? raw_of : elements_of)[access] < 0;
    if (fresh || !stays(access)) w.read.push_back(access);
  }
  return w;
}

Body Builder::reads(const ReductionLoop& w, bool beside) {
  Body first;
  for (int access : w.read) {
    if (w.in_pairs[access] != beside) continue;
    // loaded in each step, without other accesses in between
    if (all_exist && is_unaligned(access)) continue;
    if (w.all_steps[access]) {
      load_step(first, access, w.outer, true);
      continue;
    }
    const MemoryAccess& a = problem.accesses[access];
    if (raw_of[access] < 0)
      raw_of[access] =
          new_array(name_of("q", access), a.dtype, w.in_pairs[access] ? 2 : unroll, {}, vector);
    Mask g = mask(axes_of(problem, a), nullptr);
    if (g.count) g.in = both(g.in, less(constant(vector - 1), g.count));
    first.push_back({Load{.array = raw_of[access],
                          .element = w.in_pairs[access] ? var(unroll_var) : step_at,
                          .width = vector,
                          .buffer = a.buffer,
                          .offset = offset_of(kernel, a, w.outer),
                          .in = inside(g, a),
                          .cache = cache_of(schedule, access, vector, nullptr)}});
  }
  return first;
}

void Builder::unpack(Body& body, const ReductionLoop& w, const Known& known) {
  const bool in_part = checks && nest_of_rows().lanes.tail && lane_dim == K;
  for (ValueId v : w.wanted) {
    const int access = access_of[v];
    if (access < 0 || is_loaded(problem.accesses[access]) || w.all_steps[access]) continue;
    if (shared_of[access] >= 0)
      body.push_back({Load{.array = plain_array(access, false),
                           .element = constant(0),
                           .width = vector,
                           .buffer = shared_of[access],
                           .offset = shared_element(access, stage_step())}});
    else if (raw_of[access] >= 0 && !in_part)
      body.push_back({Unpack{.array = plain_array(access, false),
                             .raw = raw_of[access],
                             .chunk = w.in_pairs[access] ? var(unroll_var) : step_at}});
    else
      load_step(body, access, known, false);
  }
}

Body Builder::step(const ReductionLoop& w) {
  Body body;
  Known known = w.outer;
  unpack(body, w, known);
  const auto find = [&](Body& inner, ValueId v, Expr lane, Known& here) {
    const int access = access_of[v];
    if (access >= 0 && !is_loaded(problem.accesses[access])) {
      const int per_step = in_lanes(values()[v].axes) ? vector : 1;
      Expr at = w.all_steps[access] ? element(lane, per_step) : per_step > 1 ? lane : constant(0);
      here[v] = exprs().element(elements_of[access], at, values()[v].dtype);
    } else {
      compute(v, here, inner, lane);
    }
    if (w.phase < phases.count && is_kept(v)) keep(inner, v, lane, here[v]);
  };
  for (ValueId v : w.wanted)
    if (!in_lanes(values()[v].axes)) find(body, v, constant(0), known);
  for_lanes(body, known, [&](Body& inner, Expr lane, Known& here) {
    for (ValueId v : w.wanted)
      if (!here[v]) find(inner, v, lane, here);
    for (ValueId v : w.reductions) accumulate(inner, v, lane, here);
    for (int i : w.stores) assign_output(inner, i, lane, here);
  });
  if (!checks && vector > 1 && lane_dim == R)
    for (ValueId v : w.reductions)
      if (takes[v]) body.push_back({take_in(v)});
  for (int i : w.stores) store(body, i, known, nullptr);
  return body;
}

Body Builder::steps(const ReductionLoop& w) {
  // An unaligned vector spans two aligned vectors.
  const bool shifts = std::any_of(w.wanted.begin(), w.wanted.end(), [&](ValueId v) {
    return access_of[v] >= 0 && is_unaligned(access_of[v]) && !w.all_steps[access_of[v]];
  });
  Body body = unrolled(reads(w, false)), beside = reads(w, true);
  Body iteration = existing([&] { return step(w); }, shifts ? 2 * vector - 1 : vector);
  append(body, unrolled(std::move(iteration), std::move(beside)));
  return body;
}

Body Builder::steps_of_columns(ReductionLoop& w) {
  Body iteration = steps(w);
  const bool shifts =
      std::any_of(w.read.begin(), w.read.end(), [&](int a) { return is_unaligned(a); });
  Expr all = all_steps_in(shifts);
  if (!all) return iteration;
  const std::vector<int> by_lane = elements_of;
  for (int access : w.read)
    if (is_unaligned(access)) w.all_steps[access] = false, elements_of[access] = -1;
  checks = false;
  all_exist = true;
  If whole{.condition = all, .body = steps(w)};
  all_exist = false;
  checks = true;
  elements_of = by_lane;
  for (ValueId v : w.reductions)
    if (takes_steps(v)) whole.body.push_back({take_in(v)});
  If part{.condition = exprs().apply(Op::logical_not, {all}), .body = std::move(iteration)};
  Body out;
  out.push_back({std::move(whole)});
  out.push_back({std::move(part)});
  return out;
}

// Sums in a loop whose trip count is not bounded by on-chip memory. A thread's partial result takes
// in `chain_terms` terms in sequence; then it is added to a total and restarts. So n terms of a
// thread have the rounding errors of chain_terms + n / chain_terms additions instead of n. Welford
// and online softmax take in all elements of an iteration at once, and prod rounds equally often in
// any order.
std::vector<ValueId> Builder::long_sums(const ReductionLoop& w) const {
  std::vector<ValueId> sums;
  if (serial_var < 0 || rolled()) return sums;
  for (ValueId v : w.reductions) {
    const auto& r = std::get<Reduced>(values()[v].how);
    const Kind kind = kind_of(r.compute);
    if (row(r.op).adds() && (kind == Kind::Float || kind == Kind::Complex) &&
        !reduces_columns(values()[v]))
      sums.push_back(v);
  }
  return sums;
}

// Adds the partial results of these sums to their totals and restarts them; or, after the loop,
// adds the totals to the partial results.
Body Builder::merged(const std::vector<ValueId>& sums, bool into_total) {
  Body out;
  for (ValueId v : sums) {
    const int part = state_of[v], total = total_of[v], lane = new_var();
    For loop{.var = lane, .extent = kernel.arrays[part].extent, .body = {}};
    loop.body.push_back({Merge{.array = into_total ? total : part,
                               .element = var(lane),
                               .other = into_total ? part : total,
                               .other_element = var(lane)}});
    out.push_back({std::move(loop)});
    if (into_total) out.push_back({InitState{part}});
  }
  return out;
}

void Builder::nest(Body& out, int phase, Known& outer) {
  ReductionLoop w = reduction_loop_of(phase, outer);
  if (w.reductions.empty() && w.stores.empty()) return;
  for (ValueId v : w.reductions)
    if (!reduces_columns(values()[v])) out.push_back({InitState{state_of[v]}});
  for (int i : w.stores)
    if (output_of[i] < 0)
      output_of[i] = new_array(name_of("r", i), problem.accesses[i].dtype, vector);

  if (own_groups && w.read.empty()) return append(out, own_steps(w));
  Body iteration = steps_of_columns(w);
  if (serial_var >= 0) {
    const std::vector<ValueId> sums = long_sums(w);
    for (ValueId v : sums) {
      const Array part = kernel.arrays[state_of[v]];
      if (total_of[v] < 0)
        total_of[v] = new_array(text(part.name, "_all"), part.dtype, part.extent, part.state);
      out.push_back({InitState{total_of[v]}});
    }
    if (!sums.empty()) {
      constexpr int chain_terms = 64;
      Expr period = constant(std::max(1, chain_terms / unroll));
      Expr last = exprs().apply(
          Op::eq, {exprs().mod(var(serial_var), period), exprs().sub(period, constant(1))});
      iteration.push_back({If{.condition = last, .uniform = true, .body = merged(sums, true)}});
    }
    out.push_back({Serial{.var = serial_var,
                          .extent = serial_count,
                          .unroll = serial_unroll,
                          .body = std::move(iteration)}});
    append(out, merged(sums, false));
  } else {
    append(out, std::move(iteration));
  }
  if (peeled) {
    for (size_t i = 0; i < w.all_steps.size(); ++i) w.all_steps[i] = edge_of[i] >= 0;
    append(out, on_edges([&](Body& body) { append(body, step(w)); }));
  }
  for (ValueId v : w.wanted) {
    if (kept_of[v] < 0) continue;
    Expr at = element(vector > 1 ? var(lane_var) : constant(0), vector);
    outer[v] = exprs().element(kept_of[v], at, kernel.arrays[kept_of[v]].dtype);
  }
}

// Returns the condition that all unrolled steps of a column exist. Returns nullptr if no such
// condition is useful: the reduction is no loop, or its steps do not run along columns. An
// unaligned vector spans two aligned vectors, of which the second may belong to the next step.
Expr Builder::all_steps_in(bool shifts) {
  if (serial_var < 0 || unroll == 1 || pairs || !across_rows()) return nullptr;
  Mask g = mask(axes_of_dim[K] | axes_of_dim[R], nullptr);
  if (shifts) g.in = less(exprs().add(index_map[R].index, constant(1)), extents[R]);
  if (g.count) g.in = both(g.in, less(constant(vector - 1), g.count));
  return rewrite(exprs(), g.in, [&](Expr e) -> Expr {
    return e->is_symbol(Symbol::Var) && e->a == unroll_var ? constant(unroll - 1) : nullptr;
  });
}

// Emits a step under its mask: without per-lane masks if the whole vector exists, else lane by lane
// at the end of columns. `extent`: elements that must exist from the step's first element on for
// the vector to be whole.
Body Builder::existing(const std::function<Body()>& step, int extent) {
  const Mask g = mask(axes_of_dim[K] | axes_of_dim[R], nullptr);
  Body out;
  Expr whole = g.in;
  if (g.count) {
    whole = both(whole, less(constant(extent - 1), g.count));
    const int name = new_var();
    out.push_back({Let{.var = name, .value = whole, .index = true}});
    whole = exprs().symbol(Symbol::Var, name, 0, DType::Bool);
  }
  const bool checked = checks;
  checks = false;
  Body fast = shift_part && extent > vector ? by_shift(step) : step();
  checks = checked;
  if (!whole) return fast;
  out.push_back({If{.condition = whole, .body = std::move(fast)}});
  if (g.count) {
    Expr part = both(exprs().apply(Op::logical_not, {whole}), less(constant(0), g.count));
    out.push_back({If{.condition = both(g.in, part), .body = step()}});
  }
  return out;
}

bool Builder::is_crowded() const {
  constexpr int weighed_registers = 72, many_of_a_block = 16 << 10;
  int registers = 0;
  for (const Array& a : kernel.arrays) {
    const int bytes = a.chunk   ? a.chunk * size_of(a.dtype)
                      : a.state ? state_bytes(a.state->op, a.dtype)
                                : size_of(a.dtype);
    registers += a.extent * std::max(4, bytes) / 4;
  }
  return registers > weighed_registers && registers * schedule.launch.threads >= many_of_a_block;
}

// Stores the lanes of an output; `owner` selects the storing thread.
void Builder::store(Body& body, int access, const Known& known, Expr owner) {
  const MemoryAccess& a = problem.accesses[access];
  const AxisSet axes = axes_of(problem, a);
  const bool lanewise = in_lanes(axes);
  if (crosses(access)) {
    body.push_back({Write{.array = output_of[access],
                          .element = constant(0),
                          .width = lanewise ? vector : 1,
                          .buffer = shared_of[access],
                          .offset = shared_element(access, nullptr),
                          .in = both(owner, mask(axes, nullptr).in)}});
    return;
  }
  Write w{.array = output_of[access],
          .element = constant(0),
          .width = lanewise ? vector : 1,
          .buffer = a.buffer,
          .offset = offset_of(kernel, a, known)};
  if (lanewise && !is_vectorized(access)) {
    For loop{.var = lane_var, .extent = vector, .body = {}};
    const Mask g = mask(axes, var(lane_var));
    w.element = var(lane_var);
    w.width = 1;
    w.in = both(owner, g.in);
    w.count = g.count;
    loop.body.push_back({w});
    body.push_back({std::move(loop)});
    return;
  }
  const Mask g = mask(axes, nullptr);
  w.in = both(owner, g.in);
  w.count = lanewise ? g.count : nullptr;
  if (lanewise) w.cache = cache_of(schedule, access, vector, w.count);
  body.push_back({w});
}

}  // namespace fuser::lower::reduction
