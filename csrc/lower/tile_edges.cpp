// Rows that are no multiple of a vector: the walk starts at the first line of memory in its row and
// has whole vectors only. The elements before and behind them are left to as many threads, one
// each, which a single step serves: threads that walk the ends of a row lane by lane keep their
// warp, and then the block, waiting. See tiles.cpp.
#include <algorithm>
#include <tuple>

#include "lower/tile_builder.h"

namespace fuser::tile {

bool Builder::follows_rows(int access) const {
  const MemoryAccess& a = problem.accesses[access];
  return schedule.dims[R].skew && !a.store && is_shifted(access) && !over(axes_of(problem, a), K) &&
         a.strides && a.strides->rest->is_constant(0);
}

void Builder::peel() {
  peeled = true;
  reach = lanes;
  for (size_t i = 0; i < problem.accesses.size(); ++i)
    if (is_shifted(static_cast<int>(i))) reach = 2 * lanes - 1;
  Expr head = constant(0);
  if (schedule.dims[R].skew) {
    head = index_let(address(exprs(), walk, import(kernel, schedule.dims[R].skew), nullptr));
    walk[R].index = exprs().add(walk[R].index, head);
    parts = std::min(lanes, 4);
    for (size_t i = 0; i < problem.accesses.size() && !shift_part; ++i)
      if (follows_rows(static_cast<int>(i)))
        shift_part =
            index_let(exprs().div(exprs().mod(head, constant(lanes)), constant(lanes / parts)));
  }
  Expr rest = exprs().sub(extents[R], exprs().add(head, constant(reach - lanes)));
  Expr vectors = exprs().mul(exprs().div(rest, constant(lanes)), constant(lanes));
  // 0 for the threads whose element lies before the vectors, 1 for the others: a block has fewer.
  const Expr more = constant(2048);
  Expr behind = exprs().div(exprs().sub(exprs().add(x, more), head), more);
  edges = walk;
  edges[R].index = index_let(exprs().add(x, exprs().mul(vectors, behind)));
  edges[R].vector = edges[R].whole = false;
  at_edge = less(edges[R].index, extents[R]);
  if (!schedule.dims[K].axes.empty()) at_edge = both(at_edge, less(walk[K].index, extents[K]));
  for (Expr part : {rank, split})
    if (part) at_edge = both(at_edge, exprs().apply(Op::eq, {part, constant(0)}));
}

// What `make` adds for one element a thread, where the thread has one of them.
Body Builder::on_edges(const std::function<void(Body&)>& make) {
  Body body;
  const auto before = std::make_tuple(lanes, unroll, step_at, checks, raw_of, shared_of);
  elements_of.swap(edge_of);
  lanes = unroll = 1;
  step_at = constant(0);
  checks = false;
  raw_of.assign(raw_of.size(), -1);
  shared_of.assign(shared_of.size(), -1);
  make(body);
  std::tie(lanes, unroll, step_at, checks, raw_of, shared_of) = before;
  elements_of.swap(edge_of);
  map_expressions(body, [&](Expr e) { return address(exprs(), edges, e, nullptr); });
  Body out;
  if (!body.empty()) out.push_back({If{.condition = at_edge, .body = std::move(body)}});
  return out;
}

// The elements of rows before and behind the whole vectors: each is read once.
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

// The step once for each shift of what all rows read: which words make a vector is known in each,
// where choosing them takes more instructions than the arithmetic of a layer norm. The shift is the
// same for all threads of a row: no warp runs two of them.
Body Builder::by_shift(const std::function<Body()>& step) {
  Body out;
  for (part_here = 0; part_here < parts; ++part_here)
    out.push_back({If{.condition = exprs().apply(Op::eq, {shift_part, constant(part_here)}),
                      .body = step()}});
  part_here = -1;
  return out;
}

}  // namespace fuser::tile
