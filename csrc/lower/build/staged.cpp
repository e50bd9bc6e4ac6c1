#include <algorithm>

#include "base/error.h"
#include "lower/build/staged_builder.h"

namespace fuser::lower {

using namespace fusion;
using namespace ir;
using namespace schedule;

namespace staged {

Expr Builder::index_let(Body& body, Expr value) {
  const int v = new_var();
  body.push_back({Let{.var = v, .value = value, .index = true}});
  return exprs().symbol(Symbol::Var, v, 0, value->dtype);
}

// The offset of the first step is named before the loops. Steps and lanes add constants that are
// equal for all threads. An offset that is not linear in its dims is divided inside the loops.
Offset Builder::offset(const ThreadMapping& w, Expr whole, Body& body, Expr second, Expr here) {
  const auto form = linear_in_dims(exprs(), w.axes, whole);
  if (!form) return [whole](Expr) { return whole; };
  const auto start = [&](Expr offset) { return address(exprs(), w.start, offset, nullptr); };
  Expr first = start(whole);
  Expr at =
      index_let(body, second ? exprs().apply(Op::where, {here, first, start(second)}) : first);
  for (DimId d = 0; d < static_cast<int>(tile.size()); ++d) {
    const std::vector<int>& axes = w.axes[d].axes;
    if (!axes.empty())
      at = exprs().add(at, exprs().mul(form->coefficients[axes.back()], stepped(w, d)));
  }
  Expr along = w.lanes > 1 ? form->coefficients[w.axes[w.lane_dim].axes.back()] : constant(0);
  return [=, this](Expr lane) { return exprs().add(at, exprs().mul(along, lane)); };
}

// A vector width belongs to one layout group. An access that varies along both groups may be read
// in either stage; if lanes run across its rows, then its elements are not adjacent.
bool Builder::is_vectorized(const ThreadMapping& w, int access) const {
  return w.lanes > 1 && schedule.accesses[access].kind == VectorKind::Aligned &&
         schedule.accesses[access].width == w.lanes && in_lanes(w, problem.accesses[access]);
}

bool Builder::is_unaligned(const ThreadMapping& w, int access) const {
  const MemoryAccess& a = problem.accesses[access];
  return w.lanes > 1 && schedule.accesses[access].kind == VectorKind::Unaligned &&
         w.lanes * size_of(a.dtype) >= 4 && in_lanes(w, a);
}

// Returns whether neighbouring lanes access neighbouring elements.
bool Builder::in_lanes(const ThreadMapping& w, const MemoryAccess& a) const {
  const AxisId innermost = w.axes[w.lane_dim].axes.back();
  return a.strides ? a.strides->coefficients[innermost]->is_constant(1)
                   : (axes_of(problem, a) >> innermost & 1) != 0;
}

std::string Builder::name_of(const char* prefix, int access, size_t stage) {
  const int buffer = problem.accesses[access].buffer;
  int earlier = 0;
  for (int i = 0; i < access; ++i) earlier += problem.accesses[i].buffer == buffer;
  std::string name = text(prefix, kernel.buffers[buffer].name.substr(1));
  if (earlier) name += text("_", earlier);
  for (size_t s = 0; s < stage; ++s)
    if (array_of[s][access] >= 0) return name + text("_stage", stage);
  return name;
}

const SelectLoad* Builder::together(const ThreadMapping& w, int access) {
  for (const SelectLoad& e : select_loads)
    if (e.first == access && is_vectorized(w, access) == is_vectorized(w, e.second) &&
        !in_steps(w, e.axes) && (w.uniform_select || !in_lanes(w, e.axes)) &&
        linear_in_dims(exprs(), w.axes, offset_of(kernel, problem.accesses[access], {})))
      return &e;
  return nullptr;
}

void Builder::loads(Stage& stage) {
  const size_t s = stage.index;
  Body& body = stage.body;
  const ThreadMapping& w = mappings[s];
  for (ValueId v : schedule.nests[s].computed) {
    const int access = access_of[v];
    if (access < 0) continue;
    for (size_t before = 0; before < s; ++before)
      if (mappings[before].lane_dim == w.lane_dim && !w.cut && array_of[before][access] >= 0)
        array_of[s][access] = array_of[before][access];
    if (array_of[s][access] >= 0) continue;
    const MemoryAccess& a = problem.accesses[access];
    const AxisSet axes = axes_of(problem, a);
    const int array = new_array(name_of("r", access, s), a.dtype, elements(w, axes));
    array_of[s][access] = array;
    Expr inside = within(kernel, a.in, {}), here = nullptr, other = nullptr;
    if (const SelectLoad* e = together(w, access)) {
      other = offset_of(kernel, problem.accesses[e->second], {});
      array_of[s][e->second] = array;
      here = index_let(body, address(exprs(), w.start, within(kernel, e->in, {}), nullptr));
      inside = within(kernel, *e, here);
    }
    const Offset at = offset(w, offset_of(kernel, a, {}), body, other, here);
    const auto load = [&](Body& out, Expr lane, int width, Expr in) {
      const Mask g = mask(w, axes, width == 1 ? lane : nullptr);
      out.push_back({Load{.array = array,
                          .element = element(w, axes, lane),
                          .width = width,
                          .buffer = a.buffer,
                          .offset = at(lane),
                          .in = both(exprs(), g.in, in),
                          .count = g.count,
                          .unaligned = width > 1 && is_unaligned(w, access)}});
    };
    nest(w, axes, body, [&](Body& out) {
      if (!in_lanes(w, axes)) return load(out, constant(0), 1, inside);
      if (is_vectorized(w, access) || is_unaligned(w, access))
        return load(out, constant(0), w.lanes, inside);
      const Expr in = inside && w.uniform_select ? index_let(out, inside) : inside;
      for_lanes(w, out, [&](Body& lane_body, Expr lane) { load(lane_body, lane, 1, in); });
    });
  }
}

void Builder::stores(Stage& stage) {
  const size_t s = stage.index;
  Body& body = stage.body;
  const ThreadMapping& w = mappings[s];
  for (int access : stored_by(s)) {
    if (is_aligned(w, w.lane_dim)) {
      store_round(s, access, body);
      continue;
    }
    const MemoryAccess& a = problem.accesses[access];
    const AxisSet axes = axes_of(problem, a);
    const Offset at = offset(w, offset_of(kernel, a, {}), body);
    const auto write = [&](Body& out, Expr lane, int width) {
      const Mask g = mask(w, axes, width == 1 ? lane : nullptr);
      out.push_back({Write{.array = array_of[s][access],
                           .element = element(w, axes, lane),
                           .width = width,
                           .buffer = a.buffer,
                           .offset = at(lane),
                           .in = g.in,
                           .count = g.count,
                           .cache = cache_of(schedule, access, width, g.count)}});
    };
    nest(w, axes, body, [&](Body& out) {
      if (is_vectorized(w, access) || w.lanes == 1) return write(out, constant(0), w.lanes);
      for_lanes(w, out, [&](Body& lane_body, Expr lane) { write(lane_body, lane, 1); });
    });
  }
}

// Store the vectors that no end of the tile or of the row cuts. The stage with `cut` stores the
// remaining elements.
void Builder::store_round(size_t s, int access, Body& body) {
  const ThreadMapping& w = mappings[s];
  const MemoryAccess& a = problem.accesses[access];
  const AxisSet axes = axes_of(problem, a);
  const DimId dim = w.lane_dim;
  const Offset at = offset(w, offset_of(kernel, a, {}), body);
  const Offset start = start_behind(w, dim, w.cut ? w.cut : schedule.dims[dim].line.elements, body);
  nest(w, axes, body, [&](Body& out) {
    Expr begin = start(constant(0)), first = place(w, dim, begin);
    Expr last = exprs().add(first, constant(w.lanes - 1));
    Expr whole = exprs().apply(Op::lt, {last, end_of_row(w, dim)});
    out.push_back(
        {Write{.array = array_of[s][access],
               .element = element(w, axes, constant(0)),
               .width = w.lanes,
               .buffer = a.buffer,
               .offset = exprs().add(at(constant(0)), first),
               .in = both(exprs(), mask(w, axes, nullptr).in, w.cut ? is_cut(w, begin) : whole)}});
  });
}

std::vector<int> Builder::stored_by(size_t s) const {
  std::vector<int> out;
  const std::vector<int>& mine = schedule.nests[s].stores;
  for (size_t i = 0; i < problem.accesses.size(); ++i)
    if (problem.accesses[i].store &&
        std::find(mine.begin(), mine.end(), problem.accesses[i].index) != mine.end())
      out.push_back(static_cast<int>(i));
  return out;
}

Expr Builder::compute(size_t s, ValueId v, const Known& known, Body& body, Expr lane,
                      Body* outside) {
  const Value& value = values()[v];
  Body* const conditions = mappings[s].uniform_select ? outside : nullptr;
  if (Expr made = computed(problem, kernel, body, v, known, std::identity{}, conditions))
    return made;
  if (access_of[v] < 0)
    return exprs().symbol(Symbol::Value, std::get<Input>(value.tensor->definition).index, 0,
                          value.dtype);
  const AxisSet axes = axes_of(problem, problem.accesses[access_of[v]]);
  return exprs().element(array_of[s][access_of[v]], element(mappings[s], axes, lane), value.dtype);
}

Depth Builder::depth(const ThreadMapping& w, AxisSet axes) const {
  return over(axes, w.lane_dim) ? Lane : in_steps(w, axes) ? Step : Outside;
}

void Builder::compute_stage(Stage& stage) {
  const size_t s = stage.index;
  Body& body = stage.body;
  const ThreadMapping& w = mappings[s];
  Known known(values().size(), nullptr);
  const auto at_depth = [&](Depth d, Body& out, Expr lane, Body* outside = nullptr) {
    for (ValueId v : schedule.nests[s].computed)
      if (depth(w, values()[v].axes) == d) known[v] = compute(s, v, known, out, lane, outside);
  };
  at_depth(Outside, body, constant(0));
  for (int access : stored_by(s)) {
    const MemoryAccess& a = problem.accesses[access];
    array_of[s][access] =
        new_array(name_of("r", access, s), a.dtype, elements(w, axes_of(problem, a)));
  }
  nest(w, ~AxisSet{0}, body, [&](Body& out) {
    at_depth(Step, out, constant(0));
    for_lanes(w, out, [&](Body& lane_body, Expr lane) {
      for (const StagedValue& c : staged_values)
        if (takes(s, c))
          known[c.value] =
              exprs().element(c.array, element(w, ~AxisSet{0}, lane), values()[c.value].dtype);
      at_depth(Lane, lane_body, lane, &out);
      assign(s, lane_body, known, lane);
    });
  });
}

void Builder::assign(size_t s, Body& body, const Known& known, Expr lane) {
  const ThreadMapping& w = mappings[s];
  for (int access : stored_by(s)) {
    const MemoryAccess& a = problem.accesses[access];
    const Access& stored = problem.refined.stores[a.index].access;
    body.push_back({Assign{.array = array_of[s][access],
                           .element = element(w, axes_of(problem, a), lane),
                           .value = exprs().cast(a.dtype, operand(kernel, stored, known))}});
  }
  for (const StagedValue& c : staged_values) {
    if (c.from != s) continue;
    const size_t loop = turned_loop(w, c) - w.steps.data();
    body.push_back({Assign{
        .array = c.turned, .element = turned(w, c, lane, w.step[loop]), .value = known[c.value]}});
  }
}

void Builder::map_threads() {
  for (const LoopNest& nest : schedule.nests) mappings.push_back(make_mapping(nest));
}

void Builder::prepare_reads() {
  access_of.assign(values().size(), -1);
  for (size_t i = 0; i < problem.accesses.size(); ++i)
    if (!problem.accesses[i].store) access_of[problem.accesses[i].index] = static_cast<int>(i);
  array_of.assign(mappings.size(), std::vector<int>(problem.accesses.size(), -1));
  select_loads = find_select_loads(problem);
}

// Each stage maps threads to axes differently, so it resolves its own addresses.
void Builder::resolve_addresses(Stage& stage) {
  kernel.axes = mappings[stage.index].axes;
  std::swap(kernel.body, stage.body);
  addresses(kernel);
  std::swap(kernel.body, stage.body);
}

namespace {

// A stage.
constexpr lower::Step<Builder, Stage> stage_steps[] = {
    {"loads", &Builder::loads, "the index map of the stage",
     "loads the reads that no earlier stage with the same lanes has loaded",
     "the elements of all reads of the stage are in registers"},
    {"barrier", &Builder::wait_for_tiles, "the stage before wrote tiles to shared memory",
     "waits for all threads of the block, with the loads in flight", "the tiles are complete"},
    {"staged values", &Builder::read_tiles, "tiles in shared memory",
     "loads the staged values along the lanes of this stage", "their elements are in registers"},
    {"arithmetic", &Builder::compute_stage, "reads and staged values are in registers",
     "computes the values of the stage, each at the depth of its axes",
     "outputs and values of later stages are in registers"},
    {"staging", &Builder::write_tiles, "values of later stages are in registers, turned",
     "writes them to shared memory along the rows of the later stage",
     "tiles that are complete after a barrier"},
    {"stores", &Builder::stores, "outputs are in registers",
     "stores vectors, from lines or ends of rows where the schedule says so",
     "no output is pending"},
    {"addresses", &Builder::resolve_addresses, "offsets over axes",
     "resolves them with the index map of the stage", "no Symbol::Axis"},
};

}  // namespace

void Builder::emit_stages() {
  for (size_t s = 0; s < mappings.size(); ++s) {
    Stage stage{.index = s};
    run_steps(*this, stage_steps, stage);
    std::move(stage.body.begin(), stage.body.end(), std::back_inserter(kernel.body));
  }
}

}  // namespace staged

namespace {

using staged::Builder;

constexpr Step<Builder> kernel_steps[] = {
    {"dims", &Builder::measure_dims, "a legal schedule of tiles", "multiplies the loops of a block",
     "axes, extent and tile of each dim"},
    {"block", &Builder::place_block, "the tiles of each dim", "divides the index of the block",
     "the tile of a block, and the grid"},
    {"mappings", &Builder::map_threads, "the tile of a block",
     "makes a digit of the position in the tile of each loop of a nest",
     "the index map of each stage"},
    {"reads", &Builder::prepare_reads, "the index maps", "finds reads that one load serves",
     "an access per read, and pairs of reads"},
    {"staging", &Builder::declare_staged_values, "the lanes of each stage",
     "declares shared memory and registers of the values that cross it",
     "pitch, rotation and arrays of each staged value"},
    {"stages", &Builder::emit_stages, "all memory of the kernel is declared",
     "runs stage_steps for each nest", "all outputs are stored; no Symbol::Axis"},
};

}  // namespace

KernelIR build_staged(const Problem& problem, const Schedule& schedule, bool index64) {
  Builder b{{problem, schedule, declare_kernel(problem, schedule, index64)}};
  run_steps(b, kernel_steps);
  return std::move(b.kernel);
}

}  // namespace fuser::lower
