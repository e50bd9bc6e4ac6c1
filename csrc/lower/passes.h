// Lowering: a Schedule becomes Kernel IR by a fixed list of passes (lower.cpp). Each pass states
// what holds before it, what it does, and what holds after it; verify() runs between any two.
#pragma once

#include "fusion/facts.h"
#include "ir/kernel.h"
#include "schedule/schedule.h"

namespace fuser {

// before: a Problem and its Schedule.
// does:   opens the register loops, places every value at the depth of the axes it varies over, all
// loads before any
//         arithmetic and all stores after it.
// after:  statements whose offsets speak of axes (Symbol::Axis) and of sizes and strides; `axes`
// says how the dims are
//         walked.
KernelIR loops(const Problem& problem, const Schedule& schedule, bool index64);

// The same for kernels with reductions.
// does:   walks rows of R once for each reduction that waits for another one, keeps what the
// schedule says on chip in between, combines partial results over threads, blocks of a cluster and
// the grid, and stores in the last walk.
KernelIR tiles(const Problem& problem, const Schedule& schedule, bool index64);

// The same for kernels of several stages, which walk the tile of a block in different ways.
// does:   computes in each stage what the schedule says, hands over through shared memory what a
// later one needs, a barrier between. The loads of a stage stand before the barrier.
// after:  no axes: each stage resolves its addresses in its own walk.
KernelIR stages(const Problem& problem, const Schedule& schedule, bool index64);

// before: offsets over axes.
// does:   replaces each axis by what it is in the walk; an offset that is linear in the whole index
// of a dim uses that
//         index, every other one divides it up; one whose lanes run along contiguous rows divides
//         once for all lanes.
// after:  no Symbol::Axis, no `axes`.
void addresses(KernelIR& kernel);
// The same for one expression and a walk of its own; `lane`: of the vector, or nullptr.
Expr address(Exprs& exprs, const std::vector<LinearAxes>& walk, Expr offset, Expr lane);
// Is the linear form linear in the run's index as a whole?
bool walks_whole(Exprs& exprs, const Linear& form, const LinearAxes& walked);
// An offset that is linear in the whole index of every run, as a linear form of the axes.
std::optional<Linear> linear_in_dims(Exprs& exprs, const std::vector<LinearAxes>& walk,
                                     Expr offset);

// before: expressions over sizes, strides and scalar inputs.
// does:   makes each largest subexpression that is the same for all threads a kernel parameter;
// what is divided by
//         becomes a divisor (multiplication by its reciprocal).
// after:  leaves are constants, parameters, variables, array elements, thread and block.
void parameters(KernelIR& kernel);

// before: integer subexpressions may be repeated between statements, and stand inside loops that
// they do not vary with; so may arithmetic on values, where it reads parameters alone.
// does:   computes each repeated one once, in a Let at the outermost place where its variables are
// known, and cuts arithmetic on parameters that nests deep.
// after:  the same statements, shorter.
void share(KernelIR& kernel);

// before: variables numbered as the passes made them.
// does:   drops parameters, arrays and Lets that nothing uses and renumbers the rest in order of
// appearance, because
//         the text is the cache key.
// after:  final form.
void renumber(KernelIR& kernel);

// All of them, with verify and dump around each.
KernelIR lower(const Problem& problem, const Schedule& schedule, bool index64,
               const std::string& name);

}  // namespace fuser
