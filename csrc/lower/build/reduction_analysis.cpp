// Analysis of kernels with reductions: the phase of each value, the arrays of partial results, and
// the reductions, stores, values and reads of each reduction loop. See reduction.cpp.
#include <algorithm>

#include "base/error.h"
#include "lower/build/reduction_builder.h"

namespace fuser::lower::reduction {

using namespace fusion;
using namespace ir;
using namespace schedule;

bool Builder::reduces_columns(const Value& v) const {
  const auto* r = std::get_if<Reduced>(&v.how);
  return r && problem.columns && r->over == problem.columns;
}

std::vector<ValueId> Builder::operands_of(const Value& v) {
  std::vector<ValueId> out;
  visit_operands(v, [&](ValueId a) { out.push_back(a); });
  return out;
}

void Builder::analyse() {
  const size_t n = values().size();
  phases = reduction_phases(problem);
  finish.assign(n, false);
  access_of.assign(n, -1);
  state_of.assign(n, -1);
  array_of.assign(n, -1);
  taken_of.assign(n, -1);
  positions_of.assign(n, -1);
  takes.assign(n, false);
  slots_of.assign(n, -1);
  kept_of.assign(n, -1);
  total_of.assign(n, -1);
  find_products();
  for (size_t i = 0; i < problem.accesses.size(); ++i)
    if (!problem.accesses[i].store) access_of[problem.accesses[i].index] = static_cast<int>(i);
  for (size_t v = 0; v < n; ++v) {
    for (ValueId o : operands_of(values()[v])) finish[v] = finish[v] || finish[o];
    if (const auto* r = std::get_if<Reduced>(&values()[v].how)) {
      if (reduces_columns(values()[v])) finish[v] = true;
      takes[v] = takes_arrays(static_cast<ValueId>(v));
      int extent = takes[v] && lane_dim == R ? 1 : vector;
      if (reduces_columns(values()[v])) extent *= unroll;
      state_of[v] = new_array(text("r_", row(r->op).name, v), r->compute, extent, State{r->op});
    }
  }
}

// Returns whether a position increases along R in traversal order.
bool Builder::ascends(Expr position) {
  const auto form =
      linear(exprs(), import(kernel, position), static_cast<int>(problem.refined.axes.size()));
  if (!form || index_map[R].axes.empty() || !is_linear_in_index(exprs(), *form, index_map[R]))
    return false;
  Expr step = form->coefficients[index_map[R].axes.back()];
  return step->is_constant() && step->value.integer > 0;
}

// Returns whether a thread has one partial result for all of its lanes.
bool Builder::takes_arrays(ValueId v) {
  const auto& r = std::get<Reduced>(values()[v].how);
  if (!row(r.op).takes_positions()) return row(r.op).has_state();
  const ValueId position = r.args[1].value;
  const auto* at = position >= 0 ? std::get_if<Coordinate>(&values()[position].how) : nullptr;
  return at && ascends(at->at);
}

bool Builder::takes_steps(ValueId v) const {
  return takes[v] && unroll > 1 && serial_var >= 0 && across_rows() &&
         !reduces_columns(values()[v]);
}

// A product becomes part of a sum if the sum is its only user and contract() marked the sum.
void Builder::find_products() {
  product_of.assign(values().size(), -1);
  std::vector<int> uses(values().size(), 0);
  for (const Value& v : values())
    for (ValueId o : operands_of(v)) ++uses[o];
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

// Returns the reductions that end with phase p. A reduction over K belongs to the first phase that
// has its operands.
std::vector<ValueId> Builder::reductions_of(int p) const {
  std::vector<ValueId> out;
  for (size_t v = 0; v < values().size(); ++v) {
    if (!is_reduced(static_cast<ValueId>(v))) continue;
    if (phases.phase[v] == (reduces_columns(values()[v]) ? p : p + 1))
      out.push_back(static_cast<ValueId>(v));
  }
  return out;
}

std::vector<ValueId> Builder::row_reductions_of(int p) const {
  std::vector<ValueId> out = reductions_of(p);
  std::erase_if(out, [&](ValueId v) { return reduces_columns(values()[v]); });
  return out;
}

std::vector<int> Builder::stores_over(bool k, bool r) const {
  std::vector<int> out;
  for (size_t i = 0; i < problem.accesses.size(); ++i) {
    const MemoryAccess& a = problem.accesses[i];
    if (!a.store) continue;
    const AxisSet axes = axes_of(problem, a);
    const bool has_r = over(axes, R);
    if (has_r != r) continue;
    if (has_r && (over(axes, K) || !axes_of_dim[K]) != k) continue;
    out.push_back(static_cast<int>(i));
  }
  return out;
}

ValueId Builder::stored_value(int access) const {
  return problem.refined.stores[problem.accesses[access].index].access.value;
}

bool Builder::is_finish_store(int access) const {
  const ValueId v = stored_value(access);
  return v >= 0 && finish[v];
}

// Returns the values that `roots` are computed from inside a reduction loop, operands first. Known
// values and values over K alone are left out.
std::vector<ValueId> Builder::needed(const std::vector<ValueId>& roots, const Known& known) const {
  std::vector<bool> want(values().size(), false);
  for (ValueId v : roots) want[v] = true;
  std::vector<ValueId> out;
  for (size_t v = values().size(); v-- > 0;) {
    if (!want[v] || known[v]) continue;
    out.push_back(static_cast<ValueId>(v));
    if (is_reduced(static_cast<ValueId>(v))) continue;
    for (ValueId o : operands_of(values()[v])) want[o] = true;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

bool Builder::is_kept(ValueId v) const { return staging_of_value(schedule, v) != nullptr; }

ReductionLoop Builder::reduction_loop_of(Phase& of) {
  const int phase = of.index;
  ReductionLoop w{
      .phase = phase, .outer = of.known, .out = of.body, .reductions = reductions_of(phase)};
  for (int i : stores_over(true, true))
    if (!is_finish_store(i) && phases.store[i] == phase) w.stores.push_back(i);

  std::vector<ValueId> roots;
  for (ValueId v : w.reductions)
    for (ValueId o : operands_of(values()[product_of[v] >= 0 ? product_of[v] : v]))
      roots.push_back(o);
  for (int i : w.stores)
    if (stored_value(i) >= 0) roots.push_back(stored_value(i));
  w.wanted = needed(roots, w.outer);

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

}  // namespace fuser::lower::reduction
