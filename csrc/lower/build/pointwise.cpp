#include <algorithm>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "lower/build/builder_state.h"
#include "lower/passes.h"

namespace fuser::lower {

using namespace fusion;
using namespace ir;
using namespace schedule;

namespace {

// Builder of kernels with one nest and without collectives: every thread owns the vector lanes of
// one point of the iteration space.
struct Builder : BuilderState {
  int lanes = 1;
  AxisSet lane_axes = 0;
  Expr in = nullptr, count = nullptr;  // mask and element count of this thread; `in` encloses all
                                       // statements
  const char* prefix = "r";            // prefix of array names
  // all lanes are on one side of every boundary of a Select
  bool uniform_select = false;
  std::vector<int> array_of_access;  // by access: register array that it loads into or stores from
  std::vector<Expr> uniform, in_lane;  // by value: its expression outside and inside the lane loop

  const LoopNest& nest() const { return schedule.nests[0]; }
  bool is_vectorized(size_t access) const {
    return schedule.accesses[access].kind == VectorKind::Aligned;
  }
  Expr import(Expr e) { return lower::import(kernel, e); }
  Expr offset(const MemoryAccess& a) { return offset_of(kernel, a, uniform); }
  Expr inside(const MemoryAccess& a, const std::vector<Expr>& known) {
    return within(kernel, a.in, known);
  }
  bool varies(AxisSet axes) const { return lanes > 1 && (axes & lane_axes) != 0; }

  // Builds the index map: the point of the space that each thread owns.
  void make_index_map() {
    std::vector<int64_t> per_thread(schedule.dims.size(), 1);
    for (const Loop& l : nest().loops)
      if (l.bind == Bind::Vector) {
        per_thread[l.dim] = l.extent;
        lanes = static_cast<int>(l.extent);
        for (AxisId a : schedule.dims[l.dim].axes) lane_axes |= AxisSet{1} << a;
      }
    const int thread = new_var();
    Expr rest = var(thread);
    Expr work = exprs().constant(1);
    std::vector<LinearAxes> index_map(schedule.dims.size());
    for (size_t d = schedule.dims.size(); d-- > 0;) {
      LinearAxes& w = index_map[d];
      Expr extent = exprs().constant(1);
      for (AxisId a : schedule.dims[d].axes) {
        w.axes.push_back(a);
        w.extents.push_back(import(problem.refined.axes[a].extent));
        extent = exprs().mul(extent, w.extents.back());
      }
      Expr steps = exprs().ceil_div(extent, per_thread[d]);
      work = exprs().mul(work, steps);
      Expr position = d == 0 ? rest : exprs().mod(rest, steps);
      rest = d == 0 ? rest : exprs().div(rest, steps);
      w.vector = per_thread[d] > 1;
      w.index = exprs().mul(position, exprs().constant(per_thread[d]));
      w.whole = w.vector && !nest().lanes.tail && w.axes.size() == 1;
      if (w.vector && nest().lanes.tail) count = exprs().sub(extent, w.index);
    }
    // With one dim, the count alone masks threads past the end.
    if (!count || schedule.dims.size() > 1) in = exprs().apply(Op::lt, {var(thread), work});
    kernel.blocks = exprs().ceil_div(work, schedule.launch.threads);
    Expr block = exprs().symbol(Symbol::Block, 0);
    if (schedule.launch.reverse_grid)
      block = exprs().sub(exprs().sub(kernel.blocks, exprs().constant(1)), block);
    kernel.body.push_back(
        {Let{.var = thread,
             .value = exprs().add(exprs().mul(block, exprs().constant(schedule.launch.threads)),
                                  exprs().symbol(Symbol::Thread, 0)),
             .index = true}});
    kernel.axes = std::move(index_map);
  }

  // Returns the lane window of a strided access, or nullptr if its lanes are neighbours.
  const LaneWindow* window(size_t access) const {
    const Vectorization& v = schedule.accesses[access];
    const bool strided = v.kind == VectorKind::Strided && lanes > 1;
    return strided && varies(axes_of(problem, problem.accesses[access])) ? &v.window : nullptr;
  }

  // Returns the loop over the lanes of accesses that move lane by lane, with the body that
  // make(body, lane) emits.
  Stmt lane_loop(const std::function<void(Body&, Expr lane)>& make) {
    For loop{.var = new_var(), .extent = lanes, .body = {}};
    make(loop.body, var(loop.var));
    return {std::move(loop)};
  }

  Expr lane_count(Expr lane) { return count ? exprs().sub(count, lane) : nullptr; }

  void loads() {
    std::vector<size_t> by_lane;
    array_of_access.assign(problem.accesses.size(), -1);
    std::vector<int> accesses_of_buffer(kernel.buffers.size(), 0);
    for (size_t i = 0; i < problem.accesses.size(); ++i) {
      const MemoryAccess& a = problem.accesses[i];
      const bool per_lane = varies(axes_of(problem, a));
      const LaneWindow* seen = window(i);
      const std::string& buffer = kernel.buffers[a.buffer].name;
      // A buffer that is read at several coordinates has one array for each: r_in0, r_in0_1 ...
      const int earlier = accesses_of_buffer[a.buffer]++;
      array_of_access[i] =
          new_array(text(prefix, buffer.substr(1), earlier ? text("_", earlier) : ""), a.dtype,
                    seen                  ? seen->width
                    : per_lane || a.store ? lanes
                                          : 1);
      if (a.store || is_loaded(a)) continue;
      if (seen) {
        kernel.body.push_back(
            {Load{.array = array_of_access[i],
                  .element = exprs().constant(0),
                  .width = seen->width,
                  .buffer = a.buffer,
                  .offset = exprs().sub(offset(a), exprs().constant(seen->start))}});
        continue;
      }
      if (per_lane && !is_vectorized(i)) {
        by_lane.push_back(i);
        continue;
      }
      kernel.body.push_back({Load{.array = array_of_access[i],
                                  .element = exprs().constant(0),
                                  .width = per_lane ? lanes : 1,
                                  .buffer = a.buffer,
                                  .offset = offset(a),
                                  .in = inside(a, uniform),
                                  .count = count}});
    }
    if (by_lane.empty()) return;
    std::vector<Expr> in_bounds;
    for (size_t i : by_lane)
      in_bounds.push_back(of_all_lanes(inside(problem.accesses[i], uniform)));
    kernel.body.push_back(lane_loop([&](Body& body, Expr lane) {
      for (size_t n = 0; n < by_lane.size(); ++n) {
        const MemoryAccess& a = problem.accesses[by_lane[n]];
        body.push_back({Load{.array = array_of_access[by_lane[n]],
                             .element = lane,
                             .width = 1,
                             .buffer = a.buffer,
                             .offset = offset(a),
                             .in = in_bounds[n],
                             .count = lane_count(lane)}});
      }
    }));
  }

  // Returns the mask as the lane loop reads it. If it is uniform across lanes, then it is named
  // before the loop.
  Expr of_all_lanes(Expr in) {
    if (!in || !uniform_select) return in;
    const int name = new_var();
    kernel.body.push_back({Let{.var = name, .value = in, .index = true}});
    return var(name, DType::Bool);
  }

  // Returns the expression of value v, with a Let in `body` unless it is a leaf. Inside the lane
  // loop, `outside` is the body in front of the loop.
  Expr compute(ValueId v, const std::vector<Expr>& known, Body& body, Expr lane,
               Body* outside = nullptr) {
    const Value& value = problem.refined.values[v];
    Body* const conditions = uniform_select ? outside : nullptr;
    if (Expr made = computed(problem, kernel, body, v, known, std::identity{}, conditions))
      return made;
    for (size_t i = 0; i < problem.accesses.size(); ++i) {
      const MemoryAccess& a = problem.accesses[i];
      if (a.store || a.index != v) continue;
      Expr element = kernel.arrays[array_of_access[i]].extent > 1 ? lane : exprs().constant(0);
      if (const LaneWindow* seen = window(i))
        element = exprs().add(exprs().mul(exprs().div(lane, exprs().constant(seen->repeat)),
                                          exprs().constant(seen->step)),
                              exprs().constant(seen->start));
      if (is_loaded(a)) {
        const Expr here = inside(a, known), left = count ? lane_count(lane) : nullptr;
        const Expr exists = left ? exprs().apply(Op::lt, {exprs().constant(0), left}) : nullptr;
        check_indices(problem, kernel, body, a, both(exprs(), exists, here), known,
                      [](Expr e) { return e; });
        body.push_back({Load{.array = array_of_access[i],
                             .element = element,
                             .width = 1,
                             .buffer = a.buffer,
                             .offset = offset_of(kernel, a, known),
                             .in = here,
                             .count = left}});
      }
      return exprs().element(array_of_access[i], element, a.dtype);
    }
    // A value without a memory access is a CPU tensor of no dims, passed by value.
    return exprs().symbol(Symbol::Value, std::get<Input>(value.tensor->definition).index, 0,
                          value.dtype);
  }

  void compute_values() {
    const std::vector<Value>& values = problem.refined.values;
    uniform.assign(values.size(), nullptr);
    for (size_t v = 0; v < values.size(); ++v)
      if (!varies(values[v].axes))
        uniform[v] = compute(static_cast<ValueId>(v), uniform, kernel.body, exprs().constant(0));
    const auto assign = [&](Body& body, const std::vector<Expr>& known, Expr lane) {
      for (size_t i = 0; i < problem.accesses.size(); ++i) {
        const MemoryAccess& a = problem.accesses[i];
        if (!a.store) continue;
        const Access& stored = problem.refined.stores[a.index].access;
        body.push_back({Assign{.array = array_of_access[i],
                               .element = lane,
                               .value = exprs().cast(a.dtype, operand(kernel, stored, known))}});
      }
    };
    if (lanes == 1) {
      assign(kernel.body, uniform, exprs().constant(0));
      return;
    }
    in_lane = uniform;
    kernel.body.push_back(lane_loop([&](Body& body, Expr lane) {
      for (size_t v = 0; v < values.size(); ++v)
        if (varies(values[v].axes))
          in_lane[v] = compute(static_cast<ValueId>(v), in_lane, body, lane, &kernel.body);
      assign(body, in_lane, lane);
    }));
  }

  void stores() {
    std::vector<size_t> by_lane;
    for (size_t i = 0; i < problem.accesses.size(); ++i) {
      const MemoryAccess& a = problem.accesses[i];
      if (!a.store) continue;
      if (lanes > 1 && !is_vectorized(i)) {
        by_lane.push_back(i);
        continue;
      }
      kernel.body.push_back({Write{.array = array_of_access[i],
                                   .element = exprs().constant(0),
                                   .width = lanes,
                                   .buffer = a.buffer,
                                   .offset = offset(a),
                                   .count = count,
                                   .cache = cache_of(schedule, i, lanes, count)}});
    }
    if (by_lane.empty()) return;
    kernel.body.push_back(lane_loop([&](Body& body, Expr lane) {
      for (size_t i : by_lane) {
        const MemoryAccess& a = problem.accesses[i];
        body.push_back({Write{.array = array_of_access[i],
                              .element = lane,
                              .width = 1,
                              .buffer = a.buffer,
                              .offset = offset(a),
                              .count = lane_count(lane)}});
      }
    }));
  }

  // Returns all statements of a thread.
  Body point();

  // Returns the statements for vectors that exist and lie in one row of the innermost axis. Values
  // that do not vary along that axis are computed once for all lanes. `there` receives the
  // condition.
  Body in_one_row(Expr& there) {
    std::vector<LinearAxes> index_map = kernel.axes;
    LinearAxes& w = *std::find_if(index_map.begin(), index_map.end(),
                                  [](const LinearAxes& axes) { return axes.vector; });
    w.whole = true;
    Expr last = exprs().add(exprs().mod(w.index, w.extents.back()), exprs().constant(lanes - 1));
    there = exprs().apply(Op::lt, {last, w.extents.back()});
    if (count)
      there = both(exprs(), there, exprs().apply(Op::lt, {exprs().constant(lanes - 1), count}));
    const auto before = std::make_tuple(prefix, lane_axes, count, uniform_select);
    prefix = "w";
    lane_axes = AxisSet{1} << w.axes.back();
    count = nullptr;
    // Exclude vectors that a Select boundary cuts; a row has few of them.
    const auto boundaries = on_one_side(w.axes.back());
    if (boundaries) uniform_select = true;
    for (Expr boundary : boundaries.value_or(std::vector<Expr>()))
      there =
          both(exprs(), there,
               exprs().apply(Op::eq,
                             {address(exprs(), index_map, boundary, nullptr),
                              address(exprs(), index_map, boundary, exprs().constant(lanes - 1))}));
    Body body = point();
    std::tie(prefix, lane_axes, count, uniform_select) = before;
    place(body, index_map, nullptr);
    return body;
  }

  // Returns the conditions of every boundary along `inner`. If each is equal for the first and the
  // last lane of a vector, then it holds for all lanes or for no lane. Returns nullopt if that does
  // not follow because a coordinate is not linear or was loaded.
  std::optional<std::vector<Expr>> on_one_side(AxisId inner) {
    std::vector<Expr> conditions;
    const auto add = [&](const Pred& in) {
      for (const Pred::Bound& b : in.bounds) {
        // the axes of a Loaded coordinate are not visible in it
        if (b.coord->has(Symbol::Indirect)) return false;
        if (!(axes_of({b.coord}) >> inner & 1)) continue;
        const auto axes = static_cast<int>(problem.refined.axes.size());
        if (!linear(exprs(), import(b.coord), axes)) return false;
        for (const auto& [lo, hi] : {std::pair{b.lo, Expr()}, {Expr(), b.hi}})
          if (lo || hi)
            if (Expr condition = within(kernel, {{{.coord = b.coord, .lo = lo, .hi = hi}}}, {});
                condition &&
                std::find(conditions.begin(), conditions.end(), condition) == conditions.end())
              conditions.push_back(condition);
      }
      return true;
    };
    for (const MemoryAccess& a : problem.accesses)
      if (!add(a.in)) return std::nullopt;
    for (const Value& v : problem.refined.values)
      if (const auto* select = std::get_if<Select>(&v.how))
        for (const Access& a : select->args)
          if (!add(a.in)) return std::nullopt;
    return conditions;
  }

  void place(Body& body, const std::vector<LinearAxes>& index_map, Expr lane) {
    for (Stmt& s : body) {
      for (Expr* e : index_fields(s)) *e = address(exprs(), index_map, *e, lane);
      const auto* loop = std::get_if<For>(&s.node);
      if (Body* inner = inner_body(s)) place(*inner, index_map, loop ? var(loop->var) : lane);
    }
  }

  // Emits the points of a thread: vectors within one row on a path of their own if the schedule
  // splits there.
  void emit() {
    uniform_select = nest().lanes.uniform_select;
    Body all = std::move(kernel.body), body;
    if (nest().lanes.split_at_rows) {
      Expr there = nullptr;
      Body row = in_one_row(there);
      Expr elsewhere = exprs().apply(Op::logical_not, {there});
      body.push_back({If{.condition = there, .body = std::move(row)}});
      body.push_back({If{.condition = elsewhere, .body = point()}});
    } else {
      body = point();
    }
    if (in)
      all.push_back({If{.condition = in, .body = std::move(body)}});
    else
      std::move(body.begin(), body.end(), std::back_inserter(all));
    kernel.body = std::move(all);
  }
};

// The point of a thread: one vector of each access.
constexpr Step<Builder> point_steps[] = {
    {"loads", &Builder::loads, "the index map and the mask of the thread",
     "declares an array per access, and loads vectors, windows of strided accesses, or lane by "
     "lane",
     "the elements of all reads without loaded coordinates are in registers"},
    {"arithmetic", &Builder::compute_values, "the elements of the reads are in registers",
     "computes uniform values, then those of each lane in a loop over lanes",
     "outputs are in registers"},
    {"stores", &Builder::stores, "outputs are in registers",
     "stores vectors, or lane by lane where they are not known to be complete",
     "no output is pending"},
};

Body Builder::point() {
  kernel.body.clear();
  run_steps(*this, point_steps);
  return std::exchange(kernel.body, {});
}

constexpr Step<Builder> kernel_steps[] = {
    {"index map", &Builder::make_index_map, "a legal schedule of GridThread loops",
     "numbers the threads of the grid over all dims",
     "the point of a thread, its mask, and the grid"},
    {"points", &Builder::emit, "the point of a thread",
     "runs point_steps, once more for vectors within one row if the schedule splits there",
     "all outputs are stored"},
};

}  // namespace

KernelIR build_pointwise(const Problem& problem, const Schedule& schedule, bool index64) {
  FUSER_ASSERT(schedule.nests.size() == 1, "build_pointwise() expects one nest, got ",
               schedule.nests.size());
  Builder b{{problem, schedule, declare_kernel(problem, schedule, index64)}};
  run_steps(b, kernel_steps);
  return std::move(b.kernel);
}

}  // namespace fuser::lower
