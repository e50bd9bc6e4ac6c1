// Short rows that follow each other in memory. Those of a block are one stretch of it, which starts
// at a multiple of a vector wherever its rows start: threads copy it to shared memory vector by
// vector, walk their rows there, leave results in it, and store it as it came. See tiles.cpp.
//
// A row of 17 elements then takes as many transactions as 17 of a long one, and has as few threads
// as its length asks for, down to one for several of them, since none waits for memory.
#include "lower/tile_builder.h"

namespace fuser::tile {

bool Builder::crosses(int access) const { return has_tile() && place_of(access) == Place::Shared; }

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
