// CPU kernels whose tensors disagree on the innermost axis. Lanes run along L. An access that is
// contiguous along S moves as a tile: vectors along S, as many as there are lanes. A transpose in
// registers turns it, so that each element of the array has lanes along L. Neighbouring tiles
// follow each other along S, because the processor fetches neighbouring lines together. See
// cpu.cpp.
#include "lower/build/cpu_builder.h"

namespace fuser::lower::cpu {

using namespace fusion;
using namespace ir;

void Builder::tile_rows(Body& body, const Known& known) {
  const auto iterate = [&](Body& b, Expr count, const Make& make) { loop(b, count, make); };
  const auto row_of_tiles = [&](Body& b) {
    Known of_vector = known;
    emit_kept(b, 0, of_vector, [&](AxisSet of) { return !(of & axes[S]); });
    const Share& s = shares[S];
    loop(b, ceil_div(s.size, constant(lanes)), [&](Body& inner, Expr i) {
      const Expr done = exprs().mul(i, constant(lanes));
      tile(inner, of_vector, index_let(inner, exprs().add(s.first, done)));
    });
  };
  vectors(body, iterate, row_of_tiles, row_of_tiles);
}

// Appends the moves of tiles between memory and arrays, with lanes along S.
void Builder::move_tile(Body& body, const std::vector<int>& tiled, const Known& known, Expr first,
                        Expr columns) {
  if (tiled.empty()) return;
  const Expr along_lanes = index_map[L].index;
  loop(body, rest ? rest : constant(lanes), [&](Body& b, Expr row) {
    index_map[S].index = exprs().add(first, lane());
    index_map[L].index = exprs().add(lane_base, row);
    const Expr count = exprs().sub(columns, lane());
    for (int i : tiled) {
      const MemoryAccess& a = problem.accesses[i];
      const Expr offset = place(offset_of(kernel, a, known));
      if (a.store)
        b.push_back({Write{.array = array_of_access[i],
                           .element = row,
                           .buffer = a.buffer,
                           .offset = offset,
                           .count = count,
                           .cache = schedule.accesses[i].cache}});
      else
        b.push_back({Load{.array = array_of_access[i],
                          .element = row,
                          .buffer = a.buffer,
                          .offset = offset,
                          .count = count}});
    }
  });
  index_map[L].index = along_lanes;
}

void Builder::tile(Body& body, Known known, Expr first) {
  const Share& s = shares[S];
  const Expr columns = index_let(body, exprs().sub(exprs().add(s.first, s.size), first));
  std::vector<int> reads, stores;
  for (int i = 0; i < static_cast<int>(problem.accesses.size()); ++i)
    if (is_tiled(i)) (problem.accesses[i].store ? stores : reads).push_back(i);
  move_tile(body, reads, known, first, columns);
  for (int i : reads) body.push_back({LaneTranspose{array_of_access[i]}});
  const Expr points = exprs().apply(Op::minimum, {columns, constant(lanes)});
  loop(body, index_let(body, points), [&](Body& b, Expr i) {
    index_map[S].index = index_let(b, exprs().add(first, i));
    tile_index = i;
    Known all = known;
    for (int read : reads) {
      const MemoryAccess& a = problem.accesses[read];
      all[a.index] = exprs().element(array_of_access[read], i, a.dtype);
    }
    emit_kept(b, 0, all, [](AxisSet) { return true; });
    kept_stores(b, all);
  });
  for (int i : stores) body.push_back({LaneTranspose{array_of_access[i]}});
  move_tile(body, stores, known, first, columns);
}

}  // namespace fuser::lower::cpu
