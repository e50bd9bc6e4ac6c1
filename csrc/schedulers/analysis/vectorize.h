// Vectorized, strided and unaligned access: the conditions of each access, asked of
// size hints.
#pragma once

#include <optional>
#include <vector>

#include "schedulers/scheduler.h"

namespace fuser::schedulers {

// Returns the number of elements in the longest vector of the access: 16 bytes.
int longest_vector(const fusion::MemoryAccess& access);

// Returns whether there is a select, and every select predicate is uniform across a vector along
// `inner`.
bool uniform_select(const fusion::Problem& problem, const std::vector<fusion::AxisId>& inner,
                    fusion::SizeHints& hints, int vector);

// Returns whether a read has a mask (from a pad or a cat).
bool is_conditional(const fusion::Problem& problem);
// Returns whether the access can be vectorized along `inner`.
bool can_vector(const fusion::Problem& problem, const fusion::MemoryAccess& access,
                const std::vector<fusion::AxisId>& inner, fusion::SizeHints& hints, int vector);

// Returns the accesses over some of `axes` that can use vectors along `inner`. Empty if `vector` is
// 1.
schedule::AccessSet vectorized_accesses(const fusion::Problem& problem, fusion::AxisSet axes,
                                        const std::vector<fusion::AxisId>& inner,
                                        fusion::SizeHints& hints, int vector);

// Returns the number of innermost `axes` that a vector stays within (Lanes::axes): 1 if the
// vector length divides the last extent, else the number of `inner` axes, or 0 for all axes.
int lane_axes_of(const fusion::Problem& problem, const std::vector<fusion::AxisId>& axes,
                 const std::vector<fusion::AxisId>& inner, fusion::SizeHints& hints, int vector);

// Returns the lane selection of a strided access: its lanes are not adjacent in memory but lie in
// one aligned window. It covers a constant step (a slice with a step), a repeated element (a stack
// along the innermost axis), or both. Appends to `multiples` the expressions that must be multiples
// of the window width, in `exprs` or in the arena of the problem. nullopt if the access is
// contiguous or has a mask.
std::optional<schedule::LaneWindow> lane_window_of(const fusion::Problem& problem, ir::Exprs& exprs,
                                                   const fusion::MemoryAccess& access,
                                                   const std::vector<fusion::AxisId>& inner,
                                                   int vector, std::vector<ir::Expr>& multiples);
std::optional<schedule::LaneWindow> lane_window_of(fusion::Problem& problem,
                                                   const fusion::MemoryAccess& access,
                                                   const std::vector<fusion::AxisId>& inner,
                                                   int vector, std::vector<ir::Expr>& multiples);

// Returns the reads that are strided accesses.
schedule::AccessSet strided_accesses(const fusion::Problem& problem,
                                     const std::vector<fusion::AxisId>& inner,
                                     fusion::SizeHints& hints, int vector);

}  // namespace fuser::schedulers
