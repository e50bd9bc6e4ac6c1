// Tensors that lie across the rows: neighbours in memory belong to neighbouring rows. What the rows
// of a block read or store of one is a tile, which crosses shared memory: threads move runs of
// neighbours, one column each, and walk their rows where a row's elements lie side by side. A
// persistent block does so with one tile after the other. See tiles.cpp.
//
// The chunks of a row, as many elements as a thread takes at once, are rotated by the run that the
// row belongs to: threads that move runs of one column stand at different banks, and so do those
// that walk one row.
#include <algorithm>

#include "base/error.h"
#include "lower/tile_builder.h"

namespace fuser::tile {

bool Builder::is_across(int access) const { return access < 63 && (schedule.across >> access & 1); }

// Neighbouring rows that one vector of the tensor belongs to.
int Builder::run_of(int access) const {
  return std::min(schedule.run, vector_bytes / size_of(problem.accesses[access].dtype));
}

// Where an element lies in the tile.
Expr Builder::tile_element(int access, Expr row, Expr run, Expr chunk, Expr lane) {
  Expr chunks = exprs().div(extents[R], constant(lanes));
  Expr rotated = exprs().mod(exprs().add(chunk, run), chunks);
  Expr at = exprs().add(exprs().mul(row, extents[R]), exprs().mul(rotated, constant(lanes)));
  return exprs().add(exprs().add(at, lane), elements_before(access));
}

// Where a thread's chunk of its row lies.
Expr Builder::across_element(int access) {
  Expr row = row_of_block();
  Expr chunk = exprs().add(exprs().mul(step_at, constant(columns)), x);
  return tile_element(access, row, exprs().div(row, constant(run_of(access))), chunk, constant(0));
}

namespace {

// One end of a tile's way: its accesses for the columns that are moved together, as many elements
// each as lie side by side there.
struct End {
  int array = 0, buffer = 0;
  Expr offset = nullptr;
  int access_var = 0, accesses = 1, width = 1;
};

Stmt each(int v, int extent, Stmt s) {
  Body body;
  body.push_back(std::move(s));
  return {For{.var = v, .extent = extent, .body = std::move(body)}};
}

}  // namespace

// Moves the tile of an access: from its tensor to shared memory, or back. A thread moves the runs
// of as many columns together as fill a bank, and has several of these under way; the run that it
// is in stays the same.
Body Builder::cross_tile(int access) {
  constexpr int bank_bytes = 4, bytes_beside = 64, most_beside = 8;
  const MemoryAccess& a = problem.accesses[access];
  const int size = size_of(a.dtype), length = run_of(access), runs = rows * turns / length;
  const int together = std::clamp(bank_bytes / size, 1, lanes);
  FUSER_ASSERT(schedule.threads % runs == 0, schedule.threads, " threads move ", runs, " runs");
  const int at_once = schedule.threads / runs;  // of the columns that are moved together
  // As many as the longest row takes in as few steps.
  const int all = columns * unroll * lanes;
  const int most = std::clamp(bytes_beside / (together * length * size), 1, most_beside);
  const int moves = (all + at_once * together - 1) / (at_once * together);
  const int steps = (moves + most - 1) / most, count = (moves + steps - 1) / steps;
  const int step = new_var(), beside = new_var(), of_run = new_var(), of_bank = new_var();
  Expr thread = exprs().symbol(Symbol::Thread, 0);
  Expr run = exprs().mod(thread, constant(runs)), first = exprs().mul(run, constant(length));
  Expr column = exprs().add(exprs().mul(var(step), constant(count)), var(beside));
  column = exprs().add(exprs().mul(column, constant(at_once)), exprs().div(thread, constant(runs)));
  column = exprs().mul(column, constant(together));

  std::vector<LinearAxes> at = walk;
  for (LinearAxes& w : at) w.vector = w.whole = false;
  at[K].index = exprs().add(exprs().mul(tile_of_rows, constant(int64_t{rows} * turns)), first);
  at[R].index = exprs().add(column, var(of_bank));
  Expr in = both(less(at[K].index, extents[K]), less(column, extents[R]));
  const Expr offset = offset_of(kernel, a, Known(values().size(), nullptr));
  End memory{.array = new_array(name_of("u", access), a.dtype, count * together * length),
             .buffer = a.buffer,
             .offset = address(exprs(), at, offset, nullptr),
             .access_var = of_bank,
             .accesses = together,
             .width = length};
  End shared{.array = memory.array,
             .buffer = shared_of[access],
             .offset = tile_element(access, exprs().add(first, var(of_run)), run,
                                    exprs().div(column, constant(lanes)),
                                    exprs().mod(column, constant(lanes))),
             .access_var = of_run,
             .accesses = length,
             .width = together};
  if (together > 1)
    shared.array = new_array(name_of("t", access), a.dtype, count * together * length);

  const End& from = a.store ? shared : memory;
  const End& to = a.store ? memory : shared;
  const auto element = [&](const End& end, Expr of_access) {
    Expr e = exprs().add(exprs().mul(var(beside), constant(end.accesses)), var(end.access_var));
    return exprs().add(exprs().mul(e, constant(end.width)), of_access);
  };
  Stmt load = each(from.access_var, from.accesses,
                   {Load{.array = from.array,
                         .element = element(from, constant(0)),
                         .width = from.width,
                         .buffer = from.buffer,
                         .offset = from.offset,
                         .in = in}});
  const Expr one = exprs().element(from.array, element(from, var(to.access_var)), a.dtype);
  Stmt turn = each(
      of_run, length,
      each(
          of_bank, together,
          {Assign{.array = to.array, .element = element(to, var(from.access_var)), .value = one}}));
  Stmt write = each(to.access_var, to.accesses,
                    {Write{.array = to.array,
                           .element = element(to, constant(0)),
                           .width = to.width,
                           .buffer = to.buffer,
                           .offset = to.offset,
                           .in = in}});
  Serial loop{.var = step,
              .extent = ceil_div(extents[R], constant(int64_t{at_once} * count * together)),
              .body = {}};
  loop.body.push_back(each(beside, count, std::move(load)));
  if (from.array != to.array) loop.body.push_back(each(beside, count, std::move(turn)));
  loop.body.push_back(each(beside, count, std::move(write)));
  Body out;
  out.push_back({std::move(loop)});
  return out;
}

Body Builder::cross_tiles(bool stores) {
  Body body;
  for (size_t i = 0; i < problem.accesses.size(); ++i)
    if (is_across(static_cast<int>(i)) && problem.accesses[i].store == stores)
      append(body, cross_tile(static_cast<int>(i)));
  return body;
}

Body Builder::tiles_in() {
  Body body = cross_tiles(false);
  if (!body.empty()) body.push_back({Barrier{}});
  return body;
}

Body Builder::tiles_out() {
  Body moves = cross_tiles(true), body;
  if (!moves.empty()) body.push_back({Barrier{}});
  append(body, std::move(moves));
  return body;
}

}  // namespace fuser::tile
