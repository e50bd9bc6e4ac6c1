// The builder of kernels whose threads walk a tile in several stages, or several rows of it: the
// walk of a stage (stage_walks.cpp), what crosses to the next one in shared memory
// (stage_crossings.cpp), and what a stage reads, computes and stores (stages.cpp).
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "lower/passes.h"
#include "lower/values.h"
#include "schedule/device.h"

namespace fuser::stage {

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
  int cut = 0;        // > 0: it stores the elements of vectors of so many lanes that are cut
};

// A value that crosses to a later stage: its elements of the tile in shared memory, in rows along
// the lanes of that stage.
struct Crossing {
  ValueId value = 0;
  size_t from = 0;  // stage
  DimId along = 0;  // the dim of a row, across: the lanes of the stage it comes from
  DimId across = 0;
  int run = 1;    // elements of one access of the later stage
  int held = 1;   // of a run, by a lane of `across`: all of it, or one where runs are aligned
  int turn = 1;   // runs by which a row is rotated against the one before
  int pitch = 0;  // elements from one row to the next
  int buffer = 0;
  int turned = -1;  // array of a thread's elements, run by run
  int array = -1;   // the same as a later stage reads them: the last that did
};

using Known = std::vector<Expr>;  // by value: its expression where it is in scope, else nullptr

// What exists of an access or an element.
struct Guard {
  Expr in = nullptr, count = nullptr;
};

// Of an access, by lane.
using Offset = std::function<Expr(Expr lane)>;

// Where a value is computed: before the loops, in those over the steps, in that over the lanes.
enum Depth { Outside, Step, Lane };

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

  Expr index_let(Body& body, Expr value);
  int new_array(std::string name, DType dtype, int extent);

  // ---- The walk of a stage

  void measure_dims();
  // Which tile a block has: Grid loops are the same in all stages, the last one the fastest.
  void place_block();
  Walk make_walk(const Stage& stage);
  // The axes of each dim where a thread stands; `start`: where it began.
  void index_axes(Walk& w, const std::vector<Expr>& start);
  // How far the steps have led along a dim.
  Expr stepped(const Walk& w, DimId dim);
  // Does each row of the tile have its first lane where a line of memory starts (Dim::line)?
  bool is_aligned(const Walk& w, DimId dim) const;
  // Elements from a multiple of `unit` of them in memory, a power of two up to a line, to the start
  // of a row of the tile, by lane; nullptr where rows are not aligned.
  Offset start_behind(const Walk& w, DimId dim, int64_t unit, Body& body);
  // Where in a row of the tile its thread's first lane stands, `start` elements behind a line.
  Expr place(const Walk& w, DimId dim, Expr start);
  // Elements of a row of the tile.
  Expr end_of_row(const Walk& w, DimId dim);
  // Of the walk over the ends of rows: is it at the start of one, and how far from its end.
  std::pair<Expr, Expr> from_end(const Walk& w);
  // Does the element exist, and did a vector leave it? `start`: elements behind a whole one.
  Expr is_cut(const Walk& w, Expr start);
  // Of something that varies over `axes`; lane: of one lane of it, nullptr: of a vector.
  Guard guard(const Walk& w, AxisSet axes, Expr lane);
  // A thread's elements of what varies over `axes`: those of all its steps, each with its lanes.
  int elements(const Walk& w, AxisSet axes) const;
  Expr element(const Walk& w, AxisSet axes, Expr lane);
  // make(body) in the loops over the steps along which `axes` vary, but for the loop `without`.
  void nest(const Walk& w, AxisSet axes, Body& out, const std::function<void(Body&)>& make,
            const Loop* without = nullptr);
  void for_lanes(const Walk& w, Body& out, const std::function<void(Body&, Expr lane)>& make);

  // ---- Memory

  // `second`: what takes its place where `here` does not hold.
  Offset offset(const Walk& w, Expr whole, Body& body, Expr second = nullptr, Expr here = nullptr);
  bool is_wide(const Walk& w, int access) const;
  bool is_shifted(const Walk& w, int access) const;  // its vectors lie at any element
  bool in_lanes(const Walk& w, const MemoryAccess& a) const;
  std::string name_of(const char* prefix, int access, size_t stage);
  // The reads that one load serves: which of them it is must be known before the loops.
  const Either* together(const Walk& w, int access);
  // Reads that the stage needs; what an earlier one with the same lanes has read is still there.
  void loads(size_t s, Body& body);
  void stores(size_t s, Body& body);
  // Of rows whose lanes go round the tile.
  void store_round(size_t s, int access, Body& body);
  std::vector<int> stored_by(size_t s) const;

  // ---- Shared memory

  void declare_crossings();
  // The unrolled loop of the stage over a row of the crossing: the other half of what it turns.
  const Loop* turned_loop(const Walk& w, const Crossing& c) const;
  // Where a thread's run lies in the tile, by lane.
  Offset tile_offset(const Walk& w, const Crossing& c, Body& body);
  // The place of an element among a thread's runs; `within`: in its run.
  Expr turned(const Walk& w, const Crossing& c, Expr lane, Expr within);
  // Is there anything to wait for?
  bool write_tiles(size_t s, Body& body);
  void read_tiles(size_t s, Body& body);
  // Does the stage have the value from there?
  bool takes(size_t s, const Crossing& c) const;

  // ---- Values

  // Inside the loop over the lanes, `outside` is what stands before it.
  Expr compute(size_t s, ValueId v, const Known& known, Body& body, Expr lane, Body* outside);
  Depth depth(const Walk& w, AxisSet axes) const;
  void compute_stage(size_t s, Body& body);
  // What leaves the stage, into the arrays that it is stored from.
  void assign(size_t s, Body& body, const Known& known, Expr lane);

  void build();
};

}  // namespace fuser::stage
