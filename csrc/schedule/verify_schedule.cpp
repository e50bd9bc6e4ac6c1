#include "schedule/verify_schedule.h"

#include <algorithm>

#include "schedule/device.h"
#include "schedule/schedule_rules.h"

namespace fuser::schedule {

using namespace fusion;
using namespace ir;

namespace {

int64_t lanes_of(const LoopNest& nest) {
  const bool vector = !nest.loops.empty() && nest.loops.back().bind == Bind::Vector;
  return vector ? nest.loops.back().extent : 1;
}

struct Verifier : Rules {
  void nest(const LoopNest& nest) const;
  void accesses() const;
  void stagings() const;
  void reductions() const;
  void linear() const;
  void rows() const;
  void tiles() const;
};

// The Vector loop is innermost, and the thread loops multiply to the threads of a block.
void Verifier::nest(const LoopNest& nest) const {
  int64_t threads = 1;
  bool bound = false;
  for (size_t i = 0; i < nest.loops.size(); ++i) {
    const Loop& l = nest.loops[i];
    expect(l.dim >= 0 && l.dim < static_cast<int>(s.dims.size()), "a loop over d", l.dim, " of ",
           s.dims.size(), " dims");
    expect(l.extent >= 0 && l.extent <= most_extent, "a loop of ", l.extent,
           " steps; expected at most ", most_extent);
    const bool open = l.bind == Bind::GridThread || l.bind == Bind::Grid || l.bind == Bind::Serial;
    expect(open || l.extent > 0, "a loop over d", l.dim, " without an extent");
    expect(l.bind != Bind::Vector || i + 1 == nest.loops.size(),
           "the Vector loop is not innermost");
    expect(!l.unroll || l.bind == Bind::Serial, "unroll of a loop that is not Serial");
    if (l.bind != Bind::ThreadX && l.bind != Bind::ThreadY) continue;
    threads *= l.extent;
    bound = true;
  }
  expect(!bound || threads == s.launch.threads, "loops over ", threads, " threads in blocks of ",
         s.launch.threads);
  const int64_t lanes = lanes_of(nest);
  expect(is_power(lanes) && lanes <= vector_bytes, "a vector of ", lanes,
         " elements; expected a power of two up to ", vector_bytes);
  expect(lanes > 1 || nest.lanes == Lanes(), "lanes of a nest without a Vector loop");
#define FUSER_LANES_NUMBER(name, default_value, least, most, meaning) \
  expect_range(#name, nest.lanes.name, least, most, "the lanes of a nest");
#include "schedule/attributes.def"
  for (ValueId v : nest.computed)
    expect(v >= 0 && v < static_cast<int>(p.refined.values.size()), "value ", v, " of ",
           p.refined.values.size());
  for (int store : nest.stores)
    expect(store >= 0 && store < static_cast<int>(p.refined.stores.size()), "store ", store, " of ",
           p.refined.stores.size());
}

// Every vector is as long as a Vector loop. One of more than 16 bytes takes several instructions.
void Verifier::accesses() const {
  expect(s.accesses.size() == p.accesses.size(), s.accesses.size(), " accesses; the kernel has ",
         p.accesses.size());
  for (size_t i = 0; i < s.accesses.size(); ++i) {
    const Vectorization& a = s.accesses[i];
    const LaneWindow& w = a.window;
    if (a.kind == VectorKind::Scalar) {
      expect(a.width == 1, "scalar access ", i, " of ", a.width, " elements");
    } else {
      expect(std::any_of(s.nests.begin(), s.nests.end(),
                         [&](const LoopNest& n) { return a.width > 1 && a.width == lanes_of(n); }),
             "access ", i, " moves ", a.width, " elements; no Vector loop does");
    }
    expect((a.kind == VectorKind::Strided) == (w != LaneWindow()), "access ", i,
           " and its window; expected a window of a Strided access");
    if (a.kind != VectorKind::Strided) continue;
    expect(!p.accesses[i].store && is_power(w.width) && w.repeat > 0 && w.start >= 0 &&
               (a.width - 1) / w.repeat * w.step + w.start < w.width,
           "the window of access ", i, "; expected a read whose lanes are inside");
  }
}

void Verifier::stagings() const {
  for (size_t i = 0; i < s.stagings.size(); ++i) {
    const Staging& staging = s.stagings[i];
    const bool access = staging.access >= 0;
    const int at = access ? staging.access : staging.value;
    const size_t count = access ? p.accesses.size() : p.refined.values.size();
    const char* const what = access ? "access " : "value ";
    expect(at >= 0 && at < static_cast<int>(count), "a staging of ", what, at, " of ", count);
    expect(staging.place != Place::Reload, what, at, " is staged in no memory");
    for (size_t before = 0; before < i; ++before)
      expect(s.stagings[before].access != staging.access ||
                 (!access && s.stagings[before].value != staging.value),
             what, at, " is staged twice");
    expect(staging.place == Place::Shared || staging.shape == StagingShape::Row, what, at,
           " is staged in registers; expected the shape Row");
#define FUSER_STAGING_NUMBER(name, default_value, least, most, meaning) \
  expect_range(#name, staging.name, least, most, text("the staging of ", what, at));
#include "schedule/attributes.def"
    if (!access || staging.place != Place::Shared || staging.shape != StagingShape::Row) continue;
    const Vectorization& vectors = s.accesses[at];
    expect(
        vectors.kind == VectorKind::Aligned && vectors.width * size_of(p.accesses[at].dtype) >= 4,
        "access ", at, " is copied to shared memory; expected Aligned vectors of 4 bytes or more");
  }
}

void Verifier::reductions() const {
  expect(s.reductions.empty() == !p.reduced, s.reductions.size(),
         " reductions; expected one for each reduced dim");
  bool columns = false;
  for (const Combination& c : s.reductions) {
    expect(c.dim == 0 || c.dim == 1, "a reduction over d", c.dim);
    if (c.dim == 1) continue;
    columns = true;
    expect(c.finish == Finish::Cooperative && c.columns > 0 && s.launch.threads % c.columns == 0,
           "a reduction over d0; expected Cooperative and columns that divide ", s.launch.threads,
           " threads");
  }
  expect(columns == (p.columns != 0), "reductions over d0 do not match those of the kernel");
}

void Verifier::linear() const {
  expect_loops(!p.reduced, "threads of a kernel with reductions are numbered by GridThread loops");
  const LoopNest& nest = s.nests[0];
  const size_t dims = s.dims.size(), vectors = lanes_of(nest) > 1 ? 1 : 0;
  expect_loops(nest.loops.size() == dims + vectors, nest.loops.size(),
               " loops; expected a GridThread loop over each dim and at most one Vector loop");
  for (size_t d = 0; d < dims; ++d)
    expect_loops(nest.loops[d].bind == Bind::GridThread && !nest.loops[d].extent &&
                     nest.loops[d].dim == static_cast<DimId>(d),
                 "loop ", d, "; expected a GridThread loop over d", d, " without an extent");
  if (vectors)
    expect_loops(nest.loops.back().dim == static_cast<DimId>(dims) - 1, "a Vector loop over d",
                 nest.loops.back().dim, "; expected the innermost dim");
  expect_loops(s.stagings.empty(), "a staging between nests; expected none with GridThread loops");
}

void Verifier::rows() const {
  expect_loops(s.dims.size() == 2, s.dims.size(), " dims; expected d0 (kept) and d1 (reduced)");
  for (int d : {0, 1})
    for (AxisId a : s.dims[d].axes)
      expect_loops(!p.reduced || (p.reduced >> a & 1) == static_cast<AxisSet>(d), "axis a", a,
                   " in d", d, "; expected the reduced axes in d1");
  int of_bind[8] = {}, grids[2] = {}, serial[2] = {};
  for (const Loop& l : s.nests[0].loops) {
    ++of_bind[static_cast<int>(l.bind)];
    if (l.bind == Bind::Grid) ++grids[l.dim];
    if (l.bind == Bind::Serial) ++serial[l.dim];
    expect_loops(l.bind != Bind::GridThread, "a GridThread loop beside a ThreadX loop");
  }
  for (Bind b : {Bind::ThreadX, Bind::ThreadY, Bind::Unroll, Bind::Cluster, Bind::Vector})
    expect_loops(of_bind[static_cast<int>(b)] <= 1, "two loops of a kind; expected one");
  expect_loops(grids[0] <= 1 && grids[1] <= 1 && serial[1] <= 1,
               "two Grid loops over a dim, or two Serial loops over d1; expected one");
}

// The nests have one tile: equal extents within a block, and equal Grid loops.
void Verifier::tiles() const {
  std::vector<int64_t> first;
  for (const LoopNest& nest : s.nests) {
    std::vector<int64_t> tile(s.dims.size(), 1);
    for (const Loop& l : nest.loops) {
      expect_loops(l.bind != Bind::GridThread && l.bind != Bind::Cluster && l.bind != Bind::Serial,
                   "a GridThread, Cluster or Serial loop in a tile");
      if (l.bind != Bind::Grid) tile[l.dim] *= l.extent;
    }
    if (first.empty()) first = tile;
    for (size_t d = 0; d < tile.size(); ++d)
      expect_loops(tile[d] == first[d] || nest.ends, "tiles of ", first[d], " and ", tile[d],
                   " elements along d", d, "; expected one tile in all nests");
  }
}

}  // namespace

NestKind nest_kind(const Schedule& s) {
  if (s.nests.size() > 1 || !s.nests[0].stores.empty()) return NestKind::Tiles;
  const std::vector<Loop>& loops = s.nests[0].loops;
  const bool tile = std::any_of(loops.begin(), loops.end(),
                                [](const Loop& l) { return l.bind == Bind::ThreadX; });
  return tile ? NestKind::Rows : NestKind::Linear;
}

void verify(const Problem& whole, const Schedule& s, FaultKind kind) {
  const bool other_form = s.single_pass && whole.single_pass;
  const Verifier v{{other_form ? *whole.single_pass : whole, s, kind}};
  v.expect(!s.single_pass || whole.single_pass, "form single_pass; the kernel has none");
  v.expect(!s.nests.empty(), "no nest; expected at least one");
  v.expect(s.launch.threads >= 1 && s.launch.threads <= most_threads, s.launch.threads,
           " threads; expected at most ", most_threads);
#define FUSER_LAUNCH_NUMBER(name, default_value, least, most, meaning) \
  v.expect_range(#name, s.launch.name, least, most, "the launch");
#include "schedule/attributes.def"
  v.check_dims();
  for (const LoopNest& nest : s.nests) v.nest(nest);
  v.accesses();
  v.stagings();
  v.reductions();
  switch (nest_kind(s)) {
    case NestKind::Linear:
      return v.linear();
    case NestKind::Rows:
      return v.rows();
    case NestKind::Tiles:
      return v.tiles();
  }
}

}  // namespace fuser::schedule
