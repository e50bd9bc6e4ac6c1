// Reduction loops: the unrolled steps of an iteration under their masks, and the loop around them.
// See reduction.cpp.
#include <algorithm>

#include "lower/build/reduction_builder.h"

namespace fuser::lower::reduction {

using namespace fusion;
using namespace ir;

Body Builder::unrolled(Body body, Body reads) {
  if (unroll == 1 || body.empty()) return body;
  Body out;
  for (Body* part : {&reads, &body})
    if (!part->empty())
      out.push_back(
          {For{.var = unroll_var, .extent = pairs ? 2 : unroll, .body = std::move(*part)}});
  if (pair_var < 0) return out;
  For all{.var = pair_var, .extent = unroll / 2, .body = std::move(out)};
  Body looped;
  looped.push_back({std::move(all)});
  return looped;
}

Body Builder::stepped(Body body) {
  if (!rolled()) return unrolled(std::move(body));
  Body out;
  if (!body.empty())
    out.push_back({Serial{.var = serial_var,
                          .extent = serial_count,
                          .unroll = serial_unroll,
                          .body = unrolled(std::move(body))}});
  return out;
}

void Builder::append(Body& to, Body from) {
  for (Stmt& s : from) to.push_back(std::move(s));
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

void Builder::emit_iteration(ReductionLoop& w) {
  w.complete = own_groups && w.read.empty();
  if (w.complete)
    append(w.out, own_steps(w));
  else
    w.iteration = steps_of_columns(w);
}

void Builder::close_loop(ReductionLoop& w) {
  if (w.complete) return;
  if (serial_var < 0) return append(w.out, std::move(w.iteration));
  w.out.push_back({Serial{.var = serial_var,
                          .extent = serial_count,
                          .unroll = serial_unroll,
                          .body = std::move(w.iteration)}});
  append(w.out, merged(w.sums, false));
}

void Builder::emit_edges(ReductionLoop& w) {
  if (!peeled || w.complete) return;
  for (size_t i = 0; i < w.all_steps.size(); ++i) w.all_steps[i] = edge_of[i] >= 0;
  append(w.out, on_edges([&](Body& body) { append(body, step(w)); }));
}

}  // namespace fuser::lower::reduction
