// Accumulation into the partial results of a thread, and the totals that bound the rounding errors
// of long sums. See reduction.cpp.
#include <algorithm>

#include "base/error.h"
#include "lower/build/reduction_builder.h"

namespace fuser::lower::reduction {

using namespace fusion;
using namespace ir;

void Builder::init_loop(ReductionLoop& w) {
  for (ValueId v : w.reductions)
    if (!reduces_columns(values()[v])) w.out.push_back({InitState{state_of[v]}});
  for (int i : w.stores)
    if (output_of[i] < 0)
      output_of[i] = new_array(name_of("r", i), problem.accesses[i].dtype, vector);
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

void Builder::accumulate_lane(LaneOfStep& s) {
  for (ValueId v : s.loop.reductions) accumulate(s.body, v, s.lane, s.known);
}

void Builder::take_lanes(UnrolledStep& s) {
  if (checks || vector == 1 || lane_dim != R) return;
  for (ValueId v : s.loop.reductions)
    if (takes[v]) s.body.push_back({take_in(v)});
}

// Sums in a loop whose trip count is not bounded by on-chip memory. A thread's partial result takes
// in `chain_terms` terms in sequence; then it is added to a total and restarts. So n terms of a
// thread have the rounding errors of chain_terms + n / chain_terms additions instead of n. Welford
// and online softmax take in all elements of an iteration at once, and prod rounds equally often in
// any order.
std::vector<ValueId> Builder::long_sums(const ReductionLoop& w) const {
  std::vector<ValueId> sums;
  if (serial_var < 0 || rolled() || w.complete) return sums;
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

void Builder::bound_sums(ReductionLoop& w) {
  w.sums = long_sums(w);
  if (w.sums.empty()) return;
  for (ValueId v : w.sums) {
    const Array part = kernel.arrays[state_of[v]];
    if (total_of[v] < 0)
      total_of[v] = new_array(text(part.name, "_all"), part.dtype, part.extent, part.state);
    w.out.push_back({InitState{total_of[v]}});
  }
  constexpr int chain_terms = 64;
  Expr period = constant(std::max(1, chain_terms / unroll));
  Expr last = exprs().apply(
      Op::eq, {exprs().mod(var(serial_var), period), exprs().sub(period, constant(1))});
  w.iteration.push_back({If{.condition = last, .uniform = true, .body = merged(w.sums, true)}});
}

}  // namespace fuser::lower::reduction
