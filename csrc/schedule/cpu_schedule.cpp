#include "schedule/cpu_schedule.h"

#include <algorithm>
#include <numeric>

#include "fusion/kernel/reduction_phases.h"
#include "schedule/schedule_rules.h"

namespace fuser::schedule {

using namespace fusion;
using namespace cpu;

std::optional<CpuLoops> cpu_loops(const LoopNest& nest) {
  size_t at = 0;
  const auto next = [&](DimId dim, Bind bind) -> const Loop* {
    if (at == nest.loops.size()) return nullptr;
    const Loop& l = nest.loops[at];
    return l.dim == dim && l.bind == bind ? &nest.loops[at++] : nullptr;
  };
  CpuLoops out;
  for (DimId d : {O, S, L}) {
    CpuLoops::Tasks& t = out.tasks[d];
    t.grid = next(d, Bind::Grid);
    if (t.grid) t.task = next(d, Bind::Serial);
    if (t.grid && !t.task) return std::nullopt;
    if (d == S) out.block = next(S, Bind::Unroll);
  }
  out.lanes = next(L, Bind::ThreadX);
  if (!out.lanes || at < nest.loops.size()) return std::nullopt;
  return out;
}

Staging tile_of(AccessId access) {
  return {.access = access, .place = Place::Registers, .shape = StagingShape::Tile};
}

namespace {

struct Verifier : Rules {
  AxisSet axes[dims] = {};

  bool reduces_lanes() const { return (axes[L] & p.reduced) != 0; }

  void nest() const;
  void loops(const CpuLoops& loops) const;
  void accesses() const;
  void stagings() const;
  void axes_of_dims() const;
  void tasks(const CpuLoops& loops) const;
  void columns(const CpuLoops& loops) const;
};

// One nest computes all values. Properties of GPU kernels are at their defaults.
void Verifier::nest() const {
  const LoopNest& nest = s.nests[0];
  std::vector<ValueId> all(p.refined.values.size());
  std::iota(all.begin(), all.end(), 0);
  expect(nest.computed == all, "values that the nest does not compute; expected all ", all.size());
  expect(nest.stores.empty() && !nest.ends && nest.lanes == Lanes(),
         "stores, ends or lanes of a nest; a CPU kernel has none");
  expect(s.reductions.empty() && !s.single_pass,
         "form or reductions; those of a CPU kernel follow from its loops");
  expect(s.launch == Launch{.threads = s.launch.threads},
         "properties of the launch; expected threads alone");
  for (const Dim& d : s.dims)
    expect(!d.divides && d.line.access < 0, "divides or lines of a dim; a CPU kernel has none");
}

void Verifier::loops(const CpuLoops& found) const {
  for (const Loop& l : s.nests[0].loops) {
    expect(l.extent >= 0 && l.extent <= most_extent && l.elements >= 0 && l.elements <= most_extent,
           "a loop of ", std::max(l.extent, l.elements), " steps; expected at most ", most_extent);
    expect(!l.unroll, "unroll of a loop; a CPU kernel has none");
    expect(!l.elements || l.bind == Bind::Serial, "elements of a loop that is not Serial");
  }
  const int64_t lanes = found.lanes->extent;
  expect(is_power(lanes) && lanes <= most_lanes && lanes == s.launch.threads, "vectors of ", lanes,
         " elements and ", s.launch.threads, " threads; expected one power of two up to ",
         most_lanes);
  for (DimId d : {O, S, L}) {
    const auto [grid, task] = found.tasks[d];
    if (!grid) continue;
    expect(!task->extent == (task->elements > 0), "a Serial loop over d", d, " of ", task->extent,
           " steps and ", task->elements, " elements; expected one of both");
    expect(!grid->extent || task->elements, "at most ", grid->extent, " tasks over d", d,
           ", whose Serial loop has a trip count; expected no limit");
  }
  if (found.block)
    expect(found.block->extent >= 1 && found.block->extent <= most_in_sequence, "a block of ",
           found.block->extent, " rows; expected 1 to ", most_in_sequence,
           ", because a sum takes in as many elements in sequence");
}

void Verifier::accesses() const {
  expect(s.accesses.size() == p.accesses.size(), s.accesses.size(), " accesses; the kernel has ",
         p.accesses.size());
  for (size_t i = 0; i < s.accesses.size(); ++i) {
    Vectorization a = s.accesses[i];
    if (p.accesses[i].store) a.cache = {};
    expect(a == Vectorization(), "access ", i,
           " is not Scalar; lanes move it, and only a store is streaming");
  }
}

void Verifier::stagings() const {
  for (size_t i = 0; i < s.stagings.size(); ++i) {
    const AccessId access = s.stagings[i].access;
    expect(access >= 0 && access < static_cast<int>(p.accesses.size()), "a staging of access ",
           access, " of ", p.accesses.size());
    expect(s.stagings[i] == tile_of(access), "access ", access,
           " is staged as something else than Registers Tile");
    for (size_t before = 0; before < i; ++before)
      expect(s.stagings[before].access != access, "access ", access, " is staged twice");
  }
}

void Verifier::axes_of_dims() const {
  expect_loops(!(axes[O] & p.reduced), "a reduced axis in d0; expected kept ones");
  expect_loops(!reduces_lanes() || !(axes[L] & ~p.reduced),
               "reduced and kept axes in d2; expected one of both");
  expect_loops(!p.columns || reduces_lanes(),
               "kept axes in d2 of a kernel that reduces rows and columns; expected reduced ones");
  if (p.reduced) {
    expect_loops(!(axes[S] & ~p.reduced), "a kept axis in d1; expected reduced ones");
    expect_loops(s.stagings.empty(), "tiles of a kernel with reductions; expected none");
  } else {
    expect_loops(s.stagings.empty() || axes[S], "tiles without axes in d1; expected axes");
  }
}

// Tasks divide kept axes. They divide reduced ones only if their partial results can be merged.
void Verifier::tasks(const CpuLoops& found) const {
  const auto [of_s, of_l] = std::pair(found.tasks[S], found.tasks[L]);
  expect_loops(!of_s.grid || axes[S], "tasks over d1, which has no axis");
  if (found.block)
    expect_loops(p.reduced && !reduces_lanes() && may_split(p),
                 "a block of rows; expected one reduction over columns, and nothing after it");
  if (!p.reduced) {
    expect_loops(!axes[S] || of_s.grid || !s.stagings.empty(),
                 "axes in d1 of a kernel without reductions or tiles; expected tasks over d1");
    return;
  }
  if (!reduces_lanes()) {
    if (!of_s.grid) return;
    expect_loops(found.block, "tasks divide columns; expected an Unroll loop over d1");
    expect(of_s.grid->extent >= 1 && of_s.grid->extent <= most_in_sequence && of_s.task->elements,
           "tasks divide columns; expected a Grid loop of 1 to ", most_in_sequence,
           " blocks, and elements of the Serial loop");
    return;
  }
  if (!of_s.grid && !of_l.grid) return;
  expect_loops(may_split(p), "tasks divide rows; expected one reduction, and nothing after it");
  expect_loops(!of_l.grid || !axes[S], "tasks divide rows over d2; expected them over d1");
}

// Rows and columns: each task has partial results of all columns.
void Verifier::columns(const CpuLoops& found) const {
  expect_loops(
      !found.tasks[S].grid && !found.tasks[L].grid && !found.block,
      "loops divide the columns of a kernel that reduces rows too; expected tasks of rows");
  const Loop* const rows = found.tasks[O].task;
  expect(rows && rows->extent >= 1 && rows->extent <= most_in_sequence,
         "tasks of rows; expected a Serial loop over d0 of 1 to ", most_in_sequence,
         " steps, because a sum takes in as many elements in sequence");
}

}  // namespace

void verify_cpu(const Problem& p, const Schedule& s, FaultKind kind) {
  Verifier v{{p, s, kind}};
  v.expect_loops(s.dims.size() == dims && s.nests.size() == 1, s.dims.size(), " dims and ",
                 s.nests.size(), " nests; expected three dims and one nest");
  v.check_dims();
  for (DimId d : {O, S, L})
    for (AxisId a : s.dims[d].axes) v.axes[d] |= AxisSet{1} << a;
  const std::optional<CpuLoops> loops = cpu_loops(s.nests[0]);
  v.expect_loops(loops.has_value(),
                 "loops in another order; expected Grid and Serial loops over d0, d1 and d2, a "
                 "ThreadX loop over d2, and at most an Unroll loop over d1 before those over d2");
  v.nest();
  v.loops(*loops);
  v.accesses();
  v.stagings();
  v.axes_of_dims();
  p.columns ? v.columns(*loops) : v.tasks(*loops);
}

}  // namespace fuser::schedule
