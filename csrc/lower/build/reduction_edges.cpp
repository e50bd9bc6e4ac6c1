// Peeled rows, whose length is no multiple of a vector. The loop starts at the first memory line of
// the row and has whole vectors only. The elements before and after them are assigned to one thread
// each, and a single step processes them. If threads processed the ends lane by lane, then their
// warp and finally the block would wait for them. See reduction.cpp.
#include <algorithm>
#include <tuple>

#include "lower/build/reduction_builder.h"

namespace fuser::lower::reduction {

using namespace fusion;
using namespace ir;

bool Builder::follows_rows(int access) const {
  const MemoryAccess& a = problem.accesses[access];
  return schedule.dims[R].line.elements && !a.store && is_unaligned(access) &&
         !over(axes_of(problem, a), K) && a.strides && a.strides->rest->is_constant(0);
}

void Builder::peel() {
  peeled = true;
  reach = vector;
  for (size_t i = 0; i < problem.accesses.size(); ++i)
    if (is_unaligned(static_cast<int>(i))) reach = 2 * vector - 1;
  Expr head = constant(0);
  if (const int64_t line = schedule.dims[R].line.elements) {
    // The number of elements of a row before its first line.
    Expr start = exprs().mod(line_origin(kernel, problem, schedule, R), constant(line));
    Expr before = exprs().mod(exprs().sub(constant(line), start), constant(line));
    head = index_let(address(exprs(), index_map, before, nullptr));
    index_map[R].index = exprs().add(index_map[R].index, head);
    parts = std::min(vector, 4);
    for (size_t i = 0; i < problem.accesses.size() && !shift_part; ++i)
      if (follows_rows(static_cast<int>(i)))
        shift_part =
            index_let(exprs().div(exprs().mod(head, constant(vector)), constant(vector / parts)));
  }
  Expr rest = exprs().sub(extents[R], exprs().add(head, constant(reach - vector)));
  Expr vectors = exprs().mul(exprs().div(rest, constant(vector)), constant(vector));
  // 0 for threads whose element is before the vectors, 1 for other threads. A block has fewer
  // than 2048 threads, so one division decides.
  const Expr more = constant(2048);
  Expr behind = exprs().div(exprs().sub(exprs().add(x, more), head), more);
  edges = index_map;
  edges[R].index = index_let(exprs().add(x, exprs().mul(vectors, behind)));
  edges[R].vector = edges[R].whole = false;
  at_edge = less(edges[R].index, extents[R]);
  if (!schedule.dims[K].axes.empty()) at_edge = both(at_edge, less(index_map[K].index, extents[K]));
  for (Expr part : {rank, split})
    if (part) at_edge = both(at_edge, exprs().apply(Op::eq, {part, constant(0)}));
}

// Emits `make` for one element per thread, under the mask of that element.
Body Builder::on_edges(const std::function<void(Body&)>& make) {
  Body body;
  const auto before = std::make_tuple(vector, unroll, step_at, checks, raw_of, shared_of);
  elements_of.swap(edge_of);
  vector = unroll = 1;
  step_at = constant(0);
  checks = false;
  raw_of.assign(raw_of.size(), -1);
  shared_of.assign(shared_of.size(), -1);
  make(body);
  std::tie(vector, unroll, step_at, checks, raw_of, shared_of) = before;
  elements_of.swap(edge_of);
  map_expressions(body, [&](Expr e) { return address(exprs(), edges, e, nullptr); });
  Body out;
  if (!body.empty()) out.push_back({If{.condition = at_edge, .body = std::move(body)}});
  return out;
}

// Reads the elements of rows before and after the whole vectors, once each.
Body Builder::read_edges(const Known& known) {
  return on_edges([&](Body& body) {
    for (size_t i = 0; i < problem.accesses.size(); ++i) {
      const MemoryAccess& a = problem.accesses[i];
      const AxisSet axes = axes_of(problem, a);
      const bool row = over(axes, R) && (over(axes, K) || !axes_of_dim[K]);
      if (row && !a.store && !is_loaded(a)) load_step(body, static_cast<int>(i), known, false);
    }
  });
}

// Emits the step once for each misalignment of the operands that all rows read, so that the
// selection of words is constant in each copy. Selecting them at run time takes more instructions
// than the arithmetic of a layer norm. All threads of a row have the same misalignment, so warps do
// not diverge.
Body Builder::by_shift(const std::function<Body()>& step) {
  Body out;
  for (part_here = 0; part_here < parts; ++part_here)
    out.push_back({If{.condition = exprs().apply(Op::eq, {shift_part, constant(part_here)}),
                      .body = step()}});
  part_here = -1;
  return out;
}

}  // namespace fuser::lower::reduction
