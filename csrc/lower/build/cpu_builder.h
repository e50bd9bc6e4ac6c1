// Builder of CPU kernels (cpu.cpp).
#pragma once

#include <array>
#include <functional>

#include "fusion/kernel/reduction_phases.h"
#include "lower/build/values.h"
#include "lower/passes.h"

namespace fuser::cpu {

// Dims of the schedule of a CPU kernel: kept axes around the lanes, reduced axes around the lanes,
// and the axes of the lanes, which are reduced or kept.
inline constexpr int O = 0, S = 1, L = 2, dims = 3;
inline constexpr int most_in_sequence = 64;  // elements that one partial sum takes in (Numerics)

// Range of a dim that one task computes.
struct Share {
  Expr extent = nullptr;  // elements of the dim
  Expr each = nullptr;    // elements per task, at most; nullptr: all
  Expr tasks = nullptr;   // number of tasks along the dim
  Expr task = nullptr;    // index of this task
  Expr first = nullptr, size = nullptr;
};

using Known = std::vector<Expr>;  // by value: its expression, or nullptr
using Make = std::function<void(Body&, Expr index)>;

struct Builder {
  const Problem& problem;
  const Schedule& schedule;
  KernelIR kernel = {};
  int lanes = 1;
  bool lanes_reduced = false;
  int block_rows = 0;  // rows of a block of reduce_columns(); 0: points are reduced one by one
  std::array<AxisSet, dims> axes = {};
  std::array<Share, dims> shares = {};
  std::vector<LinearAxes> index_map = {};
  Expr lane_base = nullptr;  // index of lane 0 along L
  Expr rest = nullptr;       // lanes that exist in the last vector; nullptr: every lane exists
  ReductionPhases phases = {};
  std::vector<int> access_of = {}, product_of = {};  // by value, or -1
  std::vector<int> array_of_access = {};
  // By value: arrays of the partial results of a reduction, innermost loop first. A float sum adds
  // up to `most_in_sequence` elements in one and then merges it into the next.
  std::vector<std::vector<int>> states = {};

  Exprs& exprs() { return kernel.exprs; }
  Expr constant(int64_t v) { return exprs().constant(v); }
  Expr var(int v, DType dtype = DType::Int64) { return exprs().symbol(Symbol::Var, v, 0, dtype); }
  Expr lane() { return exprs().symbol(Symbol::Thread, 0); }
  Expr place(Expr e) { return e ? address(exprs(), index_map, e, nullptr) : nullptr; }
  const std::vector<Value>& values() const { return problem.refined.values; }
  bool is_per_element(AxisSet of) const { return (of & problem.reduced) != 0; }
  AxisSet kept() const { return axes[O] | (lanes_reduced ? 0 : axes[L]); }
  // The reduced dim that several tasks share, or nullptr.
  Share* split() {
    Share& s = shares[lanes_reduced && !axes[S] ? L : S];
    return s.each ? &s : nullptr;
  }

  // ---- cpu.cpp
  void take_schedule();
  Expr indices_of_task(const Loop& loop, int64_t most_tasks);
  void place_task();
  void analyse();
  int new_array(std::string name, DType dtype, std::optional<State> state = {});
  int new_scratch(std::string name, Buffer::Kind kind, DType dtype, Expr elements,
                  std::optional<State> state = {});
  Expr index_let(Body& body, Expr value);
  Expr ceil_div(Expr a, Expr b);
  // Appends a loop over `count` iterations with the body that make(body, index) emits.
  void loop(Body& out, Expr count, const Make& make);
  void emit(Body& body, ValueId v, Known& known);
  // Emits the values over kept axes that wait for `phase` reductions and are computed `here`.
  void emit_kept(Body& body, int phase, Known& known, const std::function<bool(AxisSet)>& here);
  void store(Body& body, int access, const Known& known);
  void kept_stores(Body& body, const Known& known);
  // Appends the vectors of this task: iterate() makes the loop over complete ones, `point` the
  // body of one. `last` is the body of the incomplete one.
  void vectors(Body& body, const std::function<void(Body&, Expr count, const Make&)>& iterate,
               const std::function<void(Body&)>& point, const std::function<void(Body&)>& last);
  void each_row(Body& body, const Known& known);
  void point(Body& body, Known known);
  void build();

  // ---- cpu_reduction.cpp
  std::vector<ValueId> reductions_of(int phase) const;
  std::vector<int> stores_of(int phase) const;
  std::vector<ValueId> needed(const std::vector<ValueId>& reduced, const std::vector<int>& stores,
                              const Known& known) const;
  void find_products();
  void make_states();
  bool rounds(ValueId reduction) const;
  void accumulate(Body& body, ValueId v, const Known& known, int level);
  // Appends a loop that merges partial sums of `level` into the next level.
  void blocked(Body& body, Expr count, const std::vector<ValueId>& reduced, int level,
               const Make& make);
  // Appends the loops of one phase: its reductions and its stores over reduced axes.
  void phase_loops(Body& body, int phase, const Known& known);
  // Appends the reductions and all values and stores that wait for them.
  void reduce(Body& body, Known& known);
  void take_results(Body& body, const std::vector<ValueId>& reduced, const std::vector<int>& arrays,
                    Known& known);
  // ---- cpu_columns.cpp
  int scratch(std::string name, Buffer::Kind kind, DType dtype, Expr elements,
              std::optional<State> state);
  // Returns whether this is the last of the tasks of a group, and appends what finds it out.
  Expr is_last_task(Body& body, Expr groups, Expr group, Expr tasks);
  void reduce_columns(Body& body, const Known& known);
  // Appends the merge of the partial results of all tasks of a row, by the last of them.
  void merge_tasks(Body& body, const std::vector<ValueId>& reduced, const std::vector<int>& results,
                   Known& known);
};

}  // namespace fuser::cpu
