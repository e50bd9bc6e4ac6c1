// Packed rows: short rows that are adjacent in memory. The rows of a block form one range, whose
// start is vector-aligned even if the rows are not. Threads copy the range to shared memory vector
// by vector, reduce their rows there, leave results in place, and store the range as vectors. See
// reduction.cpp.
//
// Short rows then need as few memory transactions per element as long rows. Threads per row follow
// from the row length, down to one thread for several rows, because no thread waits for memory.
#include <algorithm>
#include <bit>

#include "lower/build/reduction_builder.h"

namespace fuser::lower::reduction {

using namespace fusion;
using namespace ir;
using namespace schedule;

bool Builder::crosses(int access) const {
  return stagings[access] && stagings[access]->shape != StagingShape::Row;
}

// Returns the thread's row, permuted so that the rows of a warp fall into different banks for every
// row length. Rows are an odd number of steps long, or else have longer vectors. So the rows of a
// warp are spaced by the number of elements that one row reads at once, at least a word's worth.
// The spacing is limited by the number of warps.
Expr Builder::spread_row() {
  int word = vector;  // elements of a word, or of a thread's vector if that is longer
  for (size_t i = 0; i < problem.accesses.size(); ++i)
    if (crosses(static_cast<int>(i))) word = std::max(word, 4 / size_of(problem.accesses[i].dtype));
  const int beside = std::min(threads_x * (word / vector), schedule.launch.threads / warp);
  const auto apart = static_cast<int>(std::bit_floor(static_cast<unsigned>(std::max(1, beside))));
  if (apart == 1) return y;
  const int groups = warp / threads_x;  // rows of a warp
  Expr row = exprs().mod(y, constant(groups)), turn = exprs().div(y, constant(groups));
  Expr near = exprs().mod(turn, constant(apart)), far = exprs().div(turn, constant(apart));
  row = exprs().add(exprs().mul(row, constant(apart)), near);
  return index_let(exprs().add(row, exprs().mul(far, constant(groups * apart))));
}

// Computes the range of a block's packed rows, and the steps of a row that a thread executes.
void Builder::place_packed() {
  packed_start = index_let(exprs().mul(tile, row_elements()));
  Expr rest = exprs().sub(exprs().mul(extents[K], extents[R]), packed_start);
  packed_count = index_let(exprs().apply(Op::minimum, {row_elements(), rest}));
  if (serial_var < 0 || unroll == 1) return;
  Expr vectors = exprs().div(extents[R], constant(vector));
  Expr steps = index_let(ceil_div(exprs().sub(vectors, x), constant(threads_x)));
  own_groups = index_let(exprs().div(steps, constant(unroll)));
  own_rest = index_let(exprs().sub(steps, exprs().mul(own_groups, constant(unroll))));
}

// Emits a reduction loop with exactly as many steps as the thread has elements: unrolled groups,
// then single steps. No step needs a mask, which would be a large fraction of the instructions.
Body Builder::own_steps(const ReductionLoop& w) {
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
  const Mask g = mask(axes_of_dim[K], nullptr);
  if (!g.in) return row;
  Body out;
  out.push_back({If{.condition = g.in, .body = std::move(row)}});
  return out;
}

// Returns the position of an element of a row in the packed rows.
Expr Builder::packed_element(int access) {
  Expr at = exprs().add(exprs().mul(row_of_block(), extents[R]), index_map[R].index);
  return exprs().add(at, elements_before(access));
}

// By access: the read whose shared memory a result reuses. The thread that stores the result is the
// only reader, and it reads before it writes. -1: the result has memory of its own.
std::vector<int> Builder::places_to_take() const {
  std::vector<int> taken(problem.accesses.size(), -1);
  std::vector<bool> free(problem.accesses.size(), true);
  for (size_t i = 0; i < taken.size(); ++i) {
    const MemoryAccess& store = problem.accesses[i];
    if (!store.store || !crosses(static_cast<int>(i)) || phases.store[i] != phases.count) continue;
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

// Emits `whole` for each vector of the packed rows, one per thread and step. Emits `rest` for each
// of the remaining elements, which are fewer than the threads. Both get a position and its mask.
Body Builder::along_packed(int width, const AtPlace& whole, const AtPlace& rest) {
  Expr thread = exprs().symbol(Symbol::Thread, 0);
  const int step = new_var();
  Expr vector = exprs().add(exprs().mul(var(step), constant(schedule.launch.threads)), thread);
  Expr at = exprs().mul(vector, constant(width));
  Serial loop{
      .var = step,
      .extent = ceil_div(row_elements(), constant(int64_t{schedule.launch.threads} * width)),
      .body = {}};
  whole(loop.body, at, less(exprs().add(at, constant(width - 1)), packed_count));
  Body out;
  out.push_back({std::move(loop)});
  Expr vectors = exprs().mul(exprs().div(packed_count, constant(width)), constant(width));
  Expr behind = exprs().add(vectors, thread);
  rest(out, behind, less(behind, packed_count));
  return out;
}

// Moves one element or vector from memory to shared memory, or back, through registers.
void Builder::move_packed(Body& body, int access, const PackedPosition& p) {
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

PackedPosition Builder::packed_position(int access, Expr at, Expr in, int width) {
  const MemoryAccess& a = problem.accesses[access];
  Expr start = exprs().add(import(kernel, a.strides->rest), packed_start);
  return {.offset = exprs().add(start, at),
          .shared = exprs().add(elements_before(access), at),
          .in = in,
          .width = width};
}

Body Builder::packed_in() {
  Body body;
  for (size_t i = 0; i < problem.accesses.size(); ++i) {
    const MemoryAccess& a = problem.accesses[i];
    const int access = static_cast<int>(i), width = vector_bytes / size_of(a.dtype);
    if (a.store || !crosses(access)) continue;
    append(body, along_packed(
                     width,
                     [&](Body& out, Expr at, Expr in) {
                       // A masked copy would write zeros behind the packed rows.
                       const PackedPosition p = packed_position(access, at, in, width);
                       If there{.condition = in, .body = {}};
                       there.body.push_back({AsyncCopy{.shared = shared_of[i],
                                                       .element = p.shared,
                                                       .width = width,
                                                       .buffer = a.buffer,
                                                       .offset = p.offset}});
                       out.push_back({std::move(there)});
                     },
                     [&](Body& out, Expr at, Expr in) {
                       move_packed(out, access, packed_position(access, at, in, 1));
                     }));
  }
  body.push_back({AsyncCommit{}});
  body.push_back({AsyncWait{0}});
  body.push_back({Barrier{}});
  return body;
}

Body Builder::packed_out() {
  Body body;
  for (size_t i = 0; i < problem.accesses.size(); ++i) {
    const MemoryAccess& a = problem.accesses[i];
    const int access = static_cast<int>(i), width = vector_bytes / size_of(a.dtype);
    if (!a.store || !crosses(access)) continue;
    if (body.empty()) body.push_back({Barrier{}});
    const auto move = [&](int elements) {
      return [=, this](Body& out, Expr at, Expr in) {
        move_packed(out, access, packed_position(access, at, in, elements));
      };
    };
    append(body, along_packed(width, move(width), move(1)));
  }
  return body;
}

}  // namespace fuser::lower::reduction
