// Vectorized, strided and unaligned access: the conditions of each access, asked of
// size hints.
#pragma once

#include <optional>
#include <vector>

#include "schedulers/scheduler.h"

namespace fuser {

// Returns the number of elements in the longest vector of the access: 16 bytes.
int longest_vector(const MemoryAccess& access);

// Returns whether there is a select, and every select predicate is uniform across a vector along
// `inner`.
bool uniform_select(const Problem& problem, const std::vector<AxisId>& inner, SizeHints& hints,
                    int vector);

// Returns whether a read has a mask (from a pad or a cat).
bool is_conditional(const Problem& problem);
// Returns whether the access can be vectorized along `inner`.
bool can_vector(const Problem& problem, const MemoryAccess& access,
                const std::vector<AxisId>& inner, SizeHints& hints, int vector);

// Returns the accesses over some of `axes` that can use vectors along `inner`. Empty if `vector` is
// 1.
AccessSet vectorized_accesses(const Problem& problem, AxisSet axes,
                              const std::vector<AxisId>& inner, SizeHints& hints, int vector);

// Returns the number of innermost `axes` that a vector stays within (Lanes::axes): 1 if the
// vector length divides the last extent, else the number of `inner` axes, or 0 for all axes.
int lane_axes_of(const Problem& problem, const std::vector<AxisId>& axes,
                 const std::vector<AxisId>& inner, SizeHints& hints, int vector);

// Returns the lane selection of a strided access: its lanes are not adjacent in memory but lie in
// one aligned window. It covers a constant step (a slice with a step), a repeated element (a stack
// along the innermost axis), or both. Appends to `multiples` the expressions that must be multiples
// of the window width, in `exprs` or in the arena of the problem. nullopt if the access is
// contiguous or has a mask.
std::optional<LaneWindow> lane_window_of(const Problem& problem, Exprs& exprs,
                                         const MemoryAccess& access,
                                         const std::vector<AxisId>& inner, int vector,
                                         std::vector<Expr>& multiples);
std::optional<LaneWindow> lane_window_of(Problem& problem, const MemoryAccess& access,
                                         const std::vector<AxisId>& inner, int vector,
                                         std::vector<Expr>& multiples);

// Returns the reads that are strided accesses.
AccessSet strided_accesses(const Problem& problem, const std::vector<AxisId>& inner,
                           SizeHints& hints, int vector);

}  // namespace fuser
