// Vectorized, strided and unaligned access: the conditions of each access, asked as guards
// and answered from size hints.
#pragma once

#include <optional>
#include <vector>

#include "schedulers/scheduler.h"

namespace fuser {

// Returns the number of elements in the longest vector of the access: 16 bytes.
int longest_vector(const MemoryAccess& access);

// Returns the divisibility conditions under which `access` can be vectorized along `inner`: each
// expression must be a multiple of the vector length. nullopt if it can never be vectorized.
std::optional<std::vector<Expr>> vector_needs(Problem& problem, const MemoryAccess& access,
                                              const std::vector<AxisId>& inner);

// Returns the divisibility conditions under which every select predicate is uniform across a vector
// along `inner`. nullopt if there is no select, or if it can never be uniform.
std::optional<std::vector<Expr>> uniform_select_needs(Problem& problem,
                                                      const std::vector<AxisId>& inner);
void guard_uniform_select(Problem& problem, MatchResult& match, const std::vector<AxisId>& inner,
                          int vector);
bool uniform_select(Problem& problem, const std::vector<AxisId>& inner, const SizeHints& hints,
                    int vector);

// Returns whether a read has a mask (from a pad or a cat).
bool is_conditional(const Problem& problem);
bool can_vector(Problem& problem, const MemoryAccess& access, const std::vector<AxisId>& inner,
                const SizeHints& hints, int vector);

// Registers the guard "`divisor` divides `value`" unless the answer is known statically.
void guard_divides(MatchResult& match, Expr value, int64_t divisor);

// Register the guards for vectors along `inner`: for one access; for the extent and all accesses.
void guard_vector(Problem& problem, MatchResult& match, const MemoryAccess& access,
                  const std::vector<AxisId>& inner, int vector);
void guard_vectors(Problem& problem, MatchResult& match, const std::vector<AxisId>& inner,
                   int vector);

// Returns the accesses over some of `axes` that can use vectors along `inner`. Empty if `vector` is
// 1.
AccessSet vectorized_accesses(Problem& problem, AxisSet axes, const std::vector<AxisId>& inner,
                              const SizeHints& hints, int vector);

// Returns the number of innermost `axes` that a vector stays within (Schedule::lane_axes): 1 if the
// vector length divides the last extent, else the number of `inner` axes, or 0 for all axes.
int lane_axes_of(const Problem& problem, const std::vector<AxisId>& axes,
                 const std::vector<AxisId>& inner, const SizeHints& hints, int vector);

// Returns the lane selection of a strided access: its lanes are not adjacent in memory but lie in
// one aligned window. It covers a constant step (a slice with a step), a repeated element (a stack
// along the innermost axis), or both. Appends to `multiples` the expressions that must be multiples
// of the window width. nullopt if the access is contiguous or has a mask.
std::optional<LaneWindow> lane_window_of(Problem& problem, const MemoryAccess& access,
                                         const std::vector<AxisId>& inner, int vector,
                                         std::vector<Expr>& multiples);
void guard_strided(Problem& problem, MatchResult& match, const std::vector<AxisId>& inner,
                   int vector);

// Returns the reads that are strided accesses.
AccessSet strided_accesses(Problem& problem, const std::vector<AxisId>& inner,
                           const SizeHints& hints, int vector);

// Returns the elements moved at once by access: `vector` for the accesses in `vectorized`, else 1.
std::vector<int> widths_of(const Problem& problem, const AccessSet& vectorized, int vector);

}  // namespace fuser
