// CPU kernels without reductions. A task is a block of elements. Lanes run along the innermost axes
// that all accesses address by one index. Values that do not vary along the lanes are computed once
// per row. If values vary along the lanes alone, then each vector loops over rows and computes
// these values once. If rows are much shorter than a vector, then lanes cross rows and gather what
// they share.
//
// Accesses that are contiguous along another axis move as tiles, which are transposed in registers
// (lower/build/cpu_tiles.cpp).
#include <algorithm>

#include "fusion/kernel/reduction_phases.h"
#include "schedulers/cpu/nest.h"
#include "schedulers/cpu/schedulers.h"
#include "schedulers/legal.h"

namespace fuser::schedulers {

using namespace fusion;
using namespace schedule;
using namespace cost::cpu_pointwise;

namespace {

constexpr int line_bytes = 64;  // bytes of a tile's rows, which streaming stores write at once

// Axes of the two sides of tiles, and the accesses whose lanes run along the rows.
struct Sides {
  CpuNest nest;
  AccessSet staged;
  int bytes = 0;         // per element, of the staged accesses
  int stored_bytes = 0;  // of these, bytes of stores
  int moved_bytes = 0;   // bytes of the accesses that are contiguous along either side
  int widest = 1;        // bytes of the widest staged element
};

AxisSet set_of(const std::vector<AxisId>& axes) {
  AxisSet set = 0;
  for (AxisId a : axes) set |= AxisSet{1} << a;
  return set;
}

Sides sides_of(const Problem& p, const Dims& dims, size_t rows, size_t lanes) {
  Sides out;
  const auto contiguous = [&](const MemoryAccess& a, size_t dim) {
    const ir::Expr step = coefficient(p, a, dims[dim]);
    return step && step->is_constant(1);
  };
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    const AxisSet mine = axes_of(p, a);
    const int bytes = size_of(a.dtype);
    if (!(mine & set_of(dims[lanes])) || !(mine & set_of(dims[rows]))) continue;
    if (contiguous(a, lanes)) {
      out.moved_bytes += bytes;
      continue;
    }
    if (is_loaded(a) || !a.in.bounds.empty() || !contiguous(a, rows)) continue;
    if (a.store && mine != set_of(p.order)) continue;
    out.staged.insert(i);
    out.moved_bytes += bytes;
    out.bytes += bytes;
    if (a.store) out.stored_bytes += bytes;
    out.widest = std::max(out.widest, bytes);
  }
  out.nest = {.outer = {}, .serial = dims[rows], .lanes = dims[lanes]};
  for (size_t d = 0; d < dims.size(); ++d)
    if (d != rows && d != lanes)
      out.nest.outer.insert(out.nest.outer.end(), dims[d].begin(), dims[d].end());
  return out;
}

// Returns the sides of tiles that move most bytes as vectors; none are staged if all accesses agree
// on the innermost axis. Reads are staged rather than stores: they come in long runs then, which
// the processor prefetches.
Sides find_sides(const Problem& p) {
  const Dims dims = collapse(p, p.order, all_accesses(p));
  Sides best;
  for (size_t lanes = dims.size(); lanes-- > 0;)
    for (size_t rows = dims.size(); rows-- > 0;) {
      if (rows == lanes) continue;
      Sides s = sides_of(p, dims, rows, lanes);
      const int more = s.moved_bytes - best.moved_bytes;
      if (s.bytes == 0 || s.bytes == s.moved_bytes) continue;
      if (more > 0 || (more == 0 && s.stored_bytes < best.stored_bytes)) best = std::move(s);
    }
  return best;
}

// Returns the stores that bypass the caches: of tensors that exceed L2 several times, which nothing
// reads back from there. `scattered`: neighbouring stores are to distant lines.
AccessSet streaming_stores(const Problem& p, SizeHints& hints, const Device& device,
                           bool scattered) {
  AccessSet out;
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    if (!a.store || p.buffers[a.buffer].read) continue;
    std::vector<AxisId> axes;
    for (AxisId k : p.order)
      if (axes_of(p, a) >> k & 1) axes.push_back(k);
    const int64_t bytes = hints.at_most(extent_of(p, hints.exprs(), axes)) * size_of(a.dtype);
    if (static_cast<double>(bytes) >= beyond_cache * device.l2_bytes &&
        (scattered || bytes < fresh_bytes))
      out.insert(i);
  }
  return out;
}

std::optional<Decision> plan_tiles(const Problem& p, SizeHints& hints, const Device& device) {
  const Sides sides = find_sides(p);
  if (sides.staged.empty()) return std::nullopt;
  const auto at_most = [&](const std::vector<AxisId>& axes) {
    return hints.at_most(extent_of(p, hints.exprs(), axes));
  };
  const int64_t shorter = std::min(at_most(sides.nest.serial), at_most(sides.nest.lanes));
  if (shorter < short_side) return std::nullopt;
  int lanes = std::min({line_bytes / sides.widest, tile_lanes, ceil_pow2(shorter)});
  while (lanes > 1 && int64_t{lanes} * lanes * sides.bytes > tile_bytes) lanes /= 2;
  // Long runs of one side are short runs of the other.
  const bool along_rows = 2 * sides.bytes >= sides.moved_bytes;
  const int64_t run = long_bytes / sides.widest, other = short_bytes / sides.widest;
  // A task takes longer rows if there are few lanes.
  const int64_t longer = ceil_pow2(run / at_most(sides.nest.lanes));
  return to_plan(
      CpuPointwisePlan{.lanes = lanes,
                       .collapsed = 1,
                       .task = std::max<int64_t>(cost::cpu_nest::task_elements, run * other),
                       .tile_x = along_rows ? run : other * longer,
                       .staged = sides.staged,
                       .streaming = streaming_stores(p, hints, device, along_rows)});
}

// Returns how many innermost dims the lanes take if a vector that loops over rows saves work, else
// 0. Values that vary along the lanes and not along the rows are computed once, e.g. the statistics
// of each channel's group, and lanes need not cross rows that are shorter than a vector.
int dims_with_rows_inside(const Problem& p, SizeHints& hints, int lanes) {
  const Dims dims = collapse(p, p.order, all_accesses(p));
  const auto extent = [&](const std::vector<AxisId>& axes) {
    return hints.at_most(extent_of(p, hints.exprs(), axes));
  };
  const AxisSet all = used_axes(p.refined.values);
  std::vector<AxisId> inner;
  for (size_t count = 1; count < dims.size(); ++count) {
    const std::vector<AxisId>& rows = dims[dims.size() - count - 1];
    inner.insert(inner.end(), dims[dims.size() - count].begin(), dims[dims.size() - count].end());
    const int64_t along = extent(inner);
    // Factors of the lanes, by whether they vary along the rows.
    const AxisSet of_lanes = set_of(inner), of_rows = set_of(rows);
    bool equal = false, other = false, computed = false;
    for (const Value& v : p.refined.values) {
      if (!(v.axes & of_lanes) || v.axes == all) continue;
      (v.axes & of_rows ? other : equal) = true;
      computed = computed || (!(v.axes & of_rows) && std::holds_alternative<Apply>(v.how));
    }
    if (along < short_side || (other && !equal)) continue;
    if (along > longest_row || extent(rows) < short_side) return 0;
    const bool gathers = count > 1 && equal;
    return along < lanes || computed || gathers ? static_cast<int>(count) : 0;
  }
  return 0;
}

}  // namespace

MatchResult match_cpu_pointwise(const Problem& p) {
  if (p.reduced) return refuse("cpu-pointwise-1", "the kernel has reductions");
  return accept;
}

Decision plan_cpu_pointwise(const Problem& p, SizeHints& hints, const Device& device) {
  if (std::optional<Decision> tiles = plan_tiles(p, hints, device)) return *tiles;
  const auto count = static_cast<int>(collapse(p, p.order, all_accesses(p)).size());
  const auto along = [&](int collapsed) {
    return hints.at_most(extent_of(p, hints.exprs(), pointwise_nest(p, collapsed).lanes));
  };
  int collapsed = std::min(1, count);
  const int wanted = cpu_lanes(p, device, registers, int64_t{1} << 20);
  const int with_rows_inside = dims_with_rows_inside(p, hints, wanted);
  if (with_rows_inside) collapsed = with_rows_inside;
  while (!with_rows_inside && collapsed < count && along(collapsed) < wanted) ++collapsed;
  const int64_t elements = count ? along(collapsed) : 1;
  return to_plan(CpuPointwisePlan{.lanes = cpu_lanes(p, device, registers, elements),
                                  .collapsed = collapsed,
                                  .task = cost::cpu_nest::task_elements,
                                  .rows_inside = with_rows_inside > 0,
                                  .streaming = streaming_stores(p, hints, device, false)});
}

Schedule schedule_cpu_pointwise(Problem& p, const Plan& plan) {
  const auto of = typed<CpuPointwisePlan>(plan);
  return cpu_schedule(p,
                      of.staged.empty()
                          ? pointwise_nest(p, static_cast<int>(of.collapsed), of.rows_inside)
                          : find_sides(p).nest,
                      {.lanes = static_cast<int>(of.lanes),
                       .elements = of.task,
                       .tile_x = of.tile_x,
                       .staged = of.staged,
                       .streaming = of.streaming,
                       .rows_inside = of.rows_inside});
}

void check_cpu_pointwise(const Problem& p, const Plan& planned, const Plan& wanted) {
  const auto of = typed<CpuPointwisePlan>(planned);
  const auto count = static_cast<int>(collapse(p, p.order, all_accesses(p)).size());
  AccessSet stores;
  for (size_t i = 0; i < p.accesses.size(); ++i)
    if (p.accesses[i].store) stores.insert(i);
  check_subset(planned, "streaming", of.streaming, typed<CpuPointwisePlan>(wanted).streaming,
               stores);
  if (of.staged.empty())
    check_fields(planned, wanted,
                 {{"collapsed", std::min(1, count), count},
                  {"tile_x", 0, 0},
                  {"rows_inside", 0, count > 1 ? 1 : 0}});
  else
    check_fields(planned, wanted,
                 {{"lanes", 1, of.lanes},
                  {"collapsed", 1, 1},
                  {"tile_x", 1, 1 << 20},
                  {"rows_inside", 0, 0}});
}

}  // namespace fuser::schedulers
