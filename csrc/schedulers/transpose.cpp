// Tensors that disagree on the innermost axis: some are contiguous along X, others along Y. A block
// takes a tile of both. Whatever lies along X is loaded and stored by threads whose lanes run along
// X, the rest by threads whose lanes run along Y, 16 bytes at a time on both sides; what one side
// needs of the other crosses in shared memory (lower/stage_crossings.cpp).
//
// Where a row along one side is only a few elements long, a tile of such rows would move little at
// once: the pointwise scheduler then walks the kernel in the order of what is stored, and what lies
// otherwise is read element by element, from cache.
//
// Only values that are computed from one side alone cross: as few bytes as possible, as read or as
// late as possible. What needs both sides is computed behind the crossing.
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
constexpr int threads_along = 16;   // of a row of the tile
constexpr int scalar_tile = 128;    // elements of it where nothing is moved by vectors
constexpr int short_row = 8;        // elements
constexpr int run_bytes = 1 << 10;  // of a tile along odd rows: 31 whole sectors and two parts
constexpr int line_bytes = 128;     // of memory, that a warp stores at once
constexpr int word_bytes = 4;
constexpr int longest_row = 256;        // elements that one tile holds as a whole
constexpr int most_tile = 512;          // elements of a side, of a changed plan
constexpr int crowded_blocks = 5;       // a processor, where half as many are turned
constexpr double few_slots = 8.0;       // of an element
constexpr int shared_bytes = 64 << 10;  // of a block: three of them and more share a processor

// Adds what the stage computes: all that its stores and what crosses from it need, but for what
// crosses to it.
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

// Where the row of an access along a side starts in memory; nullptr where its elements are no
// neighbours.
Expr origin_of(Problem& p, const Sides& s, Side side, const MemoryAccess& a) {
  Expr along = coefficient(p, a, s.axes(side));
  if (!along || !along->is_constant(1)) return nullptr;
  std::vector<AxisId> others;
  for (AxisId k : p.order)
    if (!(set_of(s.axes(side)) >> k & 1)) others.push_back(k);
  return offset_along(p, a, others);
}

// What a tile has of rows that are stored element by element: an element for each thread. Tiles
// that neighbour along such a row both store a part of the sector in which they meet, and a part
// takes as long as a whole one: the longer the tile, the fewer there are.
int64_t run_along(const Problem& p) {
  int widest = 1;
  for (const MemoryAccess& a : p.accesses)
    if (a.store) widest = std::max(widest, size_of(a.dtype));
  return std::min(block_threads, run_bytes / widest);
}

// The tile along a side that does best where nothing else speaks against it. Where the extents are
// multiples, no element is asked whether it exists.
int whole_tile(const Sides& s, Side side) { return threads_along * s.vector[side]; }

// Resident blocks that the compiler is asked for; 0: as it likes. Left to itself it loads in two
// goes for one block more where several tensors are moved: biases beside 8192 x 8192 bfloat16 on an
// H200 take 67.7 us, 66.4 with one block asked for. Where one is copied that is 67.4 for 66.6, but
// of half as many threads 50.7 and 49.4 (to channels-last, 64 images of 64 x 12544).
// Where half as many elements are turned there is room for more than it makes of itself: float32 to
// bfloat16 96.4 us, 94.0 with five blocks; with six it spills.
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

// What becomes a plan, by side.
struct Tiling {
  std::array<int64_t, 2> most{};  // elements along it, at the most
  std::array<int64_t, 2> vector{};
  std::array<int64_t, 2> tile{};
  AccessSet shifted;  // reads of vectors that lie at any element
  Side stored = None;
  int64_t line = 0;   // elements: where vectors of rows that start anywhere are aligned to lines
  bool runs = false;  // single elements are stored, in runs of several vectors' length
};

bool moves_whole(Problem& p, const Sides& s, const Hints& hints, size_t access, Side side,
                 int vector) {
  return vector > 1 && can_vector(p, p.accesses[access], s.axes(side), hints, vector);
}

// The widest vectors of a side that move most of its bytes.
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

// The reads along a side that put vectors together from the two that they lie in, where no vector
// is whole; none where not all that moves along it does so. Of words a warp reads a line at once
// without that; of halves it reads half of one, and what L2 is asked for decides: 8191 x 8193
// bfloat16 on an H200 took 73% of a copy element by element, 81 by hand like this.
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

// Vectors of words, where an element is less than one and no vector of a word is whole: lanes start
// at a line of memory in each row of a tile and go round it, so that one vector of a row, at most,
// is stored element by element: copies of 8191 x 8193 on an H100 take 105.3 us, 119.2 by elements
// (bfloat16, a copy 87.9), and 60.9, 69.2 (int8). 1: not where something else depends on the place
// in a row, where rows of several outputs start at different places in a word, or where several
// tensors come from the other side, whose vectors need the registers (a sum of two bfloat16: 170.9
// us, 164.4 by elements).
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

// The tile of a side by its vectors.
int64_t tile_of(Problem& p, const Sides& s, const Hints& hints, const Tiling& t, Side side) {
  // Where the last tile would be a half: from channels-last, 64 images of 256 x 3136 bfloat16, on
  // an H200, 54.6 us with whole ones, 50.9 with halves.
  const int64_t half = whole_tile(s, side) / 2;
  int64_t tile =
      s.vector[side] > 1 && t.vector[side] == 1 ? scalar_tile : threads_along * t.vector[side];
  if (t.runs) tile = side == t.stored ? run_along(p) : warp;
  Expr extent = extent_of(p, s.axes(side));
  const bool ends_in_half = t.vector[side] == s.vector[side] && tile == 2 * half &&
                            !hints.divides(extent, 2 * half) && hints.divides(extent, half);
  return ends_in_half ? half : tile;
}

// Where a stored row ends inside its last tile, one tile holds it whole: what is stored is one
// run of memory from row to row. 64 images of n x 768 on an H200, in us, before and after:
// bfloat16 10.0 and 8.6 (n = 100), 14.5 and 13.3 (196), 18.4 and 16.0 (250), float32 22.7
// and 21.4 (196).
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

// Tiles no longer than what there is of a side, and together no larger than shared memory.
void fit(const Problem& p, const Sides& s, const Device& device, Tiling& t) {
  for (const Side side : {X, Y}) {
    int64_t fits = t.tile[side];
    while (fits / 2 >= t.most[side] && fits > t.vector[side]) fits /= 2;
    // A tile of less than a half is longer along the other side.
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

// A thread moves a vector of both sides at least; where one of them is aligned to lines, which no
// thread of the other holds, a vector of either.
int64_t most_threads_of(const std::array<int64_t, 2>& tile, const std::array<int64_t, 2>& vector,
                        bool aligned) {
  const int64_t elements = tile[X] * tile[Y];
  return aligned ? elements / std::max(vector[X], vector[Y]) : elements / (vector[X] * vector[Y]);
}

// Does the tile, or one that it divides and that was asked about, divide its axis?
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
  // Few of the lanes of the last tile of a row may be idle: rows are several tiles long.
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
  // Who moves single elements of a square has half as many: 59% of a copy for odd rows of bfloat16,
  // against 55.
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
  // Blocks follow each other along rows that are stored: parts of sectors, and of what memory opens
  // at once, meet in L2. Transposed copies on an H200, before and after, in us: bfloat16
  // 8191 x 8193 97.5 and 90.2, float32 of that size 163.4 and 148.2, float32 8192 x 8192 133.4 and
  // 130.4, int8 8192 x 16384 70.8 and 66.9.
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
    // Of a row along the other side, a thread holds a vector, but for what is aligned there.
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
  // What vectors of the last stage leave at the ends of rows.
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
  // Vectors that start at lines may be as long as an access of the widest type.
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
    // Without lines the last vector of a row, of which nothing is known, ends anywhere.
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
