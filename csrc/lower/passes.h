// Lowering: a fixed list of compiler passes (lower.cpp) turns a Schedule into Kernel IR. Each pass
// states its precondition (before), its effect (does), its postcondition (after) and, if it is not
// obvious, the reason for its position. verify() runs after every pass.
#pragma once

#include "fusion/kernel/problem.h"
#include "ir/kernel.h"
#include "schedule/schedule.h"

namespace fuser::lower {

// before: a Problem and its Schedule of one stage without reductions and without a thread tile.
// does:   opens the register loops and computes every value at the depth of the axes that it varies
//         over. All loads come before any arithmetic, and all stores after it.
// after:  offsets are expressions over axes (Symbol::Axis), sizes and strides. KernelIR::axes holds
//         the index map: the linear index of each dim for the running thread.
ir::KernelIR build_pointwise(const fusion::Problem& problem, const schedule::Schedule& schedule,
                             bool index64);

// before: a Problem with reductions, or one whose rows form a tile of threads, and its Schedule.
// does:   emits one reduction loop per phase. Between the loops it keeps the values that the
//         schedule makes persistent, and combines partial results over threads, cluster and grid.
//         Each output is stored in the phase that phase analysis assigns to it.
// after:  as after build_pointwise().
ir::KernelIR build_reduction(const fusion::Problem& problem, const schedule::Schedule& schedule,
                             bool index64);

// before: a Problem and its Schedule of several stages, which map the threads of a block to its
//         tile differently.
// does:   emits the values that the schedule assigns to each stage. A staged value passes to the
//         next stage through shared memory, with a barrier in between; a stage's loads precede the
//         barrier.
// after:  no Symbol::Axis: each stage resolves its addresses with its own index map.
ir::KernelIR build_staged(const fusion::Problem& problem, const schedule::Schedule& schedule,
                          bool index64);

// before: a Problem and its Schedule of three dims: kept axes around the lanes, reduced axes around
//         the lanes, and the axes of the lanes.
// does:   emits the loops of a task for one lane. Threads of the block are the lanes.
// after:  no Symbol::Axis: each loop resolves its addresses with its own index map.
ir::KernelIR build_cpu(const fusion::Problem& problem, const schedule::Schedule& schedule,
                       bool index64);

// before: offsets over axes.
// does:   replaces each axis by its value in the index map. An offset that is linear in the linear
//         index of a dim uses that index; every other offset divides it into axes. If the lanes of
//         an access run along contiguous rows, then one division serves all lanes.
// after:  no Symbol::Axis, and KernelIR::axes is empty.
void addresses(ir::KernelIR& kernel);
// Resolves the axes of one expression with the given index map. `lane` is the lane of the vector,
// or nullptr for lane 0.
ir::Expr address(ir::Exprs& exprs, const std::vector<ir::LinearAxes>& index_map, ir::Expr offset,
                 ir::Expr lane);
// Returns whether the linear form is linear in the linear index of these axes, so that no division
// is needed.
bool is_linear_in_index(ir::Exprs& exprs, const fusion::Linear& form, const ir::LinearAxes& axes);
// Returns the offset as a linear form of the axes if it is linear in the linear index of every dim,
// else nullopt.
std::optional<fusion::Linear> linear_in_dims(ir::Exprs& exprs,
                                             const std::vector<ir::LinearAxes>& index_map,
                                             ir::Expr offset);

// before: expressions over sizes, strides and scalar inputs.
// does:   makes a kernel parameter of each maximal subexpression that is uniform across threads. A
//         divisor becomes a Divisor parameter (multiplication by its reciprocal).
// after:  leaves are constants, parameters, variables, array elements, thread and block.
void parameters(ir::KernelIR& kernel);

// before: integer subexpressions may repeat between statements, and may be inside loops that
//         they are invariant to. Arithmetic on values that reads only parameters may repeat as
//         well.
// does:   common subexpression elimination with hoisting: computes each repeated subexpression
//         once, in a Let at the outermost position where its variables are defined. Splits
//         arithmetic on parameters that nests deeply.
// after:  the same statements with shorter expressions.
void cse(ir::KernelIR& kernel);

// before: variables carry the numbers that earlier passes gave them.
// does:   drops parameters and Lets without a use, and numbers the rest in order of appearance. The
//         kernel text is the cache key, so equal kernels must have equal texts.
// after:  final form.
void canonicalize(ir::KernelIR& kernel);

// Runs the builder and all passes, with verify() and dumps after each.
ir::KernelIR lower(const fusion::Problem& problem, const schedule::Schedule& schedule, bool index64,
                   const std::string& name);
// Does the same for a CPU kernel: a block is a task, and KernelIR::blocks follows from sizes alone.
// Tasks run in any order on any thread. There are no barriers, no shared memory and no threads.
ir::KernelIR lower_cpu(const fusion::Problem& problem, const schedule::Schedule& schedule,
                       bool index64, const std::string& name);

}  // namespace fuser::lower
