// Rows in shared memory: their positions, the copies that fill them, and prefetched reads. See
// reduction.cpp.
#include <algorithm>

#include "lower/build/reduction_builder.h"

namespace fuser::lower::reduction {

using namespace fusion;
using namespace ir;
using namespace schedule;

// Returns the position of the thread's elements of a row in shared memory. Only the copying thread
// reads them, so no barrier is needed.
Expr Builder::shared_element(int access, Expr step_of_stage) {
  if (packed) return packed_element(access);
  if (has_shape(access, StagingShape::Tile)) return staged_element(access);
  Expr t = exprs().add(exprs().mul(y, constant(threads_x)), x);
  Expr step = step_at;
  if (rolled()) step = exprs().add(exprs().mul(var(serial_var), constant(unroll)), step);
  step = exprs().mul(step, constant(schedule.launch.threads));
  Expr at = exprs().mul(exprs().add(step, t), constant(vector));
  at = exprs().add(at, elements_before(access));
  if (!step_of_stage) return at;
  return exprs().add(
      at, exprs().mul(step_of_stage, constant(unroll * schedule.launch.threads * vector)));
}

// Returns the elements of a row that this block of the cluster holds in shared memory; with packed
// rows or staging tiles, the elements of all rows of the block.
Expr Builder::row_elements() {
  if (has_tile()) return exprs().mul(constant(int64_t{threads_y} * rows_per_thread), extents[R]);
  return exprs().mul(serial_count, constant(int64_t{schedule.launch.threads} * unroll * vector));
}

// Rows whose length is known only at launch are adjacent in the shared memory that each launch
// allocates. Rows of constant length are buffers of constant size, whose addresses are fixed.
bool Builder::grows() { return (rolled() || has_tile()) && !row_elements()->is_constant(); }

Expr Builder::elements_before(int access) {
  return grows() ? exprs().mul(row_elements(), constant(before_of[access])) : constant(0);
}

void Builder::declare_places() {
  raw_of.assign(problem.accesses.size(), -1);
  shared_of.assign(problem.accesses.size(), -1);
  elements_of.assign(problem.accesses.size(), -1);
  edge_of.assign(problem.accesses.size(), -1);
  output_of.assign(problem.accesses.size(), -1);
  before_of.assign(problem.accesses.size(), 0);
  const std::vector<int> taken = places_to_take();
  // Place large dtypes first, so that the space in front of a row is a multiple of its element
  // size.
  int bytes = 0;
  for (int size : {16, 8, 4, 2, 1}) {
    for (size_t i = 0; i < problem.accesses.size(); ++i) {
      const MemoryAccess& a = problem.accesses[i];
      if (place_of(static_cast<int>(i)) != Place::Shared || size_of(a.dtype) != size ||
          taken[i] >= 0)
        continue;
      const int64_t stored = int64_t{stages} * unroll * schedule.launch.threads * vector;
      const bool whole = rolled() || crosses(static_cast<int>(i));
      if (whole) before_of[i] = bytes / size, bytes += size;
      shared_of[i] = new_shared(name_of("s", static_cast<int>(i)), a.dtype,
                                whole ? row_elements() : constant(stored));
    }
  }
  for (size_t i = 0; i < taken.size(); ++i)
    if (taken[i] >= 0) shared_of[i] = shared_of[taken[i]], before_of[i] = before_of[taken[i]];
  if (grows()) kernel.shared_rows = exprs().mul(row_elements(), constant(bytes));
}

// Copies one row into shared memory; `row` is as for row_at().
Body Builder::copies(Expr row, Expr step_of_stage, const Known& known) {
  Body body;
  for (size_t i = 0; i < problem.accesses.size(); ++i) {
    if (shared_of[i] < 0 || crosses(static_cast<int>(i))) continue;
    const MemoryAccess& a = problem.accesses[i];
    const Mask g = mask(axes_of(problem, a), nullptr);
    body.push_back({AsyncCopy{.shared = shared_of[i],
                              .element = shared_element(static_cast<int>(i), step_of_stage),
                              .width = vector,
                              .buffer = a.buffer,
                              .offset = at_row(offset_of(kernel, a, known), row),
                              .in = at_row(inside(g, a), row)}});
  }
  body = stepped(std::move(body));
  body.push_back({AsyncCommit{}});
  return body;
}

// Start the copies of the first rows. next_copies() starts the copy of a later row in each
// iteration.
Body Builder::first_copies() {
  Body body;
  const Known none(values().size(), nullptr);
  for (int i = 0; has_copies() && i + 1 < stages; ++i)
    append(body, copies(constant(i), constant(i), none));
  return body;
}

Body Builder::next_copies() {
  Body body;
  if (!has_copies()) return body;
  const int ahead = stages - 1;
  Expr next = exprs().add(row_at(), constant(ahead));
  body = copies(next, exprs().mod(next, constant(stages)), Known(values().size(), nullptr));
  body.push_back({AsyncWait{ahead}});
  return body;
}

// Returns the expression with the row variables replaced by `row`; see row_at().
Expr Builder::at_row(Expr e, Expr row) {
  if (!e || !row) return e;
  return rewrite(exprs(), address(exprs(), index_map, e, nullptr), [&](Expr n) -> Expr {
    if (!n->is_symbol(Symbol::Var)) return nullptr;
    if (n->a == tile_var) return exprs().div(row, constant(rows_per_thread));
    if (n->a == row_var) return tile_var < 0 ? row : exprs().mod(row, constant(rows_per_thread));
    return nullptr;
  });
}

Body Builder::read_ahead(Expr row) {
  Body body;
  for (size_t i = 0; i < problem.accesses.size(); ++i) {
    if (next_of[i] < 0) continue;
    const MemoryAccess& a = problem.accesses[i];
    const Mask g = mask(axes_of(problem, a), nullptr);
    body.push_back(
        {Load{.array = next_of[i],
              .element = constant(0),
              .width = 1,
              .buffer = a.buffer,
              .offset = at_row(offset_of(kernel, a, Known(values().size(), nullptr)), row),
              .in = at_row(inside(g, a), row)}});
  }
  return body;
}

void Builder::declare_ahead() {
  next_of.assign(problem.accesses.size(), -1);
  if (!takes_rows() || (has_tile() && tile_var < 0)) return;
  for (size_t i = 0; i < problem.accesses.size(); ++i) {
    const MemoryAccess& a = problem.accesses[i];
    const AxisSet axes = axes_of(problem, a);
    if (a.store || is_loaded(a) || over(axes, R) || !over(axes, K)) continue;
    next_of[i] = new_array(name_of("n", static_cast<int>(i)), a.dtype, 1);
  }
}

bool Builder::has_copies() const {
  for (size_t i = 0; i < shared_of.size(); ++i)
    if (shared_of[i] >= 0 && !crosses(static_cast<int>(i))) return true;
  return false;
}

// Returns the sequence number of the current row among the rows that a thread processes.
Expr Builder::row_at() {
  Expr turn = row_var < 0 ? constant(0) : var(row_var);
  return tile_var < 0 ? turn
                      : exprs().add(exprs().mul(var(tile_var), constant(rows_per_thread)), turn);
}

// Returns the index of the thread's current row within its block.
Expr Builder::row_of_block() {
  return row_var < 0 ? y : exprs().add(exprs().mul(var(row_var), constant(threads_y)), y);
}

// Emits the rows of a block between the copies into and out of shared memory. A persistent grid
// processes one tile after another.
void Builder::take_tile() {
  // The group of a tile's copies is closed by the next row copies, if there are any.
  const auto copy_next = [&](Body& to, Expr turn) {
    append(to, copy_tiles(turn));
    if (prefetches && (!has_copies() || stages < 2)) to.push_back({AsyncCommit{}});
  };
  if (tile_var >= 0) {
    copy_next(kernel.body, constant(0));
    append(kernel.body, before_rows());
  }
  Body body = packed ? packed_in() : tiles_in();
  if (tile_var >= 0) copy_next(body, exprs().add(var(tile_var), constant(1)));
  Body row = next_copies();
  compute_row(row);
  if (row_var < 0)
    append(body, std::move(row));
  else
    body.push_back(
        {Serial{.var = row_var, .extent = row_count, .unroll = 1, .body = std::move(row)}});
  append(body, packed ? packed_out() : tiles_out());
  if (tile_var < 0) return append(kernel.body, std::move(body));
  body.push_back({Barrier{}});  // the next tile reuses the shared memory
  kernel.body.push_back(
      {Serial{.var = tile_var, .extent = tile_count, .unroll = 1, .body = std::move(body)}});
}

Expr Builder::stage_step() {
  if (stages <= 1 || !takes_rows()) return nullptr;
  return exprs().mod(row_at(), constant(stages));
}

}  // namespace fuser::lower::reduction
