// Kernels whose tensors disagree on the innermost axis: layout group X is contiguous along axis X,
// layout group Y along axis Y (layout_groups.h). A block takes a tile over both axes. Threads load
// and store group X with lanes along X, and group Y with lanes along Y, 16 bytes at a time. Values
// that one group needs of the other are staged in shared memory (lower/build/staged_values.cpp).
//
// If rows along one of the axes have only a few elements, then tiles of these rows would move few
// bytes at a time. The pointwise scheduler then plans the kernel in the order of the stores, and
// the other accesses are read element by element, from cache.
//
// Only values that are computed from one group alone are staged: as read or as late as possible,
// whichever has fewer bytes. Values that need both groups are computed after staging.
#include <algorithm>
#include <array>
#include <bit>
#include <tuple>

#include "base/error.h"
#include "cost/tuning.h"
#include "fusion/segment/issue_slots.h"
#include "schedule/verify_schedule.h"
#include "schedulers/analysis/coalescing.h"
#include "schedulers/analysis/collapse.h"
#include "schedulers/analysis/layout_groups.h"
#include "schedulers/analysis/vectorize.h"
#include "schedulers/legal.h"
#include "schedulers/schedulers.h"

namespace fuser::schedulers {

using namespace fusion;
using namespace ir;
using namespace schedule;
using namespace cost::transpose;

namespace {

constexpr int line_bytes = 128;  // bytes of a memory line, which a warp stores at once
constexpr int word_bytes = 4;

// Adds the values that a nest computes: all values that its stores and its staged values need,
// except the values that are staged for it.
void compute(const Problem& p, const LayoutGroups& s, LoopNest& nest, LayoutGroup group,
             bool crosses) {
  std::vector<bool> needed(p.refined.values.size(), false);
  for (int store : nest.stores)
    if (const ValueId v = p.refined.stores[store].access.value; v >= 0) needed[v] = true;
  if (crosses)
    for (ValueId v : s.staged_values[group]) needed[v] = true;
  const std::vector<ValueId>& given = s.staged_values[other(group)];
  for (size_t v = needed.size(); v-- > 0;) {
    if (std::find(given.begin(), given.end(), static_cast<ValueId>(v)) != given.end())
      needed[v] = false;
    if (needed[v]) visit_operands(p.refined.values[v], [&](ValueId o) { needed[o] = true; });
  }
  for (size_t v = 0; v < needed.size(); ++v)
    if (needed[v]) nest.computed.push_back(static_cast<ValueId>(v));
}

AxisSet set_of(const std::vector<AxisId>& axes) {
  AxisSet set = 0;
  for (AxisId a : axes) set |= AxisSet{1} << a;
  return set;
}

// Returns the offset in memory of an access's row along the axis of a group; nullptr if the
// elements of the row are not adjacent.
Expr origin_of(const Problem& p, Exprs& exprs, const LayoutGroups& s, LayoutGroup group,
               const MemoryAccess& a) {
  Expr along = coefficient(p, a, s.axes(group));
  if (!along || !along->is_constant(1)) return nullptr;
  std::vector<AxisId> others;
  for (AxisId k : p.order)
    if (!(set_of(s.axes(group)) >> k & 1)) others.push_back(k);
  return offset_along(exprs, a, others);
}

// Returns the elements of a tile along rows that are stored element by element: one per thread. Two
// neighbouring tiles of a row both store a part of the sector between them, and a partial sector
// takes as long as a complete one. Longer tiles have fewer partial sectors.
int64_t run_along(const Problem& p) {
  int widest = 1;
  for (const MemoryAccess& a : p.accesses)
    if (a.store) widest = std::max(widest, size_of(a.dtype));
  return std::min(block_threads, run_bytes / widest);
}

// Returns the default tile of a group. If it divides the extent, no element needs a mask.
int whole_tile(const LayoutGroups& s, LayoutGroup group) { return threads_along * s.vector[group]; }

// Returns the resident blocks per SM that limit the registers; 0: the compiler decides. By default
// the compiler splits the loads of several tensors into two rounds, to fit one more block. If
// threads hold half of turned_elements, more blocks fit than the compiler aims at.
int min_blocks_per_sm(const Problem& p, int turned, int64_t threads) {
  if (p.accesses.size() > 2 ||
      (turned == cost::layout_groups::turned_elements && threads < block_threads))
    return 1;
  double code = 0.0;
  for (const Value& v : p.refined.values) code += slots(v);
  return 2 * turned == cost::layout_groups::turned_elements && code <= few_slots ? crowded_blocks
                                                                                 : 0;
}

}  // namespace

MatchResult match_transpose(const Problem& p) {
  const FoundLayoutGroups found = find_layout_groups(p);
  if (!found.groups) return refuse(found.rule, found.why);
  return accept;
}

namespace {

// The choices that become a plan, by group.
struct Tiling {
  std::array<int64_t, 2> most{};  // upper bounds of the extents of X and Y
  std::array<int64_t, 2> vector{};
  std::array<int64_t, 2> tile{};
  AccessSet unaligned;  // unaligned reads
  LayoutGroup stored = None;
  int64_t line = 0;   // elements of a memory line at which stored vectors start; 0: no alignment
  bool runs = false;  // True if elements are stored one by one, by long tiles
};

bool moves_whole(const Problem& p, const LayoutGroups& s, SizeHints& hints, size_t access,
                 LayoutGroup group, int vector) {
  return vector > 1 && can_vector(p, p.accesses[access], s.axes(group), hints, vector);
}

// Returns the longest vector of a group that vectorizes most of its bytes.
int vector_of(const Problem& p, const LayoutGroups& s, SizeHints& hints, LayoutGroup group) {
  const auto moves_most = [&](int vector) {
    int whole = 0, all = 0;
    for (size_t i = 0; i < p.accesses.size(); ++i) {
      if (s.of[i] != group) continue;
      all += size_of(p.accesses[i].dtype);
      if (moves_whole(p, s, hints, i, group, vector)) whole += size_of(p.accesses[i].dtype);
    }
    return 2 * whole >= all;
  };
  int vector = s.vector[group];
  while (vector > 1 && !moves_most(vector)) vector /= 2;
  return vector;
}

// Returns the unaligned reads of a group. Empty unless every access of the group can be one. Warps
// that read 4-byte elements one by one read complete lines anyway. Warps that read smaller elements
// one by one read half lines or less, and the number of L2 requests limits them.
AccessSet unaligned_reads(const Problem& p, const LayoutGroups& s, SizeHints& hints,
                          LayoutGroup group) {
  const int vector = s.vector[group];
  AccessSet out;
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    if (group_of(p, s, i) != group) continue;
    const int bytes = vector * size_of(a.dtype);
    Expr along = coefficient(p, a, s.axes(group));
    if (a.store || size_of(a.dtype) >= 4 || bytes < 4 || bytes > vector_bytes ||
        !a.in.bounds.empty() || !along || !along->is_constant(1) || !hints.aligned(a.buffer))
      return {};
    out.insert(i);
  }
  return out;
}

// Returns the length of stored vectors that start at memory lines: a 4-byte word, for smaller
// elements if rows are not aligned to words. In every row of a tile lanes start at a memory line
// and wrap around, so that at most one vector per row is stored element by element.
//
// Returns 1 if line-aligned vectors do not apply: if another value depends on the position in the
// row, if rows of several outputs start at different positions in a word, or if several tensors
// come from the other group, whose vectors need the registers.
int aligned_vector(const Problem& p, const LayoutGroups& s, SizeHints& hints, const Tiling& t) {
  const LayoutGroup group = t.stored;
  if (group == None) return 1;
  LoopNest last;
  Expr origin = nullptr;
  int least = word_bytes, widest = 1, reads = 0;
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    if (!a.store && s.of[i] == other(group) && ++reads > 1) return 1;
    if (!a.store) continue;
    last.stores.push_back(a.index);
    Expr mine = origin_of(p, hints.exprs(), s, group, a);
    if (!mine || (origin && mine != origin) || !hints.aligned(a.buffer)) return 1;
    origin = mine;
    least = std::min(least, size_of(a.dtype));
    widest = std::max(widest, size_of(a.dtype));
  }
  const int vector = word_bytes / least;
  if (t.vector[group] >= vector || vector * widest > vector_bytes) return 1;
  compute(p, s, last, group, false);
  for (ValueId v : last.computed) {
    const auto& how = p.refined.values[v].how;
    const bool placed = std::holds_alternative<Read>(how) || std::holds_alternative<Select>(how) ||
                        std::holds_alternative<Coordinate>(how);
    if (placed && (p.refined.values[v].axes & set_of(s.axes(group)))) return 1;
  }
  return vector;
}

// Returns the tile of a group, given its vectors.
int64_t tile_of(const Problem& p, const LayoutGroups& s, SizeHints& hints, const Tiling& t,
                LayoutGroup group) {
  // Half a tile, if the last tile would be half empty.
  const int64_t half = whole_tile(s, group) / 2;
  int64_t tile =
      s.vector[group] > 1 && t.vector[group] == 1 ? scalar_tile : threads_along * t.vector[group];
  if (t.runs) tile = group == t.stored ? run_along(p) : warp;
  Expr extent = extent_of(p, hints.exprs(), s.axes(group));
  const bool ends_in_half = t.vector[group] == s.vector[group] && tile == 2 * half &&
                            !hints.divides(extent, 2 * half) && hints.divides(extent, half);
  return ends_in_half ? half : tile;
}

// If stored rows end inside their last tile, then one tile holds complete rows, so that stores are
// contiguous in memory from row to row.
void hold_stored_rows(const Problem& p, const LayoutGroups& s, SizeHints& hints, Tiling& t) {
  const LayoutGroup stored = t.stored;
  if (stored == None || t.vector[stored] == 1 ||
      hints.divides(extent_of(p, hints.exprs(), s.axes(stored)), whole_tile(s, stored) / 2))
    return;
  const int64_t row = ceil_pow2(t.most[stored]);
  if (row <= t.tile[stored] || row > longest_row) return;
  t.tile[stored] = row;
  t.tile[other(stored)] = std::min<int64_t>(t.tile[other(stored)], warp * longest_row / row);
}

// Limits the tiles to the extents and to shared memory.
void fit(const Problem& p, const LayoutGroups& s, const Device& device, Tiling& t) {
  for (const LayoutGroup group : {X, Y}) {
    int64_t fits = t.tile[group];
    while (fits / 2 >= t.most[group] && fits > t.vector[group]) fits /= 2;
    // If a tile shrinks to less than half, it grows along the other axis.
    if (4 * fits <= t.tile[group])
      t.tile[other(group)] = std::min<int64_t>(t.tile[other(group)] * (t.tile[group] / fits),
                                               4 * threads_along * t.vector[other(group)]);
    t.tile[group] = fits;
  }
  const int bytes = staged_bytes(p, s);
  const int limit = std::min(shared_bytes, device.shared_per_block);
  while (bytes * t.tile[X] * t.tile[Y] > limit)
    (t.tile[X] > t.tile[Y] ? t.tile[X] : t.tile[Y]) /= 2;
}

// Returns the most threads of a tile. Each thread moves a vector of both groups at least. If one
// group is line-aligned, no thread holds vectors of both, and each moves a vector of either.
int64_t most_threads_of(const std::array<int64_t, 2>& tile, const std::array<int64_t, 2>& vector,
                        bool aligned) {
  const int64_t elements = tile[X] * tile[Y];
  return aligned ? elements / std::max(vector[X], vector[Y]) : elements / (vector[X] * vector[Y]);
}

// Returns whether the tile is known to divide its extent, from the guards on the default tile and
// its half.
bool tile_divides(const Problem& p, const LayoutGroups& s, SizeHints& hints, const Tiling& t,
                  LayoutGroup group) {
  const auto divides = [&](int64_t whole) {
    return whole % t.tile[group] == 0 &&
           hints.divides(extent_of(p, hints.exprs(), s.axes(group)), whole);
  };
  return divides(whole_tile(s, group)) || divides(whole_tile(s, group) / 2);
}

// Returns the staging of a value that `group` computes. Threads that write at once are in different
// rows, at one vector of the other group or at few of them. Single elements need no swizzle: rows
// padded by one bank have constant offsets.
Staging staging_of(const Problem& p, ValueId v, const std::array<int64_t, 2>& vector,
                   LayoutGroup group, int64_t threads_x, bool aligned) {
  constexpr int bank_bytes = 4;  // of shared memory, which has 32 banks
  const auto bytes = static_cast<int>(vector[other(group)]) * size_of(p.refined.values[v].dtype);
  const int at_once = std::min(warp, warp * bank_bytes / bytes);
  Staging out{.value = v, .place = Place::Shared, .shape = StagingShape::Tile};
  if (vector[X] == 1 && vector[Y] == 1 && !aligned)
    out.pad = std::max(1, bank_bytes / bytes);
  else
    out.swizzle = std::max({1, bank_bytes / bytes, at_once / static_cast<int>(threads_x)});
  return out;
}

}  // namespace

Decision plan_transpose(const Problem& p, SizeHints& hints, const Device& device) {
  const LayoutGroups s = layout_groups_of(p);
  Tiling t;
  for (const LayoutGroup group : {X, Y})
    t.most[group] = hints.at_most(extent_of(p, hints.exprs(), s.axes(group)));
  for (const LayoutGroup group : {X, Y}) {
    t.vector[group] = vector_of(p, s, hints, group);
    if (t.vector[group] < s.vector[group] && t.most[group] <= short_row)
      return Delegate{plan_pointwise(p, order_of_stores(p, s), hints), order_of_stores(p, s)};
  }
  // Store by long tiles only if rows have several, so that few lanes of the last tile idle.
  t.stored = stored_group(p, s);
  const int words = aligned_vector(p, s, hints, t);
  if (words > 1) t.vector[t.stored] = 1;
  t.runs = t.stored != None && s.vector[t.stored] > 1 && t.vector[t.stored] == 1 &&
           t.most[t.stored] > 4 * run_along(p);
  if (t.runs) t.vector = {1, 1};
  for (const LayoutGroup group : {X, Y}) {
    if (t.vector[group] > 1 || group == t.stored) continue;
    const AccessSet reads = unaligned_reads(p, s, hints, group);
    t.unaligned |= reads;
    if (!reads.empty()) t.vector[group] = s.vector[group];
  }
  bool tail = false;
  for (const LayoutGroup group : {X, Y}) {
    tail = tail || !hints.divides(extent_of(p, hints.exprs(), s.axes(group)), t.vector[group]);
    t.tile[group] = tile_of(p, s, hints, t, group);
  }
  hold_stored_rows(p, s, hints, t);
  fit(p, s, device, t);
  const auto turned = static_cast<int>(t.vector[X] * t.vector[Y]);
  if (words > 1 && t.tile[t.stored] > words) {
    t.vector[t.stored] = words;
    t.line = std::min<int64_t>(t.tile[t.stored], line_bytes * words / word_bytes);
  }
  AccessSet vectorized;
  for (size_t i = 0; i < p.accesses.size(); ++i)
    if (const LayoutGroup group = group_of(p, s, i);
        group != None && !(t.line && group == t.stored) &&
        moves_whole(p, s, hints, i, group, t.vector[group]))
      vectorized.insert(i);
  // With single elements and square tiles each thread takes half as many elements.
  const int wanted = turned == 1 && !t.runs ? 2 * block_threads : block_threads;
  const int64_t threads = std::min<int64_t>(wanted, most_threads_of(t.tile, t.vector, t.line != 0));
  return to_plan(TransposePlan{
      .threads = threads,
      .tile_x = t.tile[X],
      .tile_y = t.tile[Y],
      .vector_x = t.vector[X],
      .vector_y = t.vector[Y],
      .min_blocks_per_sm = min_blocks_per_sm(p, turned, threads),
      .tail = tail,
      .divides_x = tile_divides(p, s, hints, t, X),
      .divides_y = tile_divides(p, s, hints, t, Y),
      .vectorized = vectorized,
      .unaligned = t.unaligned.without(vectorized),
      .store_line_x = t.stored == X ? t.line : 0,
      .store_line_y = t.stored == Y ? t.line : 0,
  });
}

Schedule schedule_transpose(Problem& p, const Plan& plan) {
  const auto fields = typed<TransposePlan>(plan);
  const LayoutGroups s = layout_groups_of(p);
  Schedule out;
  out.launch = {.threads = static_cast<int>(fields.threads),
                .min_blocks_per_sm = static_cast<int>(fields.min_blocks_per_sm),
                .reverse_grid = reads_earlier(p)};
  const std::array<int64_t, 2> tile{fields.tile_x, fields.tile_y};
  const std::array<int64_t, 2> vector{fields.vector_x, fields.vector_y};
  for (const auto& axes : s.dims) out.dims.push_back({.axes = axes});
  const auto dims = static_cast<DimId>(s.dims.size());
  out.dims[dims - 1].divides = fields.divides_x;
  out.dims[dims - 2].divides = fields.divides_y;
  const std::array<int64_t, 2> line{fields.store_line_x, fields.store_line_y};
  for (const LayoutGroup group : {X, Y}) {
    if (!line[group]) continue;
    Dim& dim = out.dims[group == X ? dims - 1 : dims - 2];
    const auto store = std::find_if(p.accesses.begin(), p.accesses.end(),
                                    [](const MemoryAccess& a) { return a.store; });
    dim.line = {.access = static_cast<AccessId>(store - p.accesses.begin()),
                .elements = line[group]};
  }
  // Blocks advance along stored rows first. Partial sectors and open memory pages of neighbouring
  // tiles then meet in L2.
  const std::array<int, 2> stored = stored_bytes(p, s);
  const bool stores_y = stored[Y] > stored[X];
  for (size_t i = 0; i < s.stages.size(); ++i) {
    const LayoutGroup group = s.stages[i], across = other(group);
    const DimId lanes = group == X ? dims - 1 : dims - 2, rows = group == X ? dims - 2 : dims - 1;
    LoopNest& nest = out.nests.emplace_back();
    nest.lanes.tail = vector[group] > 1 && fields.tail;
    const auto loop = [&](DimId dim, Bind bind, int64_t extent) {
      nest.loops.push_back({.dim = dim, .extent = extent, .bind = bind});
    };
    for (DimId d = 0; d < dims - 2; ++d) loop(d, Bind::Grid, 0);
    loop(stores_y ? dims - 1 : dims - 2, Bind::Grid, 0);
    loop(stores_y ? dims - 2 : dims - 1, Bind::Grid, 0);
    const int64_t x = tile[group] / vector[group], y = out.launch.threads / x;
    // Each thread holds one vector per row of the other group, or one element if that group stores
    // line-aligned.
    const int64_t held = line[across] ? 1 : std::min(vector[across], tile[across] / y);
    if (const int64_t steps = tile[across] / (y * held); steps > 1) loop(rows, Bind::Unroll, steps);
    loop(rows, Bind::ThreadY, y);
    loop(lanes, Bind::ThreadX, x);
    loop(rows, Bind::Unroll, held);
    loop(lanes, Bind::Vector, vector[group]);
    const bool first = i < 2, last = i + 2 >= s.stages.size();
    for (size_t a = 0; a < p.accesses.size(); ++a) {
      if (!p.accesses[a].store || s.of[a] != group) continue;
      const ValueId v = stored_value(p, p.accesses[a]);
      const bool waits = v >= 0 && (s.from[v] & bit_of(across)) != 0;
      if (waits ? last && i > 0 : first) nest.stores.push_back(p.accesses[a].index);
    }
    const bool crosses = i + 1 < s.stages.size();
    compute(p, s, nest, group, crosses);
    if (crosses)
      for (ValueId v : s.staged_values[group])
        out.stagings.push_back(staging_of(p, v, vector, group, x, line[across] != 0));
  }
  // The elements that the vectors of the last stage leave at the ends of rows.
  const LayoutGroup group = s.stages.back(), across = other(group);
  if (line[group] && vector[group] > 1) {
    LoopNest ends = out.nests.back();
    ends.ends = true;
    ends.lanes = {};
    std::erase_if(ends.loops, [](const Loop& l) { return l.bind != Bind::Grid; });
    const DimId lanes = group == X ? dims - 1 : dims - 2, rows = group == X ? dims - 2 : dims - 1;
    const int64_t x = std::max(2 * vector[group], out.launch.threads / tile[across]);
    const int64_t y = out.launch.threads / x;
    ends.loops.push_back({.dim = rows, .extent = tile[across] / y, .bind = Bind::Unroll});
    ends.loops.push_back({.dim = rows, .extent = y, .bind = Bind::ThreadY});
    ends.loops.push_back({.dim = lanes, .extent = x, .bind = Bind::ThreadX});
    ends.loops.push_back({.dim = lanes, .extent = 1, .bind = Bind::Vector});
    out.nests.push_back(std::move(ends));
  }
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const LayoutGroup group = group_of(p, s, i);
    Vectorization& access = out.accesses.emplace_back();
    if (group == None || vector[group] == 1) continue;
    if (fields.vectorized.contains(i))
      access = {.kind = VectorKind::Aligned, .width = static_cast<int>(vector[group])};
    else if (fields.unaligned.contains(i))
      access = {.kind = VectorKind::Unaligned, .width = static_cast<int>(vector[group])};
  }
  verify(p, out);
  return out;
}

void check_transpose(const Problem& p, const Plan& planned, const Plan& wanted) {
  const auto was = typed<TransposePlan>(planned);
  // Line-aligned vectors may be as long as an access of the widest type.
  const LayoutGroups s = layout_groups_of(p);
  const auto longest = [&](LayoutGroup group, int64_t vector, int64_t line) {
    int64_t most = line ? vector_bytes : vector;
    for (size_t i = 0; line && i < p.accesses.size(); ++i)
      if (p.accesses[i].store && s.of[i] == group)
        most = std::min<int64_t>(most, longest_vector(p.accesses[i]));
    return most;
  };
  check_fields(planned, wanted,
               {{"vector_x", 1, longest(X, was.vector_x, was.store_line_x)},
                {"vector_y", 1, longest(Y, was.vector_y, was.store_line_y)},
                {"tail", was.tail, 1},
                {"divides_x", 0, was.divides_x},
                {"divides_y", 0, was.divides_y},
                {"store_line_x", 0, was.store_line_x},
                {"store_line_y", 0, was.store_line_y}});
  const auto is = typed<TransposePlan>(wanted);
  const auto check = [&](const char* axis, int64_t tile, int64_t vector, int64_t line, bool divides,
                         int64_t most_tile, int64_t most_line) {
    const auto field = [&](const char* name, int64_t value) {
      return text(name, axis, "=", value);
    };
    expect(planned, vector <= tile, field("vector_", vector),
           text("a power of two that divides ", field("tile_", tile),
                ", because a tile consists of whole vectors"));
    expect(planned,
           !line ||
               (std::has_single_bit(static_cast<uint64_t>(line)) && line >= vector && line <= tile),
           field("store_line_", line),
           text("0 or a power of two from ", vector, " to ", tile,
                ", because lines consist of vectors and tiles of lines"));
    expect(planned, !divides || tile <= most_tile, field("tile_", tile),
           text("at most ", most_tile, ", or divides_", axis,
                "=0, because larger tiles may not divide the extent"));
    // Without line alignment the last vector of a row may end anywhere.
    expect(planned, line || !most_line || vector == 1 || is.tail, field("store_line_", line),
           text(most_line, ", or tail=1, or vector_", axis,
                "=1, because the last vector of a row may be incomplete"));
  };
  check("x", is.tile_x, is.vector_x, is.store_line_x, is.divides_x, was.tile_x, was.store_line_x);
  check("y", is.tile_y, is.vector_y, is.store_line_y, is.divides_y, was.tile_y, was.store_line_y);
  const bool aligned = is.store_line_x || is.store_line_y;
  const int64_t least = std::max(is.tile_x / is.vector_x, is.tile_y / is.vector_y);
  const int64_t most = most_threads_of({is.tile_x, is.tile_y}, {is.vector_x, is.vector_y}, aligned);
  expect(planned, is.threads >= least && is.threads <= most, text("threads=", is.threads),
         text(least, " to ", most,
              ", because threads share a row of the tile and each moves at least a vector"));
}

}  // namespace fuser::schedulers
