// Builder of CPU kernels (cpu.cpp).
#pragma once

#include <array>
#include <functional>

#include "fusion/kernel/reduction_phases.h"
#include "lower/build/builder_state.h"
#include "lower/passes.h"
#include "schedule/cpu_schedule.h"

namespace fuser::lower::cpu {

using schedule::cpu::dims;
using schedule::cpu::L;
using schedule::cpu::most_in_sequence;
using schedule::cpu::O;
using schedule::cpu::S;

// Range of a dim that one task computes.
struct Share {
  ir::Expr extent = nullptr;  // elements of the dim
  ir::Expr each = nullptr;    // elements per task, at most; nullptr: all
  ir::Expr tasks = nullptr;   // number of tasks along the dim
  ir::Expr task = nullptr;    // index of this task
  ir::Expr first = nullptr, size = nullptr;
};

using Known = std::vector<ir::Expr>;  // by value: its expression, or nullptr
using Make = std::function<void(ir::Body&, ir::Expr index)>;

// A phase of a row or of a point: its reduction loop, and the values and stores that wait for it.
struct Phase {
  int index = 0;
  ir::Body& body;
  Known& known;
  std::vector<fusion::ValueId> reduced = {};
  std::vector<int> results = {};  // by reduction: the array of its partial result
};

struct Builder {
  const fusion::Problem& problem;
  const schedule::Schedule& schedule;
  ir::KernelIR kernel = {};
  int lanes = 1;
  bool lanes_reduced = false;
  int block_rows = 0;  // rows of a block of reduce_columns(); 0: points are reduced one by one
  std::array<fusion::AxisSet, dims> axes = {};
  std::array<Share, dims> shares = {};
  std::vector<ir::LinearAxes> index_map = {};
  ir::Expr lane_base = nullptr;   // index of lane 0 along L
  ir::Expr rest = nullptr;        // lanes that exist in the last vector; nullptr: every lane exists
  ir::Expr tile_index = nullptr;  // index along S within the tile, while its points are computed
  fusion::ReductionPhases phases = {};
  std::vector<int> access_of = {}, product_of = {};  // by value, or -1
  std::vector<int> array_of_access = {};
  // By value, in a kernel of rows and columns (cpu_rows_columns.cpp): the workspace of the columns'
  // partial results, or -1; True if the value waits for columns.
  std::vector<int> column_buffers = {};
  std::vector<bool> waits_for_columns = {};
  ir::Expr padded = nullptr;  // elements along L, rounded up to complete vectors
  // By value: arrays of the partial results of a reduction, innermost loop first. A float sum adds
  // up to `most_in_sequence` elements in one and then merges it into the next.
  std::vector<std::vector<int>> states = {};
  Known outside = {};  // values that vary over no kept axis

  ir::Exprs& exprs() { return kernel.exprs; }
  ir::Expr constant(int64_t v) { return exprs().constant(v); }
  ir::Expr var(int v, ir::DType dtype = ir::DType::Int64) {
    return exprs().symbol(ir::Symbol::Var, v, 0, dtype);
  }
  ir::Expr lane() { return exprs().symbol(ir::Symbol::Thread, 0); }
  ir::Expr place(ir::Expr e) { return e ? address(exprs(), index_map, e, nullptr) : nullptr; }
  const std::vector<fusion::Value>& values() const { return problem.refined.values; }
  bool is_per_element(fusion::AxisSet of) const { return (of & problem.reduced) != 0; }
  fusion::AxisSet kept() const { return (axes[O] | axes[S] | axes[L]) & ~problem.reduced; }
  // Returns whether lanes of an access run along S, not along L (cpu_tiles.cpp).
  bool is_tiled(int access) const { return schedule::staging_of_access(schedule, access); }
  // The reduced dim that several tasks share, or nullptr.
  Share* split() {
    Share& s = shares[lanes_reduced && !axes[S] ? L : S];
    return s.each ? &s : nullptr;
  }

  // ---- cpu.cpp
  void declare_memory();
  void take_schedule();
  ir::Expr indices_of_task(const schedule::Loop& loop, int64_t most_tasks);
  void place_task();
  void analyse();
  int new_array(std::string name, ir::DType dtype, std::optional<ir::State> state = {},
                int extent = 1);
  int new_scratch(std::string name, ir::Buffer::Kind kind, ir::DType dtype, ir::Expr elements,
                  std::optional<ir::State> state = {});
  ir::Expr index_let(ir::Body& body, ir::Expr value);
  ir::Expr ceil_div(ir::Expr a, ir::Expr b);
  // Appends a loop over `count` iterations with the body that make(body, index) emits.
  void loop(ir::Body& out, ir::Expr count, const Make& make);
  void emit(ir::Body& body, fusion::ValueId v, Known& known);
  // Emits the values over kept axes that wait for `phase` reductions and are computed `here`.
  void emit_kept(ir::Body& body, int phase, Known& known,
                 const std::function<bool(fusion::AxisSet)>& here);
  void store(ir::Body& body, int access, const Known& known);
  void kept_stores(ir::Body& body, const Known& known);
  // Appends the vectors of this task: iterate() makes the loop over complete ones, `point` the
  // body of one. `last` is the body of the incomplete one.
  void vectors(ir::Body& body,
               const std::function<void(ir::Body&, ir::Expr count, const Make&)>& iterate,
               const std::function<void(ir::Body&)>& point,
               const std::function<void(ir::Body&)>& last);
  void each_row(ir::Body& body, const Known& known);
  void rows_of_vectors(ir::Body& body, const Known& known);
  void point(ir::Body& body, Known known);
  void emit_outside();
  void emit_rows();

  // ---- cpu_tiles.cpp
  void tile_rows(ir::Body& body, const Known& known);
  void tile(ir::Body& body, Known known, ir::Expr first);
  void move_tile(ir::Body& body, const std::vector<int>& tiled, const Known& known, ir::Expr first,
                 ir::Expr columns);

  // ---- cpu_reduction.cpp
  std::vector<fusion::ValueId> reductions_of(int phase) const;
  std::vector<int> stores_of(int phase) const;
  std::vector<fusion::ValueId> needed(const std::vector<fusion::ValueId>& reduced,
                                      const std::vector<int>& stores, const Known& known) const;
  void find_products();
  void make_states();
  bool rounds(fusion::ValueId reduction) const;
  void accumulate(ir::Body& body, fusion::ValueId v, const Known& known, int level);
  // Appends a loop that merges partial sums of `level` into the next level.
  void blocked(ir::Body& body, ir::Expr count, const std::vector<fusion::ValueId>& reduced,
               int level, const Make& make);
  void init_phase(Phase& phase);
  void phase_loops(Phase& phase);
  void combine_lanes(Phase& phase);
  void combine_tasks(Phase& phase);
  void after_phase(Phase& phase);
  // Appends the reductions and all values and stores that wait for them.
  void reduce(ir::Body& body, Known& known);
  void take_results(ir::Body& body, const std::vector<fusion::ValueId>& reduced,
                    const std::vector<int>& arrays, Known& known);
  // ---- cpu_rows_columns.cpp
  bool reduces_columns(fusion::ValueId v) const;
  // Returns the reductions over columns that accumulate in the loop of this phase.
  std::vector<fusion::ValueId> columns_of(int phase) const;
  // Returns whether an access stores a value that waits for columns.
  bool stores_columns(int access) const;
  void declare_columns();
  ir::Expr column_of(ir::Expr task);
  void each_column(ir::Body& body, const std::function<void(ir::Body&)>& one);
  void move_column(ir::Body& body, fusion::ValueId v, int array, bool store, ir::Expr task);
  void init_columns();
  void accumulate_columns(ir::Body& body, const std::vector<fusion::ValueId>& columns,
                          const Known& known);
  void finish_columns();

  // ---- cpu_columns.cpp
  int scratch(std::string name, ir::Buffer::Kind kind, ir::DType dtype, ir::Expr elements,
              std::optional<ir::State> state);
  // Returns whether this is the last of the tasks of a group, and appends what finds it out.
  ir::Expr is_last_task(ir::Body& body, ir::Expr groups, ir::Expr group, ir::Expr tasks);
  void reduce_columns(ir::Body& body, const Known& known);
  // Appends the merge of the partial results of all tasks of a row, by the last of them.
  void merge_tasks(ir::Body& body, const std::vector<fusion::ValueId>& reduced,
                   const std::vector<int>& results, Known& known);
};

}  // namespace fuser::lower::cpu
