// Short rows that follow each other in memory. Those of a block are one stretch of it, which starts
// at a multiple of a vector wherever its rows start: threads copy it to shared memory vector by
// vector, walk their rows there, leave results in it, and store it as it came. See tiles.cpp.
//
// A row of 17 elements then takes as many transactions as 17 of a long one, and has as few threads
// as its length asks for, down to one for several of them, since none waits for memory.
#include <algorithm>
#include <bit>

#include "lower/tile_builder.h"

namespace fuser::tile {

bool Builder::crosses(int access) const {
  return place_of(access) == Place::Shared && (schedule.stretch || is_across(access));
}

// The row of a thread. What a warp reads at once is then in different banks, whatever the length:
// rows are an odd number of steps' elements long (else they have longer vectors), so that those of
// a warp are taken as far from each other as one has elements at once, words at least, or as there
// are warps.
Expr Builder::spread_row() {
  int word = lanes;  // elements that one needs, or what a thread reads at once
  for (size_t i = 0; i < problem.accesses.size(); ++i)
    if (crosses(static_cast<int>(i))) word = std::max(word, 4 / size_of(problem.accesses[i].dtype));
  const int beside = std::min(columns * (word / lanes), schedule.threads / warp);
  const auto apart = static_cast<int>(std::bit_floor(static_cast<unsigned>(std::max(1, beside))));
  if (apart == 1) return y;
  const int groups = warp / columns;  // rows of a warp
  Expr row = exprs().mod(y, constant(groups)), turn = exprs().div(y, constant(groups));
  Expr near = exprs().mod(turn, constant(apart)), far = exprs().div(turn, constant(apart));
  row = exprs().add(exprs().mul(row, constant(apart)), near);
  return index_let(exprs().add(row, exprs().mul(far, constant(groups * apart))));
}

// Where the stretch of a block lies, and what of a row is a thread's.
void Builder::place_stretch() {
  stretch_start = index_let(exprs().mul(tile, row_elements()));
  Expr rest = exprs().sub(exprs().mul(extents[K], extents[R]), stretch_start);
  stretch_count = index_let(exprs().apply(Op::minimum, {row_elements(), rest}));
  if (serial_var < 0 || unroll == 1) return;
  Expr vectors = exprs().div(extents[R], constant(lanes));
  Expr steps = index_let(ceil_div(exprs().sub(vectors, x), constant(columns)));
  own_groups = index_let(exprs().div(steps, constant(unroll)));
  own_rest = index_let(exprs().sub(steps, exprs().mul(own_groups, constant(unroll))));
}

// A walk in as many steps as a thread has elements, none of which is asked whether it exists:
// unrolled ones, and the rest one by one. To ask takes a quarter of the instructions of a softmax.
Body Builder::own_steps(const Walk& w) {
  checks = false;
  Serial groups{.var = serial_var, .extent = own_groups, .unroll = 1, .body = unrolled(step(w))};
  Serial rest{.var = unroll_var, .extent = own_rest, .unroll = 1, .body = step(w)};
  checks = true;
  If behind{.condition = less(constant(0), own_rest), .body = {}};
  behind.body.push_back({Let{.var = serial_var, .value = own_groups, .index = true}});
  behind.body.push_back({std::move(rest)});
  Body row;
  row.push_back({std::move(groups)});
  row.push_back({std::move(behind)});
  const Guard g = guard(axes_of_dim[K], nullptr);
  if (!g.in) return row;
  Body out;
  out.push_back({If{.condition = g.in, .body = std::move(row)}});
  return out;
}

// Where an element of a row lies in the stretch.
Expr Builder::stretch_element(int access) {
  Expr at = exprs().add(exprs().mul(row_of_block(), extents[R]), walk[R].index);
  return exprs().add(at, elements_before(access));
}

// By access: the read in whose place a result is left, by the thread that alone reads it, when it
// does so last. -1: it has a place of its own.
std::vector<int> Builder::places_to_take() const {
  std::vector<int> taken(problem.accesses.size(), -1);
  std::vector<bool> free(problem.accesses.size(), true);
  for (size_t i = 0; i < taken.size(); ++i) {
    const MemoryAccess& store = problem.accesses[i];
    if (!store.store || !crosses(static_cast<int>(i)) || walks.store[i] != walks.phases) continue;
    for (size_t r = 0; r < taken.size() && taken[i] < 0; ++r) {
      const MemoryAccess& read = problem.accesses[r];
      if (read.store || !crosses(static_cast<int>(r)) || !free[r] || read.dtype != store.dtype)
        continue;
      taken[i] = static_cast<int>(r);
      free[r] = false;
    }
  }
  return taken;
}

// `whole` for each vector of the stretch, one a thread and step, and `rest` for each element behind
// them, of which there are fewer than threads: at a place in the stretch, where it exists.
Body Builder::along_stretch(int width, const AtPlace& whole, const AtPlace& rest) {
  Expr thread = exprs().symbol(Symbol::Thread, 0);
  const int step = new_var();
  Expr vector = exprs().add(exprs().mul(var(step), constant(schedule.threads)), thread);
  Expr at = exprs().mul(vector, constant(width));
  Serial loop{.var = step,
              .extent = ceil_div(row_elements(), constant(int64_t{schedule.threads} * width)),
              .body = {}};
  whole(loop.body, at, less(exprs().add(at, constant(width - 1)), stretch_count));
  Body out;
  out.push_back({std::move(loop)});
  Expr vectors = exprs().mul(exprs().div(stretch_count, constant(width)), constant(width));
  Expr behind = exprs().add(vectors, thread);
  rest(out, behind, less(behind, stretch_count));
  return out;
}

// One element or vector from memory to shared memory, or back, through registers.
void Builder::move_place(Body& body, int access, const StretchPlace& p) {
  const MemoryAccess& a = problem.accesses[access];
  const int array = new_array(name_of(p.width > 1 ? "v" : "u", access), a.dtype, p.width);
  Load load{.array = array,
            .element = constant(0),
            .width = p.width,
            .buffer = a.store ? shared_of[access] : a.buffer,
            .offset = a.store ? p.shared : p.offset,
            .in = p.in};
  Write write{.array = array,
              .element = constant(0),
              .width = p.width,
              .buffer = a.store ? a.buffer : shared_of[access],
              .offset = a.store ? p.offset : p.shared,
              .in = p.in};
  body.push_back({std::move(load)});
  body.push_back({std::move(write)});
}

StretchPlace Builder::place_in_stretch(int access, Expr at, Expr in, int width) {
  const MemoryAccess& a = problem.accesses[access];
  Expr start = exprs().add(import(kernel, a.strides->rest), stretch_start);
  return {.offset = exprs().add(start, at),
          .shared = exprs().add(elements_before(access), at),
          .in = in,
          .width = width};
}

Body Builder::stretch_in() {
  Body body;
  for (size_t i = 0; i < problem.accesses.size(); ++i) {
    const MemoryAccess& a = problem.accesses[i];
    const int access = static_cast<int>(i), width = vector_bytes / size_of(a.dtype);
    if (a.store || !crosses(access)) continue;
    append(body, along_stretch(
                     width,
                     [&](Body& out, Expr at, Expr in) {
                       // A copy of what does not exist would write zeros behind the stretch.
                       const StretchPlace p = place_in_stretch(access, at, in, width);
                       If there{.condition = in, .body = {}};
                       there.body.push_back({Copy{.shared = shared_of[i],
                                                  .element = p.shared,
                                                  .width = width,
                                                  .buffer = a.buffer,
                                                  .offset = p.offset}});
                       out.push_back({std::move(there)});
                     },
                     [&](Body& out, Expr at, Expr in) {
                       move_place(out, access, place_in_stretch(access, at, in, 1));
                     }));
  }
  body.push_back({Commit{}});
  body.push_back({Wait{0}});
  body.push_back({Barrier{}});
  return body;
}

Body Builder::stretch_out() {
  Body body;
  for (size_t i = 0; i < problem.accesses.size(); ++i) {
    const MemoryAccess& a = problem.accesses[i];
    const int access = static_cast<int>(i), width = vector_bytes / size_of(a.dtype);
    if (!a.store || !crosses(access)) continue;
    if (body.empty()) body.push_back({Barrier{}});
    const auto move = [&](int elements) {
      return [=, this](Body& out, Expr at, Expr in) {
        move_place(out, access, place_in_stretch(access, at, in, elements));
      };
    };
    append(body, along_stretch(width, move(width), move(1)));
  }
  return body;
}

}  // namespace fuser::tile
