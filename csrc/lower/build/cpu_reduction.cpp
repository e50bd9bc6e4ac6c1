// Reductions of CPU kernels: the loops of a phase, and the merge of lanes and of tasks. See
// cpu.cpp.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "lower/build/cpu_builder.h"

namespace fuser::lower::cpu {

using namespace fusion;
using namespace ir;

void Builder::find_products() {
  product_of.assign(values().size(), -1);
  std::vector<int> uses(values().size(), 0);
  for (const Value& v : values()) visit_operands(v, [&](ValueId o) { ++uses[o]; });
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

// Returns whether the order of the elements of a reduction changes its bits.
bool Builder::rounds(ValueId v) const {
  const auto& r = std::get<Reduced>(values()[v].how);
  const Kind kind = kind_of(r.compute);
  return !row(r.op).selects() && (kind == Kind::Float || kind == Kind::Complex);
}

void Builder::make_states() {
  states.resize(values().size());
  for (size_t v = 0; v < values().size(); ++v) {
    const auto* r = std::get_if<Reduced>(&values()[v].how);
    if (!r) continue;
    const auto id = static_cast<ValueId>(v);
    const int levels = !rounds(id) || reduces_columns(id) ? 1 : lanes_reduced && axes[S] ? 3 : 2;
    for (int level = 0; level < levels; ++level)
      states[v].push_back(new_array(text("r_", row(r->op).name, v, level ? text("_", level) : ""),
                                    r->compute, State{r->op}));
  }
}

std::vector<ValueId> Builder::reductions_of(int phase) const {
  std::vector<ValueId> out;
  for (size_t v = 0; v < values().size(); ++v)
    if (std::holds_alternative<Reduced>(values()[v].how) && phases.phase[v] == phase + 1 &&
        !reduces_columns(static_cast<ValueId>(v)))
      out.push_back(static_cast<ValueId>(v));
  return out;
}

std::vector<int> Builder::stores_of(int phase) const {
  std::vector<int> out;
  for (size_t i = 0; i < problem.accesses.size(); ++i) {
    const MemoryAccess& a = problem.accesses[i];
    if (a.store && is_per_element(axes_of(problem, a)) && phases.store[i] == phase &&
        !stores_columns(static_cast<int>(i)))
      out.push_back(static_cast<int>(i));
  }
  return out;
}

std::vector<ValueId> Builder::needed(const std::vector<ValueId>& reduced,
                                     const std::vector<int>& stores, const Known& known) const {
  std::vector<bool> want(values().size(), false);
  const auto want_operands = [&](ValueId v) {
    visit_operands(values()[v], [&](ValueId o) { want[o] = true; });
  };
  for (ValueId v : reduced) want_operands(product_of[v] >= 0 ? product_of[v] : v);
  for (int i : stores)
    if (const ValueId v = problem.refined.stores[problem.accesses[i].index].access.value; v >= 0)
      want[v] = true;
  std::vector<ValueId> out;
  for (size_t v = values().size(); v-- > 0;) {
    if (!want[v] || known[v]) continue;
    out.push_back(static_cast<ValueId>(v));
    want_operands(static_cast<ValueId>(v));
  }
  std::reverse(out.begin(), out.end());
  return out;
}

void Builder::accumulate(Body& body, ValueId v, const Known& known, int level) {
  const auto& r = std::get<Reduced>(values()[v].how);
  const bool product = product_of[v] >= 0;
  const std::vector<Access>& args =
      product ? std::get<Apply>(values()[product_of[v]].how).args : r.args;
  Accumulate s{.array = states[v][std::min<size_t>(level, states[v].size() - 1)],
               .element = constant(0)};
  for (size_t i = 0; i < args.size(); ++i)
    s.values.push_back(exprs().cast(i == 0 || product ? r.compute : DType::Int64,
                                    operand(kernel, args[i], known)));
  // Lanes along kept axes are points of their own, which are not stored if they do not exist.
  if (rest && lanes_reduced) s.in = exprs().apply(Op::lt, {lane(), rest});
  body.push_back({std::move(s)});
}

void Builder::blocked(Body& body, Expr count, const std::vector<ValueId>& reduced, int level,
                      const Make& make) {
  std::vector<ValueId> sums;
  for (ValueId v : reduced)
    if (rounds(v)) sums.push_back(v);
  if (sums.empty()) return loop(body, count, make);
  const Expr most = constant(most_in_sequence);
  loop(body, ceil_div(count, most), [&](Body& block, Expr b) {
    for (ValueId v : sums) block.push_back({InitState{states[v][level]}});
    const Expr first = exprs().mul(b, most);
    const Expr size = exprs().apply(Op::minimum, {most, exprs().sub(count, first)});
    loop(block, size, [&](Body& inner, Expr i) { make(inner, exprs().add(first, i)); });
    for (ValueId v : sums)
      block.push_back({Merge{.array = states[v][level + 1],
                             .element = constant(0),
                             .other = states[v][level],
                             .other_element = constant(0)}});
  });
}

void Builder::init_phase(Phase& p) {
  p.reduced = reductions_of(p.index);
  for (ValueId v : p.reduced) {
    p.results.push_back(states[v].back());
    p.body.push_back({InitState{states[v].back()}});
  }
}

void Builder::phase_loops(Phase& p) {
  Body& body = p.body;
  const Known& before = p.known;
  const std::vector<ValueId>& reduced = p.reduced;
  const std::vector<ValueId> columns = columns_of(p.index);
  const std::vector<int> stores = stores_of(p.index);
  if (reduced.empty() && columns.empty() && stores.empty()) return;
  std::vector<ValueId> all = reduced;
  all.insert(all.end(), columns.begin(), columns.end());
  const std::vector<ValueId> values_here = needed(all, stores, before);
  const auto finish = [&](Body& b, const Known& known, int level) {
    for (ValueId v : reduced) accumulate(b, v, known, level);
    accumulate_columns(b, columns, known);
    for (int i : stores) store(b, i, known);
  };
  const auto in_serial = [&](Body& b, Known known, int level) {
    if (!lanes_reduced) {
      for (ValueId v : values_here) emit(b, v, known);
      finish(b, known, level);
      return;
    }
    for (ValueId v : values_here)
      if (!(values()[v].axes & axes[L])) emit(b, v, known);
    const auto at_level = [&](int into) {
      return [&, into](Body& inner) {
        Known all = known;
        for (ValueId v : values_here)
          if (!all[v]) emit(inner, v, all);
        finish(inner, all, into);
      };
    };
    const auto iterate = [&](Body& out, Expr count, const Make& make) {
      blocked(out, count, reduced, 0, make);
    };
    vectors(b, iterate, at_level(0), at_level(1));
  };
  if (!axes[S]) return in_serial(body, before, 0);
  const Share& s = shares[S];
  blocked(body, s.size, reduced, lanes_reduced ? 1 : 0, [&](Body& b, Expr i) {
    index_map[S].index = index_let(b, exprs().add(s.first, i));
    in_serial(b, before, 0);
  });
}

void Builder::take_results(Body& body, const std::vector<ValueId>& reduced,
                           const std::vector<int>& arrays, Known& known) {
  for (size_t i = 0; i < reduced.size(); ++i) {
    const auto take = [&](ValueId v, int result) {
      const int name = kernel.vars++;
      const DType dtype = values()[v].dtype;
      body.push_back(
          {Let{.var = name, .value = exprs().element(arrays[i], constant(0), dtype, result)}});
      known[v] = var(name, dtype);
    };
    take(reduced[i], 0);
    for (size_t v = 0; v < values().size(); ++v)
      if (const auto* p = std::get_if<Project>(&values()[v].how); p && p->reduced == reduced[i])
        take(static_cast<ValueId>(v), p->result);
  }
}

void Builder::combine_lanes(Phase& p) {
  if (!lanes_reduced || lanes == 1) return;
  for (int& result : p.results) {
    const Array lanes_of = kernel.arrays[result];
    const int one = new_array(lanes_of.name + "_all", lanes_of.dtype, lanes_of.state);
    p.body.push_back({LaneReduce{.array = one, .other = std::exchange(result, one)}});
  }
}

void Builder::combine_tasks(Phase& p) {
  if (p.index == phases.count) return;
  if (split())
    merge_tasks(p.body, p.reduced, p.results, p.known);
  else
    take_results(p.body, p.reduced, p.results, p.known);
}

void Builder::after_phase(Phase& p) {
  if (p.index == phases.count)
    kept_stores(p.body, p.known);
  else if (!split())
    emit_kept(p.body, p.index + 1, p.known, [](AxisSet) { return true; });
}

void Builder::merge_tasks(Body& body, const std::vector<ValueId>& reduced,
                          const std::vector<int>& results, Known& known) {
  FUSER_ASSERT(phases.count == 1, "several tasks reduce the rows of a kernel of ", phases.count,
               " phases");
  const Share& s = *split();
  const Expr rows = shares[O].extent, row = index_map[O].index;
  const auto at = [&](Expr task) { return exprs().add(exprs().mul(row, s.tasks), task); };
  std::vector<int> buffers, total, read;
  for (size_t i = 0; i < reduced.size(); ++i) {
    const ValueId v = reduced[i];
    const auto& r = std::get<Reduced>(values()[v].how);
    buffers.push_back(scratch(text("g_partial", v), Buffer::Kind::Workspace, r.compute,
                              exprs().mul(rows, s.tasks), State{r.op}));
    total.push_back(new_array(text("r_total", v), r.compute, State{r.op}));
    read.push_back(new_array(text("r_partial", v), r.compute, State{r.op}));
    body.push_back({Write{.array = results[i],
                          .element = constant(0),
                          .buffer = buffers.back(),
                          .offset = at(s.task)}});
  }
  If last{.condition = is_last_task(body, rows, row, s.tasks), .uniform = true, .body = {}};
  for (int array : total) last.body.push_back({InitState{array}});
  loop(last.body, s.tasks, [&](Body& b, Expr task) {
    for (size_t i = 0; i < reduced.size(); ++i) {
      b.push_back({Load{
          .array = read[i], .element = constant(0), .buffer = buffers[i], .offset = at(task)}});
      b.push_back({Merge{.array = total[i],
                         .element = constant(0),
                         .other = read[i],
                         .other_element = constant(0)}});
    }
  });
  take_results(last.body, reduced, total, known);
  emit_kept(last.body, 1, known, [](AxisSet) { return true; });
  kept_stores(last.body, known);
  body.push_back({std::move(last)});
}

namespace {

// A phase of a row, or of a point if lanes are kept. The phase behind the last reduction has stores
// alone.
constexpr Step<Builder, Phase> phase_steps[] = {
    {"identities", &Builder::init_phase, "the results of the phases before are known",
     "finds the reductions of the phase, and initializes their partial results",
     "partial results of no elements"},
    {"loops", &Builder::phase_loops, "partial results of no elements",
     "emits the loops over the reduced axes: values, accumulation, stores",
     "each lane has partial results; outputs of this phase over reduced axes are stored"},
    {"combination of lanes", &Builder::combine_lanes, "lanes along reduced axes",
     "merges the lanes of a vector", "the result of the task"},
    {"combination of tasks", &Builder::combine_tasks, "the result of the task",
     "takes it; if tasks share the row, the last one merges theirs and stores what waits for them",
     "values of the reductions, by name"},
    {"kept values", &Builder::after_phase, "as after the combination of tasks",
     "computes the values over kept axes that wait for the phase; after the last one, stores them",
     "these values are known in later loops"},
};

}  // namespace

void Builder::reduce(Body& body, Known& known) {
  const int last = split() && phases.count ? 0 : phases.count;
  for (int p = 0; p <= last; ++p) {
    Phase phase{.index = p, .body = body, .known = known};
    run_steps(*this, phase_steps, phase);
  }
}

}  // namespace fuser::lower::cpu
