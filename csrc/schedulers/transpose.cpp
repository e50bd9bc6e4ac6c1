// Kernels whose tensors disagree on the innermost axis: layout group X is contiguous along axis X,
// layout group Y along axis Y (sides.h). A block takes a tile over both axes. Threads load and
// store group X with lanes along X, and group Y with lanes along Y, 16 bytes at a time. Values that
// one group needs of the other are staged in shared memory (lower/stage_crossings.cpp).
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
#include "fusion/work.h"
#include "schedulers/dims.h"
#include "schedulers/legal.h"
#include "schedulers/schedulers.h"
#include "schedulers/sides.h"

namespace fuser {
namespace {

constexpr int block_threads = 256;
constexpr int threads_along = 16;  // threads along a row of a tile
constexpr int scalar_tile = 128;   // elements of a row of a tile without vectors
constexpr int short_row = 8;       // elements of a row for which tiles do not pay
// Bytes of a tile along rows of odd length: 31 complete sectors and two partial ones.
constexpr int run_bytes = 1 << 10;
constexpr int line_bytes = 128;  // bytes of a memory line, which a warp stores at once
constexpr int word_bytes = 4;
constexpr int longest_row = 256;  // elements of a row that one tile holds completely, at most
constexpr int most_tile = 512;    // elements of a tile along one axis, in a changed plan
// Resident blocks per SM if threads hold half of turned_elements.
constexpr int crowded_blocks = 5;
constexpr double few_slots = 8.0;  // issue slots per element up to which that applies
// Bytes of shared memory per block, so that three or more fit an SM.
constexpr int shared_bytes = 64 << 10;

// Adds the values that a stage computes: all values that its stores and its staged values need,
// except the values that are staged for it.
void compute(const Problem& p, const Sides& s, Stage& stage, Side side, bool crosses) {
  std::vector<bool> needed(p.refined.values.size(), false);
  for (int store : stage.stores)
    if (const ValueId v = p.refined.stores[store].access.value; v >= 0) needed[v] = true;
  if (crosses)
    for (ValueId v : s.crossing[side]) needed[v] = true;
  const std::vector<ValueId>& given = s.crossing[other(side)];
  for (size_t v = needed.size(); v-- > 0;) {
    if (std::find(given.begin(), given.end(), static_cast<ValueId>(v)) != given.end())
      needed[v] = false;
    if (needed[v]) visit_operands(p.refined.values[v], [&](ValueId o) { needed[o] = true; });
  }
  for (size_t v = 0; v < needed.size(); ++v)
    if (needed[v]) stage.computed.push_back(static_cast<ValueId>(v));
}

AxisSet set_of(const std::vector<AxisId>& axes) {
  AxisSet set = 0;
  for (AxisId a : axes) set |= AxisSet{1} << a;
  return set;
}

// Returns the offset in memory of an access's row along the axis of a group; nullptr if the
// elements of the row are not adjacent.
Expr origin_of(Problem& p, const Sides& s, Side side, const MemoryAccess& a) {
  Expr along = coefficient(p, a, s.axes(side));
  if (!along || !along->is_constant(1)) return nullptr;
  std::vector<AxisId> others;
  for (AxisId k : p.order)
    if (!(set_of(s.axes(side)) >> k & 1)) others.push_back(k);
  return offset_along(p, a, others);
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
int whole_tile(const Sides& s, Side side) { return threads_along * s.vector[side]; }

// Returns the resident blocks per SM that limit the registers; 0: the compiler decides. By default
// the compiler splits the loads of several tensors into two rounds, to fit one more block. If
// threads hold half of turned_elements, more blocks fit than the compiler aims at.
int min_blocks(const Problem& p, int turned, int64_t threads) {
  if (p.accesses.size() > 2 || (turned == turned_elements && threads < block_threads)) return 1;
  double code = 0.0;
  for (const Value& v : p.refined.values) code += slots(v);
  return 2 * turned == turned_elements && code <= few_slots ? crowded_blocks : 0;
}

}  // namespace

Verdict match_transpose(Problem& p) {
  Verdict verdict;
  const FoundSides found = find_sides(p);
  if (!found.sides) return refuse(found.rule, found.why);
  const Sides& s = *found.sides;
  for (const Side side : {X, Y}) {
    Expr extent = extent_of(p, s.axes(side));
    ask_divides(verdict, extent, whole_tile(s, side));
    ask_divides(verdict, extent, whole_tile(s, side) / 2);
    verdict.extents.push_back(extent);
    for (int vector = s.vector[side]; vector > 1; vector /= 2) {
      ask_divides(verdict, extent, vector);
      for (size_t i = 0; i < p.accesses.size(); ++i)
        if (lanes_of(p, s, i) == side)
          if (const auto needs = vector_needs(p, p.accesses[i], s.axes(side)))
            for (Expr e : *needs) ask_divides(verdict, e, vector);
    }
  }
  ask_pointwise(p, order_of_stores(p, s), verdict);
  return verdict;
}

namespace {

// The choices that become a plan, by group.
struct Tiling {
  std::array<int64_t, 2> most{};  // upper bounds of the extents of X and Y
  std::array<int64_t, 2> vector{};
  std::array<int64_t, 2> tile{};
  AccessSet shifted;  // unaligned reads
  Side stored = None;
  int64_t line = 0;   // elements of a memory line at which stored vectors start; 0: no alignment
  bool runs = false;  // True if elements are stored one by one, by long tiles
};

bool moves_whole(Problem& p, const Sides& s, const Hints& hints, size_t access, Side side,
                 int vector) {
  return vector > 1 && can_vector(p, p.accesses[access], s.axes(side), hints, vector);
}

// Returns the longest vector of a group that vectorizes most of its bytes.
int vector_of(Problem& p, const Sides& s, const Hints& hints, Side side) {
  const auto moves_most = [&](int vector) {
    int whole = 0, all = 0;
    for (size_t i = 0; i < p.accesses.size(); ++i) {
      if (s.of[i] != side) continue;
      all += size_of(p.accesses[i].dtype);
      if (moves_whole(p, s, hints, i, side, vector)) whole += size_of(p.accesses[i].dtype);
    }
    return 2 * whole >= all;
  };
  int vector = s.vector[side];
  while (vector > 1 && !moves_most(vector)) vector /= 2;
  return vector;
}

// Returns the unaligned reads of a group. Empty unless every access of the group can be one. Warps
// that read 4-byte elements one by one read complete lines anyway. Warps that read smaller elements
// one by one read half lines or less, and the number of L2 requests limits them.
AccessSet shifted_reads(Problem& p, const Sides& s, const Hints& hints, Side side) {
  const int vector = s.vector[side];
  AccessSet out;
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    if (lanes_of(p, s, i) != side) continue;
    const int bytes = vector * size_of(a.dtype);
    Expr along = coefficient(p, a, s.axes(side));
    if (a.store || size_of(a.dtype) >= 4 || bytes < 4 || bytes > vector_bytes ||
        !a.in.bounds.empty() || !along || !along->is_constant(1) || !hints.aligned[a.buffer])
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
int aligned_vector(Problem& p, const Sides& s, const Hints& hints, const Tiling& t) {
  const Side side = t.stored;
  if (side == None) return 1;
  Stage last;
  Expr origin = nullptr;
  int least = word_bytes, widest = 1, reads = 0;
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    if (!a.store && s.of[i] == other(side) && ++reads > 1) return 1;
    if (!a.store) continue;
    last.stores.push_back(a.index);
    Expr mine = origin_of(p, s, side, a);
    if (!mine || (origin && mine != origin) || !hints.aligned[a.buffer]) return 1;
    origin = mine;
    least = std::min(least, size_of(a.dtype));
    widest = std::max(widest, size_of(a.dtype));
  }
  const int vector = word_bytes / least;
  if (t.vector[side] >= vector || vector * widest > vector_bytes) return 1;
  compute(p, s, last, side, false);
  for (ValueId v : last.computed) {
    const auto& how = p.refined.values[v].how;
    const bool placed = std::holds_alternative<Read>(how) || std::holds_alternative<Choose>(how) ||
                        std::holds_alternative<Coordinate>(how);
    if (placed && (p.refined.values[v].axes & set_of(s.axes(side)))) return 1;
  }
  return vector;
}

// Returns the tile of a group, given its vectors.
int64_t tile_of(Problem& p, const Sides& s, const Hints& hints, const Tiling& t, Side side) {
  // Half a tile, if the last tile would be half empty.
  const int64_t half = whole_tile(s, side) / 2;
  int64_t tile =
      s.vector[side] > 1 && t.vector[side] == 1 ? scalar_tile : threads_along * t.vector[side];
  if (t.runs) tile = side == t.stored ? run_along(p) : warp;
  Expr extent = extent_of(p, s.axes(side));
  const bool ends_in_half = t.vector[side] == s.vector[side] && tile == 2 * half &&
                            !hints.divides(extent, 2 * half) && hints.divides(extent, half);
  return ends_in_half ? half : tile;
}

// If stored rows end inside their last tile, then one tile holds complete rows, so that stores are
// contiguous in memory from row to row.
void hold_stored_rows(Problem& p, const Sides& s, const Hints& hints, Tiling& t) {
  const Side stored = t.stored;
  if (stored == None || t.vector[stored] == 1 ||
      hints.divides(extent_of(p, s.axes(stored)), whole_tile(s, stored) / 2))
    return;
  const int64_t row = ceil_pow2(t.most[stored]);
  if (row <= t.tile[stored] || row > longest_row) return;
  t.tile[stored] = row;
  t.tile[other(stored)] = std::min<int64_t>(t.tile[other(stored)], warp * longest_row / row);
}

// Limits the tiles to the extents and to shared memory.
void fit(const Problem& p, const Sides& s, const Device& device, Tiling& t) {
  for (const Side side : {X, Y}) {
    int64_t fits = t.tile[side];
    while (fits / 2 >= t.most[side] && fits > t.vector[side]) fits /= 2;
    // If a tile shrinks to less than half, it grows along the other axis.
    if (4 * fits <= t.tile[side])
      t.tile[other(side)] = std::min<int64_t>(t.tile[other(side)] * (t.tile[side] / fits),
                                              4 * threads_along * t.vector[other(side)]);
    t.tile[side] = fits;
  }
  const int bytes = crossing_bytes(p, s);
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
bool is_exact(Problem& p, const Sides& s, const Hints& hints, const Tiling& t, Side side) {
  const auto divides = [&](int64_t whole) {
    return whole % t.tile[side] == 0 && hints.divides(extent_of(p, s.axes(side)), whole);
  };
  return divides(whole_tile(s, side)) || divides(whole_tile(s, side) / 2);
}

}  // namespace

Plan plan_transpose(Problem& p, const Hints& hints, const Device& device) {
  const Sides s = sides_of(p);
  Tiling t;
  for (const Side side : {X, Y}) t.most[side] = hints.at_most(extent_of(p, s.axes(side)));
  for (const Side side : {X, Y}) {
    t.vector[side] = vector_of(p, s, hints, side);
    if (t.vector[side] < s.vector[side] && t.most[side] <= short_row)
      return plan_pointwise(p, order_of_stores(p, s), hints);
  }
  // Store by long tiles only if rows have several, so that few lanes of the last tile idle.
  t.stored = stored_side(p, s);
  const int words = aligned_vector(p, s, hints, t);
  if (words > 1) t.vector[t.stored] = 1;
  t.runs = t.stored != None && s.vector[t.stored] > 1 && t.vector[t.stored] == 1 &&
           t.most[t.stored] > 4 * run_along(p);
  if (t.runs) t.vector = {1, 1};
  for (const Side side : {X, Y}) {
    if (t.vector[side] > 1 || side == t.stored) continue;
    const AccessSet reads = shifted_reads(p, s, hints, side);
    t.shifted |= reads;
    if (!reads.empty()) t.vector[side] = s.vector[side];
  }
  bool tail = false;
  for (const Side side : {X, Y}) {
    tail = tail || !hints.divides(extent_of(p, s.axes(side)), t.vector[side]);
    t.tile[side] = tile_of(p, s, hints, t, side);
  }
  hold_stored_rows(p, s, hints, t);
  fit(p, s, device, t);
  const auto turned = static_cast<int>(t.vector[X] * t.vector[Y]);
  if (words > 1 && t.tile[t.stored] > words) {
    t.vector[t.stored] = words;
    t.line = std::min<int64_t>(t.tile[t.stored], line_bytes * words / word_bytes);
  }
  AccessSet wide;
  for (size_t i = 0; i < p.accesses.size(); ++i)
    if (const Side side = lanes_of(p, s, i); side != None && !(t.line && side == t.stored) &&
                                             moves_whole(p, s, hints, i, side, t.vector[side]))
      wide.insert(i);
  // With single elements and square tiles each thread takes half as many elements.
  const int wanted = turned == 1 && !t.runs ? 2 * block_threads : block_threads;
  const int64_t threads = std::min<int64_t>(wanted, most_threads_of(t.tile, t.vector, t.line != 0));
  return {.scheduler = "transpose",
          .fields = {{"threads", threads},
                     {"tile_x", t.tile[X]},
                     {"tile_y", t.tile[Y]},
                     {"vector_x", t.vector[X]},
                     {"vector_y", t.vector[Y]},
                     {"min_blocks", min_blocks(p, turned, threads)},
                     {"tail", tail},
                     {"exact_x", is_exact(p, s, hints, t, X)},
                     {"exact_y", is_exact(p, s, hints, t, Y)},
                     {"wide", wide},
                     {"shifted", t.shifted.without(wide)},
                     {"line_x", t.stored == X ? t.line : 0},
                     {"line_y", t.stored == Y ? t.line : 0}}};
}

Schedule schedule_transpose(Problem& p, const Plan& plan) {
  const Sides s = sides_of(p);
  if (plan.scheduler == "pointwise") return schedule_pointwise(p, order_of_stores(p, s), plan);
  Schedule out;
  out.threads = static_cast<int>(plan.get("threads"));
  out.min_blocks = static_cast<int>(plan.get("min_blocks"));
  out.tail = plan.get("tail") != 0;
  out.shifted = plan.set("shifted");
  out.backward = reads_earlier(p);
  const std::array<int64_t, 2> tile{plan.get("tile_x"), plan.get("tile_y")};
  const std::array<int64_t, 2> vector{plan.get("vector_x"), plan.get("vector_y")};
  for (const auto& axes : s.dims) out.dims.push_back({.axes = axes});
  const auto dims = static_cast<DimId>(s.dims.size());
  out.dims[dims - 1].exact = plan.get("exact_x") != 0;
  out.dims[dims - 2].exact = plan.get("exact_y") != 0;
  const std::array<int64_t, 2> line{plan.get("line_x"), plan.get("line_y")};
  for (const Side side : {X, Y}) {
    if (!line[side]) continue;
    Dim& dim = out.dims[side == X ? dims - 1 : dims - 2];
    dim.line = line[side];
    const auto store = std::find_if(p.accesses.begin(), p.accesses.end(),
                                    [](const MemoryAccess& a) { return a.store; });
    dim.origin = origin_of(p, s, side, *store);
  }
  // Blocks advance along stored rows first. Partial sectors and open memory pages of neighbouring
  // tiles then meet in L2.
  const std::array<int, 2> stored = stored_bytes(p, s);
  const bool stores_y = stored[Y] > stored[X];
  for (size_t i = 0; i < s.stages.size(); ++i) {
    const Side side = s.stages[i], across = other(side);
    const DimId lanes = side == X ? dims - 1 : dims - 2, rows = side == X ? dims - 2 : dims - 1;
    Stage& stage = out.stages.emplace_back();
    const auto loop = [&](DimId dim, Bind bind, int64_t extent) {
      stage.loops.push_back({.dim = dim, .extent = extent, .bind = bind});
    };
    for (DimId d = 0; d < dims - 2; ++d) loop(d, Bind::Grid, 0);
    loop(stores_y ? dims - 1 : dims - 2, Bind::Grid, 0);
    loop(stores_y ? dims - 2 : dims - 1, Bind::Grid, 0);
    const int64_t x = tile[side] / vector[side], y = out.threads / x;
    // Each thread holds one vector per row of the other group, or one element if that group stores
    // line-aligned.
    const int64_t held = line[across] ? 1 : std::min(vector[across], tile[across] / y);
    if (const int64_t steps = tile[across] / (y * held); steps > 1) loop(rows, Bind::Unroll, steps);
    loop(rows, Bind::ThreadY, y);
    loop(lanes, Bind::ThreadX, x);
    loop(rows, Bind::Unroll, held);
    loop(lanes, Bind::Vector, vector[side]);
    const bool first = i < 2, last = i + 2 >= s.stages.size();
    for (size_t a = 0; a < p.accesses.size(); ++a) {
      if (!p.accesses[a].store || s.of[a] != side) continue;
      const ValueId v = stored_value(p, p.accesses[a]);
      const bool waits = v >= 0 && (s.from[v] & bit_of(across)) != 0;
      if (waits ? last && i > 0 : first) stage.stores.push_back(p.accesses[a].index);
    }
    const bool crosses = i + 1 < s.stages.size();
    compute(p, s, stage, side, crosses);
    if (crosses)
      for (ValueId v : s.crossing[side]) out.stored.push_back({.value = v, .place = Place::Shared});
  }
  // The elements that the vectors of the last stage leave at the ends of rows.
  const Side side = s.stages.back(), across = other(side);
  if (line[side] && vector[side] > 1) {
    Stage ends = out.stages.back();
    ends.ends = true;
    std::erase_if(ends.loops, [](const Loop& l) { return l.bind != Bind::Grid; });
    const DimId lanes = side == X ? dims - 1 : dims - 2, rows = side == X ? dims - 2 : dims - 1;
    const int64_t x = std::max(2 * vector[side], out.threads / tile[across]), y = out.threads / x;
    ends.loops.push_back({.dim = rows, .extent = tile[across] / y, .bind = Bind::Unroll});
    ends.loops.push_back({.dim = rows, .extent = y, .bind = Bind::ThreadY});
    ends.loops.push_back({.dim = lanes, .extent = x, .bind = Bind::ThreadX});
    ends.loops.push_back({.dim = lanes, .extent = 1, .bind = Bind::Vector});
    out.stages.push_back(std::move(ends));
  }
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const Side side = lanes_of(p, s, i);
    const bool wide = side != None && plan.set("wide").contains(i);
    out.widths.push_back(wide ? static_cast<int>(vector[side]) : 1);
  }
  verify(out, static_cast<int>(p.refined.axes.size()));
  return out;
}

void check_transpose(Problem& p, const Plan& planned, const Plan& wanted) {
  if (planned.scheduler == "pointwise") return check_pointwise(p, planned, wanted);
  const auto was = [&](const char* field) { return planned.get(field); };
  // Line-aligned vectors may be as long as an access of the widest type.
  const Sides s = sides_of(p);
  const auto longest = [&](Side side, const char* vector, const char* line) {
    int64_t most = was(line) ? vector_bytes : was(vector);
    for (size_t i = 0; was(line) && i < p.accesses.size(); ++i)
      if (p.accesses[i].store && s.of[i] == side)
        most = std::min<int64_t>(most, longest_vector(p.accesses[i]));
    return most;
  };
  check_fields(planned, wanted,
               {{"threads", warp, most_threads, Field::Power},
                {"tile_x", 1, most_tile, Field::Power},
                {"tile_y", 1, most_tile, Field::Power},
                {"vector_x", 1, longest(X, "vector_x", "line_x"), Field::Divisor},
                {"vector_y", 1, longest(Y, "vector_y", "line_y"), Field::Divisor},
                {"min_blocks", 0, 16},
                {"tail", was("tail"), 1},
                {"exact_x", 0, was("exact_x")},
                {"exact_y", 0, was("exact_y")},
                {"line_x", 0, was("line_x")},
                {"line_y", 0, was("line_y")}});
  struct Names {
    const char *tile, *vector, *line, *exact;
  };
  constexpr Names sides[] = {{"tile_x", "vector_x", "line_x", "exact_x"},
                             {"tile_y", "vector_y", "line_y", "exact_y"}};
  for (const Names& n : sides) {
    const int64_t tile = wanted.get(n.tile), vector = wanted.get(n.vector);
    const int64_t line = wanted.get(n.line);
    const auto is = [](const char* field, int64_t value) { return text(field, "=", value); };
    expect(planned, vector <= tile, is(n.vector, vector),
           text("a power of two that divides ", is(n.tile, tile)));
    expect(planned,
           !line ||
               (std::has_single_bit(static_cast<uint64_t>(line)) && line >= vector && line <= tile),
           is(n.line, line), text("0 or a power of two from ", vector, " to ", tile));
    expect(planned, !wanted.get(n.exact) || tile <= was(n.tile), is(n.tile, tile),
           text("at most ", was(n.tile), ", or ", n.exact, "=0"));
    // Without line alignment the last vector of a row may end anywhere.
    expect(planned, line || !was(n.line) || vector == 1 || wanted.get("tail"), is(n.line, line),
           text(was(n.line), ", or tail=1, or ", n.vector, "=1"));
  }
  const std::array<int64_t, 2> tile{wanted.get("tile_x"), wanted.get("tile_y")};
  const std::array<int64_t, 2> vector{wanted.get("vector_x"), wanted.get("vector_y")};
  const bool aligned = wanted.get("line_x") || wanted.get("line_y");
  const int64_t least = std::max(tile[X] / vector[X], tile[Y] / vector[Y]);
  const int64_t most = most_threads_of(tile, vector, aligned), threads = wanted.get("threads");
  expect(planned, threads >= least && threads <= most, text("threads=", threads),
         text(least, " to ", most, ", for the vectors of such a tile"));
}

}  // namespace fuser
