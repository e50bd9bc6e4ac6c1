#include "schedulers/by_hand.h"

#include <algorithm>
#include <bit>

#include "schedule/device.h"
#include "schedule/schedule_text.h"
#include "schedule/verify_schedule.h"

namespace fuser::schedulers {

using namespace fusion;
using namespace schedule;

namespace {

constexpr int64_t most_unrolled = 64;  // steps of one Unroll loop; more would spill registers

bool is_tiled(const Schedule& s) {
  return std::any_of(s.stagings.begin(), s.stagings.end(),
                     [](const Staging& staging) { return staging.place == Place::Shared; });
}

bool is_cooperative(const Schedule& s) {
  return std::any_of(s.reductions.begin(), s.reductions.end(),
                     [](const Combination& c) { return c.finish == Finish::Cooperative; });
}

const Loop* vector_loop(const LoopNest& nest) {
  const bool vector = !nest.loops.empty() && nest.loops.back().bind == Bind::Vector;
  return vector ? &nest.loops.back() : nullptr;
}

// Returns whether vectors run along rows. Their tail is peeled: each element of it has a thread.
bool runs_along_rows(const Schedule& s) {
  const Loop* vector = vector_loop(s.nests[0]);
  return nest_kind(s) == NestKind::Rows && vector && vector->dim == 1;
}

// Returns whether the threads of the planned schedule exchange data in a pattern that depends on
// every extent: tiles, clusters, peeled rows, or a cooperative grid.
bool has_fixed_loops(const Schedule& s) {
  bool fixed = is_tiled(s) || is_cooperative(s) || s.nests.size() > 1;
  for (const Dim& d : s.dims) fixed |= d.line.access >= 0;
  for (const Loop& l : s.nests[0].loops) fixed |= l.bind == Bind::Cluster;
  return fixed || (s.nests[0].lanes.tail && runs_along_rows(s));
}

// What one nest computes follows from the kernel, not from a choice.
void check_contents(const Schedule& planned, const Schedule& wanted) {
  expect_fact(wanted.single_pass == planned.single_pass && wanted.reductions == planned.reductions,
              "form and reductions differ; expected those of the plan");
  expect_fact(wanted.nests.size() == planned.nests.size(), wanted.nests.size(), " nests; expected ",
              planned.nests.size());
  for (size_t i = 0; i < planned.nests.size(); ++i)
    expect_fact(wanted.nests[i].computed == planned.nests[i].computed &&
                    wanted.nests[i].stores == planned.nests[i].stores &&
                    wanted.nests[i].ends == planned.nests[i].ends,
                "nest ", i, " computes or stores other values; expected those of the plan");
  expect_fact(nest_kind(wanted) == nest_kind(planned),
              "loops of another kind; expected GridThread loops, or tiles, as in the plan");
}

// Threads that are numbered over the grid may take the axes in any grouping.
void check_dims(const Schedule& planned, const Schedule& wanted) {
  if (nest_kind(planned) == NestKind::Linear) {
    expect_fact(axes_in_order(wanted) == axes_in_order(planned),
                "the axes are in another order; expected the order of memory, as in the plan");
    for (const Dim& d : wanted.dims)
      expect_fact(!d.divides && d.line.access < 0, "divides or lines of a dim without a tile");
    return;
  }
  expect_fact(wanted.dims.size() == planned.dims.size(), wanted.dims.size(), " dims; expected ",
              planned.dims.size());
  for (size_t d = 0; d < planned.dims.size(); ++d) {
    const Dim &was = planned.dims[d], &dim = wanted.dims[d];
    expect_fact(dim.axes == was.axes && dim.line == was.line, "dim d", d,
                " has other axes or lines; expected those of the plan");
    expect_fact(!dim.divides || was.divides, "dim d", d, " divides; its tile is not known to");
  }
}

// Flags of vectors that state facts of sizes, so that a text may drop them and not add them. The
// flag `tail` states that a fact is missing.
struct LaneFact {
  const char* name;
  bool Lanes::*holds;
};
constexpr LaneFact lane_facts[] = {
#define FUSER_LANES_FLAG(name, meaning) {#name, &Lanes::name},
#include "schedule/attributes.def"
};

// Vectors are as long as planned ones or shorter, along the planned axes.
void check_lanes(const Schedule& planned, const Schedule& wanted, size_t nest) {
  const Loop *was = vector_loop(planned.nests[nest]), *now = vector_loop(wanted.nests[nest]);
  if (!now) return;
  const Lanes &before = planned.nests[nest].lanes, &lanes = wanted.nests[nest].lanes;
  const bool same_axes = was && planned.dims[was->dim].axes == wanted.dims[now->dim].axes;
  if (!same_axes) {
    expect_fact(lanes == Lanes{.tail = true}, "lanes along d", now->dim,
                ", which the plan does not vectorize; expected the one property tail");
    return;
  }
  expect_fact(was->extent % now->extent == 0, "vectors of ", now->extent,
              " elements; expected a divisor ", "of the planned ", was->extent);
  expect_fact(
      lanes.tail == before.tail || !runs_along_rows(planned),
      "another tail of vectors along rows; expected the planned one, because a tail is peeled");
  expect_fact(lanes.tail || !before.tail, "lanes without tail; the last vector may be incomplete");
  expect_fact(lanes.axes == before.axes || !lanes.axes, "lanes within ", lanes.axes,
              " axes; expected ", before.axes, " or 0");
  for (const LaneFact& fact : lane_facts)
    expect_fact(fact.holds == &Lanes::tail || !(lanes.*fact.holds) || before.*fact.holds,
                "lanes with ", fact.name,
                "; expected a plan with it, because it is a fact of sizes");
}

void check_accesses(const Problem& p, const Schedule& planned, const Schedule& wanted) {
  const Loop *was = vector_loop(planned.nests[0]), *now = vector_loop(wanted.nests[0]);
  const bool same_axes = was && now && planned.dims[was->dim].axes == wanted.dims[now->dim].axes;
  const bool stores_lines = std::any_of(planned.dims.begin(), planned.dims.end(),
                                        [](const Dim& d) { return d.line.access >= 0; });
  for (size_t i = 0; i < planned.accesses.size(); ++i) {
    const Vectorization &before = planned.accesses[i], &a = wanted.accesses[i];
    expect_fact(a.cache == ir::CachePolicy{} || a.cache == before.cache ||
                    (nest_kind(wanted) == NestKind::Rows && !is_loaded(p.accesses[i])),
                row(a.cache).word, " access ", i, "; expected an access of a tile of rows");
    if (a.kind == VectorKind::Scalar) {
      expect_fact(before.kind == VectorKind::Scalar || !stores_lines, "scalar access ", i,
                  "; expected the planned vectors, because rows start at memory lines");
      continue;
    }
    expect_fact(a.kind == before.kind && (same_axes || planned.nests.size() > 1), "access ", i,
                " moves vectors; they are not known to be aligned or adjacent");
    expect_fact(before.width % a.width == 0 && a.window == before.window &&
                    (a.kind == VectorKind::Aligned || a.width == before.width),
                "access ", i, " moves ", a.width, " elements; expected ",
                a.kind == VectorKind::Aligned ? "a divisor of " : "", before.width);
  }
}

// A staging in registers may be dropped: its memory is read again.
void check_stagings(const Schedule& planned, const Schedule& wanted) {
  size_t kept = 0;
  for (const Staging& was : planned.stagings) {
    const char* const what = was.access >= 0 ? "access " : "value ";
    const int at = was.access >= 0 ? was.access : was.value;
    const Staging* now = was.access >= 0 ? staging_of_access(wanted, was.access)
                                         : staging_of_value(wanted, was.value);
    if (!now) {
      expect_fact(was.place == Place::Registers, "no staging of ", what, at,
                  "; expected one, because threads exchange it in shared memory");
      continue;
    }
    ++kept;
    Staging same = *now;
    same.prefetch = was.prefetch;
    if (was.swizzle && now->swizzle) same.swizzle = was.swizzle;
    if (was.stages > 1 && now->stages < was.stages) same.stages = was.stages;
    expect_fact(same == was && (!now->prefetch || was.prefetch), "another staging of ", what, at,
                "; expected the planned one, fewer stages or another swizzle");
  }
  expect_fact(kept == wanted.stagings.size(), "a staging that the plan does not have");
  int stages = 0;
  for (const Staging& s : wanted.stagings) {
    if (s.shape != StagingShape::Row || s.place != Place::Shared) continue;
    expect_fact(!stages || s.stages == stages, s.stages, " and ", stages,
                " stages; expected equal numbers, because the copies of a row are one group");
    stages = s.stages;
  }
}

// Returns the elements along a dim that a block covers, or 0 if a loop covers the rest.
int64_t covered(const LoopNest& nest, DimId dim) {
  int64_t elements = 1;
  for (const Loop& l : nest.loops) {
    if (l.dim != dim) continue;
    if (l.bind == Bind::Grid || !l.extent) return 0;
    elements *= l.extent;
  }
  return elements;
}

void check_extent(const Schedule& planned, const Loop& was, const Loop& now, bool fixed) {
  const auto differ = [&](const char* expected) {
    return text("a loop of ", now.extent, " steps over d", now.dim, "; expected ", expected);
  };
  expect_fact(!now.unroll == !was.unroll && now.unroll <= 16, "unroll of ", now.unroll,
              " steps; expected at most 16, and none in a loop without");
  if (now.extent == was.extent) return;
  if (was.bind == Bind::Grid) {
    expect_fact(was.extent && now.extent, differ(was.extent ? "a limit" : "no limit"));
    expect_fact(!is_cooperative(planned) || now.extent <= was.extent,
                differ("at most the planned blocks, because all must be resident at once"));
    return;
  }
  expect_fact(!fixed, differ("the planned steps, because threads exchange data"));
  expect_fact(was.bind == Bind::ThreadX || was.bind == Bind::ThreadY || was.bind == Bind::Unroll,
              differ("the planned steps"));
  expect_fact(was.bind != Bind::Unroll || now.extent <= most_unrolled,
              differ("at most 64 unrolled steps, because more would spill registers"));
}

void check_loops(const Problem& p, const Schedule& planned, const Schedule& wanted) {
  expect_fact(wanted.launch.threads % warp == 0 || wanted.launch.threads == planned.launch.threads,
              wanted.launch.threads, " threads; expected whole warps");
  if (nest_kind(planned) == NestKind::Linear) return;  // verify() states all of their rules
  const bool fixed = has_fixed_loops(planned);
  for (size_t n = 0; n < planned.nests.size(); ++n) {
    const std::vector<Loop>&was = planned.nests[n].loops, &now = wanted.nests[n].loops;
    const auto same = [](const Loop& a, const Loop& b) {
      return a.dim == b.dim && a.bind == b.bind;
    };
    expect_fact(std::equal(was.begin(), was.end(), now.begin(), now.end(), same), "nest ", n,
                " has other loops; expected the planned ones, with other extents");
    int64_t x = 1, y = 1;
    DimId of_x = 0;
    for (size_t i = 0; i < was.size(); ++i) {
      check_extent(planned, was[i], now[i], fixed);
      if (now[i].bind == Bind::ThreadX) x = now[i].extent, of_x = now[i].dim;
      if (now[i].bind == Bind::ThreadY) y = now[i].extent;
    }
    // Lanes of a warp combine the partial results of a row.
    expect_fact(!p.reduced || of_x == 0 || y == 1 || std::has_single_bit(static_cast<uint64_t>(x)),
                x, " threads along d1; expected a power of two, or one row per block");
    for (DimId d = 0; d < static_cast<DimId>(planned.dims.size()); ++d)
      expect_fact(covered(planned.nests[n], d) <= covered(wanted.nests[n], d), "a block covers ",
                  covered(wanted.nests[n], d), " elements along d", d, "; expected at least ",
                  covered(planned.nests[n], d), ", because no loop covers the rest");
  }
}

// All blocks of a cooperative grid are resident at once.
void check_launch(const Schedule& planned, const Schedule& wanted) {
  if (!is_cooperative(planned)) return;
  const int was = std::max(1, planned.launch.min_blocks_per_sm);
  const int now = wanted.launch.min_blocks_per_sm;
  int64_t before = 0, blocks = 0;
  for (const Loop& l : planned.nests[0].loops)
    if (l.bind == Bind::Grid) before = l.extent;
  for (const Loop& l : wanted.nests[0].loops)
    if (l.bind == Bind::Grid) blocks = l.extent;
  expect_fact(now >= 1 && blocks * was <= before * now, blocks, " blocks with ", now,
              " blocks per SM; expected fewer, because all must be resident at once");
}

}  // namespace

std::vector<AxisId> axes_in_order(const Schedule& s) {
  std::vector<AxisId> axes;
  for (const Dim& d : s.dims) axes.insert(axes.end(), d.axes.begin(), d.axes.end());
  return axes;
}

Schedule schedule_by_hand(const Problem& whole, const Schedule& planned, const std::string& text) {
  Schedule wanted = parse_schedule(text);
  verify(whole, wanted, FaultKind::User);
  const Problem& p = planned.single_pass ? *whole.single_pass : whole;
  check_contents(planned, wanted);
  check_dims(planned, wanted);
  for (size_t n = 0; n < planned.nests.size(); ++n) check_lanes(planned, wanted, n);
  check_accesses(p, planned, wanted);
  check_stagings(planned, wanted);
  check_loops(p, planned, wanted);
  check_launch(planned, wanted);
  return wanted;
}

}  // namespace fuser::schedulers
