// Values of kernels with reductions: over K between the reduction loops, and of the steps of a
// loop. See reduction.cpp.
#include "base/error.h"
#include "lower/build/reduction_builder.h"

namespace fuser::lower::reduction {

using namespace fusion;
using namespace ir;

// Returns the position of a lane of the unrolled step in a register array.
Expr Builder::element(Expr lane, int per_step) {
  Expr step = exprs().mul(step_at, constant(per_step));
  return per_step > 1 ? exprs().add(step, lane) : step;
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
void Builder::between_loops(Phase& phase) {
  Body& body = phase.body;
  Known& known = phase.known;
  std::vector<ValueId> lanewise;
  for (size_t i = 0; i < values().size(); ++i) {
    const auto v = static_cast<ValueId>(i);
    const Value& value = values()[v];
    if (is_inner(v) || finish[v] || phases.phase[v] != phase.index || known[v]) continue;
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

// Computes a value of a reduction loop, or finds the register of a loaded one.
void Builder::find_value(const ReductionLoop& w, Body& body, ValueId v, Expr lane, Known& known) {
  const int access = access_of[v];
  if (access >= 0 && !is_loaded(problem.accesses[access])) {
    const int per_step = in_lanes(values()[v].axes) ? vector : 1;
    Expr at = w.all_steps[access] ? element(lane, per_step) : per_step > 1 ? lane : constant(0);
    known[v] = exprs().element(elements_of[access], at, values()[v].dtype);
  } else {
    compute(v, known, body, lane);
  }
  if (w.phase < phases.count && is_kept(v)) keep(body, v, lane, known[v]);
}

void Builder::uniform_values(UnrolledStep& s) {
  for (ValueId v : s.loop.wanted)
    if (!in_lanes(values()[v].axes)) find_value(s.loop, s.body, v, constant(0), s.known);
}

void Builder::lane_values(LaneOfStep& s) {
  for (ValueId v : s.loop.wanted)
    if (!s.known[v]) find_value(s.loop, s.body, v, s.lane, s.known);
}

void Builder::keep(Body& body, ValueId v, Expr lane, Expr value) {
  FUSER_ASSERT(serial_var < 0, "value ", v, " is persistent in a looped row");
  int& array = kept_of[v];
  if (array < 0) array = new_array(text("r_v", v), value->dtype, unroll * vector);
  body.push_back({Assign{.array = array, .element = element(lane, vector), .value = value}});
}

void Builder::keep_values(ReductionLoop& w) {
  for (ValueId v : w.wanted) {
    if (kept_of[v] < 0) continue;
    Expr at = element(vector > 1 ? var(lane_var) : constant(0), vector);
    w.outer[v] = exprs().element(kept_of[v], at, kernel.arrays[kept_of[v]].dtype);
  }
}

}  // namespace fuser::lower::reduction
