// Stores of kernels with reductions: of the lanes of a step, and of outputs over K alone. See
// reduction.cpp.
#include "lower/build/reduction_builder.h"

namespace fuser::lower::reduction {

using namespace fusion;
using namespace ir;

void Builder::assign_output(Body& body, int access, Expr lane, const Known& known) {
  const MemoryAccess& a = problem.accesses[access];
  const Expr value = operand(kernel, problem.refined.stores[a.index].access, known);
  body.push_back(
      {Assign{.array = output_of[access], .element = lane, .value = exprs().cast(a.dtype, value)}});
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

void Builder::assign_outputs(LaneOfStep& s) {
  for (int i : s.loop.stores) assign_output(s.body, i, s.lane, s.known);
}

void Builder::store_step(UnrolledStep& s) {
  for (int i : s.loop.stores) store(s.body, i, s.known, nullptr);
}

// Stores outputs over K alone: one thread of each row or column stores.
void Builder::store_kept(Body& body, const Known& known) {
  std::vector<int> stores;
  for (int i : stores_over(true, false))
    if (!is_finish_store(i)) stores.push_back(i);
  if (stores.empty()) return;
  for (int i : stores)
    if (output_of[i] < 0)
      output_of[i] = new_array(name_of("r", i), problem.accesses[i].dtype,
                               in_lanes(axes_of(problem, problem.accesses[i])) ? vector : 1);
  const bool column = vector > 1 && lane_dim == K;
  if (column) {
    for_lanes(body, known, [&](Body& b, Expr lane, Known& here) {
      for (int i : stores)
        if (in_lanes(axes_of(problem, problem.accesses[i]))) assign_output(b, i, lane, here);
    });
  }
  for (int i : stores)
    if (!column || !in_lanes(axes_of(problem, problem.accesses[i])))
      assign_output(body, i, constant(0), known);
  for (int i : stores) {
    const bool by_columns = across_rows();
    Expr owner = nullptr;
    if (by_columns ? threads_y > 1 : threads_x > 1)
      owner = exprs().apply(Op::eq, {by_columns ? y : x, constant(0)});
    if (rank) owner = both(owner, exprs().apply(Op::eq, {rank, constant(0)}));
    if (!over(axes_of(problem, problem.accesses[i]), K) && !by_columns && threads_y > 1)
      owner = both(owner, exprs().apply(Op::eq, {y, constant(0)}));
    store(body, i, known, owner);
  }
}

void Builder::store_rows(Phase& phase) {
  if (phase.index == phases.count) store_kept(phase.body, phase.known);
}

}  // namespace fuser::lower::reduction
