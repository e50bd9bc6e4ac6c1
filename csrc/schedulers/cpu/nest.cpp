#include "schedulers/cpu/nest.h"

#include <algorithm>
#include <bit>

#include "fusion/kernel/reduction_phases.h"
#include "fusion/kernel/transpose_operands.h"
#include "schedule/cpu_schedule.h"
#include "schedulers/cpu/schedulers.h"

namespace fuser::schedulers {

using namespace fusion;
using namespace ir;
using namespace schedule;
using namespace schedule::cpu;
using namespace cost::cpu_nest;

CpuNest pointwise_nest(const Problem& p, int collapsed, bool rows_inside) {
  Dims all = collapse(p, p.order, all_accesses(p));
  CpuNest nest;
  for (size_t d = 0; d < all.size(); ++d) {
    const bool serial = rows_inside && d + collapsed + 1 == all.size();
    auto& into = serial ? nest.serial : d + collapsed < all.size() ? nest.outer : nest.lanes;
    into.insert(into.end(), all[d].begin(), all[d].end());
  }
  return nest;
}

CpuNest reduction_nest(const Problem& p, bool lanes_reduced) {
  const std::vector<AxisId> kept = kept_axes(p), reduced = reduced_axes(p);
  const Dims along = collapse(p, lanes_reduced ? reduced : kept, all_accesses(p));
  CpuNest nest;
  if (!along.empty()) nest.lanes = along.back();
  const auto outside = [&](const std::vector<AxisId>& axes) {
    std::vector<AxisId> out;
    for (AxisId a : axes)
      if (std::find(nest.lanes.begin(), nest.lanes.end(), a) == nest.lanes.end()) out.push_back(a);
    return out;
  };
  nest.outer = outside(kept);
  nest.serial = outside(reduced);
  return nest;
}

bool reduces_innermost(const Problem& p) {
  return !p.order.empty() && (p.reduced >> p.order.back() & 1) != 0;
}

int cpu_lanes(const Problem& p, const Device& device, int registers, int64_t elements) {
  int widest = 4;
  for (const MemoryAccess& a : p.accesses) widest = std::max(widest, size_of(a.dtype));
  // Integers that no access moves are mostly coordinates and random bits.
  for (const Value& v : p.refined.values)
    if (kind_of(v.dtype) != Kind::Int || std::holds_alternative<Reduced>(v.how) ||
        std::holds_alternative<Project>(v.how))
      widest = std::max(widest, size_of(compute_type(v.dtype)));
  const int lanes = std::max(1, registers * device.simd_bytes / widest);
  return std::min(lanes, ceil_pow2(elements));
}

namespace {

bool reduces_lanes(const Problem& p, const CpuNest& nest) {
  return !nest.lanes.empty() && (p.reduced >> nest.lanes.back() & 1) != 0;
}

}  // namespace

CpuTasks tasks_of_reduction(const Problem& p, const CpuNest& nest, SizeHints& hints,
                            const Device& device) {
  const auto at_most = [&](const std::vector<AxisId>& axes) {
    return hints.at_most(extent_of(p, hints.exprs(), axes));
  };
  const int64_t along = at_most(nest.lanes), serial = at_most(nest.serial);
  const int registers = reduces_lanes(p, nest) ? row_registers : column_registers;
  const bool terminal = may_split(p);
  int rows = 0;  // of a block
  int64_t tasks = at_most(nest.outer), length = serial * along;
  if (!reduces_lanes(p, nest)) {
    if (terminal && serial > near_block_rows)
      rows = along <= few_columns ? near_block_rows : cost::cpu_nest::block_rows;
    tasks *= (along + task_columns - 1) / task_columns;
    length = rows ? serial * std::min<int64_t>(along, task_columns) : 0;
  }
  const bool splits = terminal && tasks < many_tasks && length >= 2 * split_elements;
  return {.lanes = cpu_lanes(p, device, registers, along),
          .elements = splits ? split_elements : task_elements,
          .splits = splits,
          .block_rows = rows};
}

bool should_transpose_operands(const Problem& p, SizeHints& hints) {
  if (hints.fission() != Fission::TransposeOperands) return false;
  const std::vector<Value>& values = p.refined.values;
  const auto at_most = [&](const std::vector<AxisId>& axes) {
    return hints.at_most(extent_of(p, hints.exprs(), axes));
  };
  if (at_most(kept_axes(p)) * at_most(reduced_axes(p)) < least_transposed) return false;
  std::vector<bool> stored(values.size());
  for (const Store& store : p.refined.stores)
    if (store.access.value >= 0) stored[store.access.value] = true;
  const PhaseUse use = phase_use(
      {.values = values, .all = used_axes(values), .end = values.size(), .stores = [&](size_t v) {
         return stored[v];
       }});
  const std::vector<size_t> across = uncoalesced_accesses(p, {});
  return std::any_of(across.begin(), across.end(), [&](size_t i) {
    const MemoryAccess& a = p.accesses[i];
    if (hints.at_most(p.refined.axes[near_axis(a)].extent) < cost::cpu_pointwise::short_side)
      return false;
    return a.store || std::popcount(use.phases[a.index]) > 1 ||
           hints.divides(a.strides->coefficients[p.order.back()],
                         std::max(1, conflict_bytes / size_of(a.dtype)));
  });
}

bool few_long_rows(const Problem& p, const CpuNest& nest, SizeHints& hints) {
  if (hints.fission() == Fission::None || may_split(p)) return false;
  const auto at_most = [&](const std::vector<AxisId>& axes) {
    return hints.at_most(extent_of(p, hints.exprs(), axes));
  };
  return at_most(nest.outer) < few_rows &&
         at_most(nest.serial) * at_most(nest.lanes) >= 4 * split_elements;
}

Schedule cpu_schedule(const Problem& p, const CpuNest& nest, const CpuTasks& tasks) {
  const bool lanes_reduced = reduces_lanes(p, nest);
  Schedule s;
  s.launch.threads = tasks.lanes;
  for (const auto* axes : {&nest.outer, &nest.serial, &nest.lanes})
    s.dims.push_back({.axes = *axes});
  LoopNest loops;
  // Divides a dim among tasks, at most `most` of them (0: any number).
  const auto spread = [&](Loop task, int64_t most = 0) {
    task.bind = Bind::Serial;
    loops.loops.push_back({.dim = task.dim, .extent = most, .bind = Bind::Grid});
    loops.loops.push_back(task);
  };
  const Loop one_row = {.dim = O, .extent = 1};
  const int64_t vectors = std::max<int64_t>(1, tasks.elements / tasks.lanes);
  if (tasks.task_rows)
    spread({.dim = O, .extent = tasks.task_rows});
  else if (!nest.outer.empty())
    spread(tasks.splits || tasks.block_rows ? one_row : Loop{.dim = O, .elements = tasks.elements});
  if (tasks.tile_x) spread({.dim = S, .extent = tasks.tile_x});
  if (tasks.rows_inside) spread({.dim = S, .elements = tasks.elements});
  if (tasks.block_rows) {
    if (tasks.splits) spread({.dim = S, .elements = tasks.elements}, many_tasks);
    loops.loops.push_back({.dim = S, .extent = tasks.block_rows, .bind = Bind::Unroll});
    spread({.dim = L, .extent = std::max(1, task_columns / tasks.lanes)});
  } else if (tasks.splits) {
    spread(nest.serial.empty() ? Loop{.dim = L, .extent = vectors}
                               : Loop{.dim = S, .elements = tasks.elements});
  } else if (!lanes_reduced && !nest.lanes.empty()) {
    spread({.dim = L, .elements = tasks.elements});
  }
  loops.loops.push_back({.dim = L, .extent = tasks.lanes, .bind = Bind::ThreadX});
  for (size_t v = 0; v < p.refined.values.size(); ++v)
    loops.computed.push_back(static_cast<ValueId>(v));
  s.nests.push_back(std::move(loops));
  s.accesses.resize(p.accesses.size());
  for (AccessId i = 0; i < static_cast<AccessId>(p.accesses.size()); ++i) {
    if (tasks.streaming.contains(i)) s.accesses[i].cache = CachePolicy::Streaming;
    if (tasks.staged.contains(i)) s.stagings.push_back(tile_of(i));
  }
  verify_cpu(p, s);
  return s;
}

}  // namespace fuser::schedulers
