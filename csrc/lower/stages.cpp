#include <algorithm>

#include "base/error.h"
#include "lower/passes.h"
#include "lower/values.h"

namespace fuser {
namespace {

// Shared memory has 32 banks of one word: so many bytes of a warp's access are served at once.
constexpr int bank_bytes = 4;
constexpr int warp = 32;

// How the threads of a block walk its tile in one stage.
struct Walk {
  std::vector<LinearAxes> axes;   // by dim
  std::vector<LinearAxes> start;  // the same in the first step
  std::vector<Loop> steps;        // Unroll loops, outer to inner
  std::vector<Expr> step;         // their variables
  std::vector<int64_t> stride;    // how far a step leads along its dim
  std::vector<Expr> in_tile;      // by dim: where lane 0 stands
  std::vector<Expr> run;          // the same, counted in runs of the dim's innermost loop
  DimId lane_dim = 0;
  int lanes = 1;
  int lane_var = -1;
  int threads_x = 1;  // neighbouring threads have neighbouring vectors
};

// A value that crosses to a later stage: its elements of the tile in shared memory, in rows along
// the lanes of that stage.
struct Crossing {
  ValueId value = 0;
  size_t from = 0;  // stage
  DimId along = 0;  // the dim of a row, across: the lanes of the stage it comes from
  DimId across = 0;
  int run = 1;    // elements of one access: what a lane of `across` holds of a row
  int turn = 1;   // runs by which a row is rotated against the one before
  int pitch = 0;  // elements from one row to the next
  int buffer = 0;
  int turned = -1;  // array of a thread's elements, run by run
  int array = -1;   // the same as the later stage reads them
};

using Known = std::vector<Expr>;  // by value: its expression where it is in scope, else nullptr

struct Builder {
  const Problem& problem;
  const Schedule& schedule;
  KernelIR kernel{};

  // By dim.
  std::vector<AxisSet> axes_of_dim{};
  std::vector<Expr> extents{}, block_at{};
  std::vector<int64_t> tile{};

  std::vector<Walk> walks{};  // by stage
  std::vector<Crossing> crossings{};
  std::vector<int> access_of{};              // by value: its memory access, or -1
  std::vector<std::vector<int>> array_of{};  // by stage and access
  std::vector<Either> either{};              // of the reads

  Exprs& exprs() { return kernel.exprs; }
  Expr constant(int64_t v) { return exprs().constant(v); }
  Expr var(int v) { return exprs().symbol(Symbol::Var, v); }
  int new_var() { return kernel.vars++; }
  const std::vector<Value>& values() const { return problem.refined.values; }
  bool over(AxisSet axes, DimId dim) const { return (axes & axes_of_dim[dim]) != 0; }
  bool in_lanes(const Walk& w, AxisSet axes) const { return w.lanes > 1 && over(axes, w.lane_dim); }
  bool in_steps(const Walk& w, AxisSet axes) const {
    return std::any_of(w.steps.begin(), w.steps.end(),
                       [&](const Loop& l) { return over(axes, l.dim); });
  }

  Expr index_let(Body& body, Expr value) {
    const int v = new_var();
    body.push_back({Let{.var = v, .value = value, .index = true}});
    return exprs().symbol(Symbol::Var, v, 0, value->dtype);
  }

  int new_array(std::string name, DType dtype, int extent) {
    kernel.arrays.push_back({.name = std::move(name), .dtype = dtype, .extent = extent});
    return static_cast<int>(kernel.arrays.size()) - 1;
  }

  // ---- The walk

  static bool is_step(const Loop& l) { return l.bind != Bind::Grid; }

  void measure_dims() {
    for (const Dim& d : schedule.dims) {
      AxisSet axes = 0;
      Expr extent = constant(1);
      for (AxisId a : d.axes) {
        axes |= AxisSet{1} << a;
        extent = exprs().mul(extent, import(kernel, problem.refined.axes[a].extent));
      }
      axes_of_dim.push_back(axes);
      extents.push_back(extent);
    }
    tile.assign(schedule.dims.size(), 1);
    for (const Loop& l : schedule.stages[0].loops)
      if (is_step(l)) tile[l.dim] *= l.extent;
  }

  // Which tile a block has: Grid loops are the same in all stages, the last one the fastest.
  void place_block() {
    block_at.assign(schedule.dims.size(), constant(0));
    std::vector<DimId> dims;
    for (const Loop& l : schedule.stages[0].loops)
      if (l.bind == Bind::Grid) dims.push_back(l.dim);
    kernel.blocks = constant(1);
    for (DimId d : dims)
      kernel.blocks = exprs().mul(kernel.blocks, exprs().ceil_div(extents[d], tile[d]));
    Expr rest = exprs().symbol(Symbol::Block, 0);
    if (schedule.backward) rest = exprs().sub(exprs().sub(kernel.blocks, constant(1)), rest);
    for (size_t i = dims.size(); i-- > 0;) {
      Expr steps = exprs().ceil_div(extents[dims[i]], tile[dims[i]]);
      block_at[dims[i]] = index_let(kernel.body, i == 0 ? rest : exprs().mod(rest, steps));
      rest = exprs().div(rest, steps);
    }
  }

  Walk make_walk(const Stage& stage) {
    Walk w;
    const size_t dims = schedule.dims.size();
    w.in_tile.assign(dims, constant(0));
    w.run.assign(dims, constant(0));
    std::vector<int64_t> inner(dims, 1), run(dims, 0);
    std::vector<Expr> start(dims, constant(0));
    int64_t threads = 1;
    for (size_t i = stage.loops.size(); i-- > 0;) {
      const Loop& l = stage.loops[i];
      if (l.bind == Bind::Grid) continue;
      Expr at = constant(0);
      if (l.bind == Bind::Vector) {
        w.lane_dim = l.dim;
        w.lanes = static_cast<int>(l.extent);
        w.lane_var = new_var();
      } else if (l.bind == Bind::Unroll) {
        if (l.extent > 1) at = var(new_var());
        w.steps.insert(w.steps.begin(), l);
        w.step.insert(w.step.begin(), at);
        w.stride.insert(w.stride.begin(), inner[l.dim]);
      } else {
        FUSER_ASSERT(l.bind == Bind::ThreadX || l.bind == Bind::ThreadY,
                     "stages() knows grid, thread, unrolled and vector loops");
        Expr thread = exprs().div(exprs().symbol(Symbol::Thread, 0), constant(threads));
        threads *= l.extent;
        if (l.bind == Bind::ThreadX) w.threads_x = static_cast<int>(l.extent);
        at = threads == schedule.threads ? thread : exprs().mod(thread, constant(l.extent));
        start[l.dim] = exprs().add(start[l.dim], exprs().mul(at, constant(inner[l.dim])));
      }
      w.in_tile[l.dim] = exprs().add(w.in_tile[l.dim], exprs().mul(at, constant(inner[l.dim])));
      if (run[l.dim])
        w.run[l.dim] =
            exprs().add(w.run[l.dim], exprs().mul(at, constant(inner[l.dim] / run[l.dim])));
      else
        run[l.dim] = l.extent;
      inner[l.dim] *= l.extent;
    }
    FUSER_ASSERT(threads == schedule.threads, "a stage has ", threads, " threads of ",
                 schedule.threads);
    for (size_t d = 0; d < dims; ++d) {
      FUSER_ASSERT(inner[d] == tile[d], "stages have tiles of ", inner[d], " and ", tile[d]);
      LinearAxes& axes = w.axes.emplace_back();
      for (AxisId a : schedule.dims[d].axes) {
        axes.axes.push_back(a);
        axes.extents.push_back(import(kernel, problem.refined.axes[a].extent));
      }
      axes.index = exprs().add(exprs().mul(block_at[d], constant(tile[d])), w.in_tile[d]);
      axes.vector = static_cast<DimId>(d) == w.lane_dim && w.lanes > 1;
      w.start.push_back(axes);
      w.start.back().index = exprs().add(exprs().mul(block_at[d], constant(tile[d])), start[d]);
    }
    return w;
  }

  // How far the steps have led along a dim.
  Expr stepped(const Walk& w, DimId dim) {
    Expr sum = constant(0);
    for (size_t i = 0; i < w.steps.size(); ++i)
      if (w.steps[i].dim == dim)
        sum = exprs().add(sum, exprs().mul(w.step[i], constant(w.stride[i])));
    return sum;
  }

  // What exists of something that varies over `axes`; lane: of one lane of it, nullptr: of a
  // vector.
  struct Guard {
    Expr in = nullptr, count = nullptr;
  };
  Guard guard(const Walk& w, AxisSet axes, Expr lane) {
    Guard g;
    for (DimId d = 0; d < static_cast<int>(tile.size()); ++d) {
      if (tile[d] == 1 || schedule.dims[d].exact || !over(axes, d)) continue;
      if (d == w.lane_dim && w.lanes > 1 && schedule.tail) {
        g.count = exprs().sub(extents[d], w.axes[d].index);
        if (lane) g.count = exprs().sub(g.count, lane);
      } else {
        // One limit for all steps.
        Expr steps = stepped(w, d), at = steps->is_constant() ? w.axes[d].index : steps;
        Expr end = at == steps ? exprs().sub(extents[d], w.start[d].index) : extents[d];
        g.in = both(exprs(), g.in, exprs().apply(Op::lt, {at, end}));
      }
    }
    return g;
  }

  // A thread's elements of what varies over `axes`: those of all its steps, each with its lanes.
  int elements(const Walk& w, AxisSet axes) const {
    int64_t n = in_lanes(w, axes) ? w.lanes : 1;
    for (const Loop& l : w.steps)
      if (over(axes, l.dim)) n *= l.extent;
    return static_cast<int>(n);
  }
  Expr element(const Walk& w, AxisSet axes, Expr lane) {
    Expr at = constant(0);
    for (size_t i = 0; i < w.steps.size(); ++i)
      if (over(axes, w.steps[i].dim))
        at = exprs().add(exprs().mul(at, constant(w.steps[i].extent)), w.step[i]);
    return in_lanes(w, axes) ? exprs().add(exprs().mul(at, constant(w.lanes)), lane) : at;
  }

  // make(body) in the loops over the steps along which `axes` vary, but for the loop `without`.
  void nest(const Walk& w, AxisSet axes, Body& out, const std::function<void(Body&)>& make,
            const Loop* without = nullptr) {
    Body body;
    make(body);
    for (size_t i = w.steps.size(); i-- > 0;) {
      if (!w.step[i]->is_symbol(Symbol::Var) || !over(axes, w.steps[i].dim)) continue;
      if (&w.steps[i] == without) continue;
      Body outer;
      outer.push_back({For{.var = w.step[i]->a,
                           .extent = static_cast<int>(w.steps[i].extent),
                           .body = std::move(body)}});
      body = std::move(outer);
    }
    std::move(body.begin(), body.end(), std::back_inserter(out));
  }

  void for_lanes(const Walk& w, Body& out, const std::function<void(Body&, Expr lane)>& make) {
    if (w.lanes == 1) return make(out, constant(0));
    For loop{.var = w.lane_var, .extent = w.lanes, .body = {}};
    make(loop.body, var(w.lane_var));
    out.push_back({std::move(loop)});
  }

  // ---- Memory

  // Offset of an access: where its first step lies, named before the loops, and from there the same
  // few numbers for all threads. Axes that the access does not walk as one are divided up inside.
  // `other`: an access that is made in its place where `here` does not hold.
  using Offset = std::function<Expr(Expr lane)>;
  Offset offset(const Walk& w, const MemoryAccess& a, Body& body,
                const MemoryAccess* other = nullptr, Expr here = nullptr) {
    Expr whole = offset_of(kernel, a, {});
    const auto form = linear_in_dims(exprs(), w.axes, whole);
    if (!form) return [whole](Expr) { return whole; };
    const auto start = [&](Expr offset) { return address(exprs(), w.start, offset, nullptr); };
    Expr first = start(whole), second = other ? start(offset_of(kernel, *other, {})) : nullptr;
    Expr at = index_let(body, other ? exprs().apply(Op::where, {here, first, second}) : first);
    for (DimId d = 0; d < static_cast<int>(tile.size()); ++d) {
      const std::vector<int>& axes = w.axes[d].axes;
      if (!axes.empty())
        at = exprs().add(at, exprs().mul(form->coefficients[axes.back()], stepped(w, d)));
    }
    Expr along = w.lanes > 1 ? form->coefficients[w.axes[w.lane_dim].axes.back()] : constant(0);
    return [=, this](Expr lane) { return exprs().add(at, exprs().mul(along, lane)); };
  }

  // A width is that of one side. What varies along both is read in either stage: where lanes run
  // across its rows, its elements do not lie side by side.
  bool is_wide(const Walk& w, int access) const {
    if (w.lanes == 1 || schedule.widths[access] != w.lanes) return false;
    const MemoryAccess& a = problem.accesses[access];
    const AxisId innermost = w.axes[w.lane_dim].axes.back();
    return a.strides ? a.strides->coefficients[innermost]->is_constant(1)
                     : (axes_of(problem, a) >> innermost & 1) != 0;
  }

  std::string name_of(const char* prefix, int access, size_t stage) {
    const int buffer = problem.accesses[access].buffer;
    int earlier = 0;
    for (int i = 0; i < access; ++i) earlier += problem.accesses[i].buffer == buffer;
    std::string name = text(prefix, kernel.buffers[buffer].name.substr(1));
    if (earlier) name += text("_", earlier);
    for (size_t s = 0; s < stage; ++s)
      if (array_of[s][access] >= 0) return name + text("_stage", stage);
    return name;
  }

  // The reads that one load serves: which of them it is must be known before the loops.
  const Either* together(const Walk& w, int access) {
    for (const Either& e : either)
      if (e.first == access && is_wide(w, access) == is_wide(w, e.second) && !in_steps(w, e.axes) &&
          (schedule.one_side || !in_lanes(w, e.axes)) &&
          linear_in_dims(exprs(), w.axes, offset_of(kernel, problem.accesses[access], {})))
        return &e;
    return nullptr;
  }

  // Reads that the stage needs; what an earlier one with the same lanes has read is still there.
  void loads(size_t s, Body& body) {
    const Walk& w = walks[s];
    for (ValueId v : schedule.stages[s].computed) {
      const int access = access_of[v];
      if (access < 0) continue;
      for (size_t before = 0; before < s; ++before)
        if (walks[before].lane_dim == w.lane_dim && array_of[before][access] >= 0)
          array_of[s][access] = array_of[before][access];
      if (array_of[s][access] >= 0) continue;
      const MemoryAccess& a = problem.accesses[access];
      const AxisSet axes = axes_of(problem, a);
      const int array = new_array(name_of("r", access, s), a.dtype, elements(w, axes));
      array_of[s][access] = array;
      const MemoryAccess* other = nullptr;
      Expr inside = within(kernel, a.in, {}), here = nullptr;
      if (const Either* e = together(w, access)) {
        other = &problem.accesses[e->second];
        array_of[s][e->second] = array;
        here = index_let(body, address(exprs(), w.start, within(kernel, e->in, {}), nullptr));
        inside = within(kernel, *e, here);
      }
      const Offset at = offset(w, a, body, other, here);
      const auto load = [&](Body& out, Expr lane, int width, Expr in) {
        const Guard g = guard(w, axes, width == 1 ? lane : nullptr);
        out.push_back({Load{.array = array,
                            .element = element(w, axes, lane),
                            .width = width,
                            .buffer = a.buffer,
                            .offset = at(lane),
                            .in = both(exprs(), g.in, in),
                            .count = g.count}});
      };
      nest(w, axes, body, [&](Body& out) {
        if (!in_lanes(w, axes)) return load(out, constant(0), 1, inside);
        if (is_wide(w, access)) return load(out, constant(0), w.lanes, inside);
        const Expr in = inside && schedule.one_side ? index_let(out, inside) : inside;
        for_lanes(w, out, [&](Body& lane_body, Expr lane) { load(lane_body, lane, 1, in); });
      });
    }
  }

  void stores(size_t s, Body& body) {
    const Walk& w = walks[s];
    for (int access : stored_by(s)) {
      const MemoryAccess& a = problem.accesses[access];
      const AxisSet axes = axes_of(problem, a);
      const Offset at = offset(w, a, body);
      const auto write = [&](Body& out, Expr lane, int width) {
        const Guard g = guard(w, axes, width == 1 ? lane : nullptr);
        out.push_back({Write{.array = array_of[s][access],
                             .element = element(w, axes, lane),
                             .width = width,
                             .buffer = a.buffer,
                             .offset = at(lane),
                             .in = g.in,
                             .count = g.count}});
      };
      nest(w, axes, body, [&](Body& out) {
        if (is_wide(w, access) || w.lanes == 1) return write(out, constant(0), w.lanes);
        for_lanes(w, out, [&](Body& lane_body, Expr lane) { write(lane_body, lane, 1); });
      });
    }
  }

  std::vector<int> stored_by(size_t s) const {
    std::vector<int> out;
    const std::vector<int>& mine = schedule.stages[s].stores;
    for (size_t i = 0; i < problem.accesses.size(); ++i)
      if (problem.accesses[i].store &&
          std::find(mine.begin(), mine.end(), problem.accesses[i].index) != mine.end())
        out.push_back(static_cast<int>(i));
    return out;
  }

  // ---- Shared memory

  void declare_crossings() {
    for (const Stored& stored : schedule.stored) {
      FUSER_ASSERT(stored.place == Place::Shared, "values cross stages in shared memory");
      const auto computes = [&](const Stage& s) {
        return std::find(s.computed.begin(), s.computed.end(), stored.value) != s.computed.end();
      };
      Crossing c{.value = stored.value};
      while (!computes(schedule.stages[c.from])) ++c.from;
      FUSER_ASSERT(c.from + 1 < walks.size(), "a value of the last stage crosses to no other");
      c.along = walks[c.from + 1].lane_dim;
      c.across = walks[c.from].lane_dim;
      c.run = walks[c.from + 1].lanes;
      const Value& v = values()[c.value];
      // Threads that write at once stand in different rows, at the same run or at few of them.
      const int bytes = c.run * size_of(v.dtype);
      const int at_once = std::min(warp, warp * bank_bytes / bytes);
      c.turn = std::max({1, bank_bytes / bytes, at_once / walks[c.from].threads_x});
      c.pitch = static_cast<int>(tile[c.along]);
      // Single elements: rows that end one bank further on do the same with constant offsets.
      if (c.run == 1 && walks[c.from].lanes == 1) {
        c.turn = 0;
        c.pitch += std::max(1, bank_bytes / bytes);
      }
      c.turned = new_array(text("t", c.value), v.dtype,
                           elements(walks[c.from], axes_of_dim[c.along] | axes_of_dim[c.across]));
      c.array =
          new_array(text("s", c.value), v.dtype,
                    elements(walks[c.from + 1], axes_of_dim[c.along] | axes_of_dim[c.across]));
      kernel.buffers.push_back({.name = text("tile", c.value),
                                .dtype = v.dtype,
                                .read = true,
                                .written = true,
                                .kind = Buffer::Kind::Shared,
                                .elements = constant(c.pitch * tile[c.across])});
      c.buffer = static_cast<int>(kernel.buffers.size()) - 1;
      crossings.push_back(c);
    }
  }

  // The unrolled loop of the stage over a row of the crossing: the other half of what it turns.
  const Loop* turned_loop(const Walk& w, const Crossing& c) const {
    const Loop* out = nullptr;
    for (const Loop& l : w.steps)
      if (l.dim == c.along) out = &l;
    FUSER_ASSERT(out && out->extent == c.run, "value ", c.value, " is turned by runs of ", c.run);
    return out;
  }

  // Where a thread's run lies in the tile. Runs of a row are rotated by where the row stands:
  // threads that write one column of runs, and threads that read one row of them, are spread over
  // all banks.
  Expr tile_offset(const Walk& w, const Crossing& c, Expr lane) {
    Expr row = exprs().mul(exprs().add(w.in_tile[c.across], lane), constant(c.pitch));
    if (!c.turn) return exprs().add(row, w.run[c.along]);
    Expr turn = exprs().mul(w.run[c.across], constant(c.turn));
    Expr run = exprs().mod(exprs().add(w.run[c.along], turn), constant(tile[c.along] / c.run));
    return exprs().add(row, exprs().mul(run, constant(c.run)));
  }

  // The place of an element among a thread's runs; `within`: in its run.
  Expr turned(const Walk& w, const Crossing& c, Expr lane, Expr within) {
    const Loop* loop = turned_loop(w, c);
    Expr at = constant(0);
    for (size_t i = 0; i < w.steps.size(); ++i)
      if (&w.steps[i] != loop)
        at = exprs().add(exprs().mul(at, constant(w.steps[i].extent)), w.step[i]);
    at = exprs().add(exprs().mul(at, constant(w.lanes)), lane);
    return exprs().add(exprs().mul(at, constant(c.run)), within);
  }

  // Is there anything to wait for?
  bool write_tiles(size_t s, Body& body) {
    const Walk& w = walks[s];
    bool any = false;
    for (const Crossing& c : crossings) {
      if (c.from != s) continue;
      any = true;
      nest(
          w, ~AxisSet{0}, body,
          [&](Body& out) {
            for_lanes(w, out, [&](Body& lane_body, Expr lane) {
              lane_body.push_back({Write{.array = c.turned,
                                         .element = turned(w, c, lane, constant(0)),
                                         .width = c.run,
                                         .buffer = c.buffer,
                                         .offset = tile_offset(w, c, lane)}});
            });
          },
          turned_loop(w, c));
    }
    return any;
  }

  void read_tiles(size_t s, Body& body) {
    const Walk& w = walks[s];
    for (const Crossing& c : crossings) {
      if (c.from + 1 != s) continue;
      nest(w, ~AxisSet{0}, body, [&](Body& out) {
        out.push_back({Load{.array = c.array,
                            .element = element(w, ~AxisSet{0}, constant(0)),
                            .width = w.lanes,
                            .buffer = c.buffer,
                            .offset = tile_offset(w, c, constant(0))}});
      });
    }
  }

  // ---- Values

  // Inside the loop over the lanes, `outside` is what stands before it.
  Expr compute(size_t s, ValueId v, const Known& known, Body& body, Expr lane, Body* outside) {
    const Value& value = values()[v];
    Body* const conditions = schedule.one_side ? outside : nullptr;
    if (Expr made = computed(problem, kernel, body, v, known, std::identity{}, conditions))
      return made;
    if (access_of[v] < 0)
      return exprs().symbol(Symbol::Value, std::get<Input>(value.tensor->definition).index, 0,
                            value.dtype);
    const AxisSet axes = axes_of(problem, problem.accesses[access_of[v]]);
    return exprs().element(array_of[s][access_of[v]], element(walks[s], axes, lane), value.dtype);
  }

  // Where a value is computed: before the loops, in those over the steps, in that over the lanes.
  enum Depth { Outside, Step, Lane };
  Depth depth(const Walk& w, AxisSet axes) const {
    return over(axes, w.lane_dim) ? Lane : in_steps(w, axes) ? Step : Outside;
  }

  void compute_stage(size_t s, Body& body) {
    const Walk& w = walks[s];
    Known known(values().size(), nullptr);
    const auto at_depth = [&](Depth d, Body& out, Expr lane, Body* outside = nullptr) {
      for (ValueId v : schedule.stages[s].computed)
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
        for (const Crossing& c : crossings)
          if (c.from + 1 == s)
            known[c.value] =
                exprs().element(c.array, element(w, ~AxisSet{0}, lane), values()[c.value].dtype);
        at_depth(Lane, lane_body, lane, &out);
        assign(s, lane_body, known, lane);
      });
    });
  }

  // What leaves the stage, into the arrays that it is stored from.
  void assign(size_t s, Body& body, const Known& known, Expr lane) {
    const Walk& w = walks[s];
    for (int access : stored_by(s)) {
      const MemoryAccess& a = problem.accesses[access];
      const Access& stored = problem.refined.stores[a.index].access;
      body.push_back({Assign{.array = array_of[s][access],
                             .element = element(w, axes_of(problem, a), lane),
                             .value = exprs().cast(a.dtype, operand(kernel, stored, known))}});
    }
    for (const Crossing& c : crossings) {
      if (c.from != s) continue;
      const size_t loop = turned_loop(w, c) - w.steps.data();
      body.push_back({Assign{.array = c.turned,
                             .element = turned(w, c, lane, w.step[loop]),
                             .value = known[c.value]}});
    }
  }

  void build() {
    measure_dims();
    place_block();
    for (const Stage& s : schedule.stages) walks.push_back(make_walk(s));
    access_of.assign(values().size(), -1);
    for (size_t i = 0; i < problem.accesses.size(); ++i)
      if (!problem.accesses[i].store) access_of[problem.accesses[i].index] = static_cast<int>(i);
    array_of.assign(walks.size(), std::vector<int>(problem.accesses.size(), -1));
    either = either_reads(problem);
    declare_crossings();
    Body all = std::move(kernel.body);
    bool written = false;
    for (size_t s = 0; s < walks.size(); ++s) {
      Body body;
      loads(s, body);
      if (written) body.push_back({Barrier{}});
      read_tiles(s, body);
      compute_stage(s, body);
      written = write_tiles(s, body);
      stores(s, body);
      // Axes are walked differently in each stage, so each resolves its own addresses.
      kernel.axes = walks[s].axes;
      kernel.body = std::move(body);
      addresses(kernel);
      std::move(kernel.body.begin(), kernel.body.end(), std::back_inserter(all));
    }
    kernel.body = std::move(all);
  }
};

}  // namespace

KernelIR stages(const Problem& problem, const Schedule& schedule, bool index64) {
  Builder b{.problem = problem, .schedule = schedule};
  b.kernel.threads = schedule.threads;
  b.kernel.min_blocks = schedule.min_blocks;
  b.kernel.index64 = index64;
  declare_buffers(problem, b.kernel);
  b.build();
  return std::move(b.kernel);
}

}  // namespace fuser
