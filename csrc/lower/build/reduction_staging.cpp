// Staging tiles of uncoalesced accesses: neighbours in memory belong to neighbouring rows. The
// elements that the rows of a block read or store form a tile, which passes through shared memory.
// Threads copy it as vectors along K, one column each, and reduce rows whose elements are adjacent
// there. A persistent block processes one tile after another. See reduction.cpp.
//
// The swizzle rotates the chunks of a row, as long as a thread's vector, by the vector index of the
// row along K. So threads that copy vectors of one column use different banks, and so do threads
// that read a row.
#include <algorithm>

#include "base/error.h"
#include "lower/build/reduction_builder.h"

namespace fuser::lower::reduction {

using namespace fusion;
using namespace ir;
using namespace schedule;

// Returns the position of an element in the staging tile.
Expr Builder::tile_element(int access, Expr row, Expr run, Expr chunk, Expr lane) {
  Expr chunks = exprs().div(extents[R], constant(vector));
  Expr turn = exprs().mul(run, constant(stagings[access]->swizzle));
  Expr rotated = exprs().mod(exprs().add(chunk, turn), chunks);
  Expr at = exprs().add(exprs().mul(row, extents[R]), exprs().mul(rotated, constant(vector)));
  return exprs().add(exprs().add(at, lane), elements_before(access));
}

// Returns the position of a thread's chunk of its row.
Expr Builder::staged_element(int access) {
  Expr row = row_of_block();
  Expr chunk = exprs().add(exprs().mul(step_at, constant(threads_x)), x);
  return tile_element(access, row, exprs().div(row, constant(stagings[access]->rows_per_vector)),
                      chunk, constant(0));
}

namespace {

// One end of a copy between tensor and staging tile: its accesses for the adjacent columns, each as
// wide as elements are contiguous at that end.
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

StagingCopy Builder::moves_of(int access, Expr tile_of_rows) {
  const MemoryAccess& a = problem.accesses[access];
  const int run = stagings[access]->rows_per_vector;
  const StagingMoves by = staging_moves(schedule.launch.threads, threads_y * rows_per_thread, run,
                                        size_of(a.dtype), vector, threads_x * unroll * vector);
  const int runs = schedule.launch.threads / by.at_once;
  StagingCopy m{.length = run, .together = by.together, .count = by.count, .elements = by.elements};
  m.step = new_var(), m.beside = new_var(), m.of_run = new_var(), m.of_bank = new_var();
  Expr thread = exprs().symbol(Symbol::Thread, 0);
  m.run = exprs().mod(thread, constant(runs));
  m.first = exprs().mul(m.run, constant(m.length));
  Expr move = exprs().add(exprs().mul(var(m.step), constant(m.count)), var(m.beside));
  Expr column =
      exprs().add(exprs().mul(move, constant(by.at_once)), exprs().div(thread, constant(runs)));
  m.column = exprs().mul(column, constant(m.together));
  m.steps = ceil_div(extents[R], constant(int64_t{by.at_once} * m.count * m.together));
  Expr place = exprs().add(exprs().mul(move, constant(m.together)), var(m.of_bank));
  place = exprs().add(exprs().mul(place, constant(schedule.launch.threads)), thread);
  m.place = exprs().mul(place, constant(m.length));

  std::vector<LinearAxes> at = index_map;
  for (LinearAxes& w : at) w.vector = w.whole = false;
  at[K].index = exprs().add(
      exprs().mul(tile_of_rows, constant(int64_t{threads_y} * rows_per_thread)), m.first);
  at[R].index = exprs().add(m.column, var(m.of_bank));
  m.in = both(less(at[K].index, extents[K]), less(m.column, extents[R]));
  const Expr offset = offset_of(kernel, a, Known(values().size(), nullptr));
  m.offset = address(exprs(), at, offset, nullptr);
  return m;
}

// Tiles that a persistent block reads next are copied while it processes the current tile. The
// copying thread alone reads such a copy when it transposes it.
void Builder::declare_prefetch() {
  prefetch_of.assign(problem.accesses.size(), -1);
  for (size_t i = 0; i < problem.accesses.size(); ++i) {
    if (!stagings[i] || !stagings[i]->prefetch) continue;
    const MemoryAccess& a = problem.accesses[i];
    const StagingCopy m = moves_of(static_cast<int>(i), tile);
    prefetch_of[i] =
        new_shared(name_of("a", static_cast<int>(i)), a.dtype, static_cast<int>(m.elements));
  }
}

// Returns the index along K of the tile that a block processes in iteration `turn`.
Expr Builder::tile_at(Expr turn) { return exprs().add(exprs().mul(turn, tiles), tile); }

Body Builder::copy_tiles(Expr turn) {
  Body out;
  for (size_t i = 0; i < prefetch_of.size(); ++i) {
    if (prefetch_of[i] < 0) continue;
    const StagingCopy m = moves_of(static_cast<int>(i), tile_at(turn));
    AsyncCopy copy{.shared = prefetch_of[i],
                   .element = m.place,
                   .width = m.length,
                   .buffer = problem.accesses[i].buffer,
                   .offset = m.offset,
                   .in = m.in};
    Serial loop{.var = m.step, .extent = m.steps, .body = {}};
    loop.body.push_back(each(m.beside, m.count, each(m.of_bank, m.together, {std::move(copy)})));
    out.push_back({std::move(loop)});
  }
  return out;
}

// Copies the staging tile of an access from its tensor to shared memory, or back.
Body Builder::stage_tile(int access) {
  const MemoryAccess& a = problem.accesses[access];
  const StagingCopy m = moves_of(access, tile_var < 0 ? tile : tile_at(var(tile_var)));
  const int count = m.count, together = m.together, length = m.length;
  const int beside = m.beside, of_run = m.of_run, of_bank = m.of_bank;
  const bool ahead = prefetch_of[access] >= 0;
  End memory{.array = new_array(name_of("u", access), a.dtype, count * together * length),
             .buffer = ahead ? prefetch_of[access] : a.buffer,
             .offset = ahead ? m.place : m.offset,
             .access_var = of_bank,
             .accesses = together,
             .width = length};
  End shared{.array = memory.array,
             .buffer = shared_of[access],
             .offset = tile_element(access, exprs().add(m.first, var(of_run)), m.run,
                                    exprs().div(m.column, constant(vector)),
                                    exprs().mod(m.column, constant(vector))),
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
                         .in = m.in}});
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
                           .in = m.in}});
  Serial loop{.var = m.step, .extent = m.steps, .body = {}};
  loop.body.push_back(each(beside, count, std::move(load)));
  if (from.array != to.array) loop.body.push_back(each(beside, count, std::move(turn)));
  loop.body.push_back(each(beside, count, std::move(write)));
  Body out;
  out.push_back({std::move(loop)});
  return out;
}

Body Builder::stage_tiles(bool stores) {
  Body body;
  for (size_t i = 0; i < problem.accesses.size(); ++i)
    if (has_shape(static_cast<int>(i), StagingShape::Tile) && problem.accesses[i].store == stores)
      append(body, stage_tile(static_cast<int>(i)));
  return body;
}

Body Builder::tiles_in() {
  Body body;
  if (prefetches) body.push_back({AsyncWait{0}});
  append(body, stage_tiles(false));
  if (!body.empty()) body.push_back({Barrier{}});
  return body;
}

Body Builder::tiles_out() {
  Body moves = stage_tiles(true), body;
  if (!moves.empty()) body.push_back({Barrier{}});
  append(body, std::move(moves));
  return body;
}

}  // namespace fuser::lower::reduction
