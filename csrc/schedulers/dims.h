// Analysis of memory accesses for schedulers: collapsing of axes, vectorization, strided and
// uncoalesced accesses, and the shape of reductions.
//
// Functions named ask_x() register in match() the guards and extents that the function x() queries
// in plan().
#pragma once

#include <optional>

#include "schedulers/scheduler.h"

namespace fuser {

using Dims = std::vector<std::vector<AxisId>>;  // outermost first

// Returns the least power of two >= n, at most 2^30.
int ceil_pow2(int64_t n);

Expr extent_of(Problem& problem, const std::vector<AxisId>& axes);

// Returns the stride of the access in the linear index over `axes` (outermost first), or nullptr if
// its address is not linear in that index.
Expr coefficient(Problem& problem, const MemoryAccess& access, const std::vector<AxisId>& axes);
// Returns the offset of a linear access if all axes except `axes` are 0.
Expr offset_along(Problem& problem, const MemoryAccess& access, const std::vector<AxisId>& axes);

// Groups neighbouring `axes` that every access of `accesses` can address by one linear index.
Dims collapse(Problem& problem, const std::vector<AxisId>& axes,
              const std::vector<const MemoryAccess*>& accesses);
std::vector<const MemoryAccess*> all_accesses(const Problem& problem);

// Returns the number of elements in the longest vector of the access: 16 bytes.
int longest_vector(const MemoryAccess& access);

// Returns the divisibility conditions under which `access` can be vectorized along `inner`: each
// expression must be a multiple of the vector length. nullopt if it can never be vectorized.
std::optional<std::vector<Expr>> vector_needs(Problem& problem, const MemoryAccess& access,
                                              const std::vector<AxisId>& inner);
// Returns the divisibility conditions under which every select predicate is uniform across a vector
// along `inner`. nullopt if there is no select, or if it can never be uniform.
std::optional<std::vector<Expr>> one_side_needs(Problem& problem, const std::vector<AxisId>& inner);
void ask_one_side(Problem& problem, Verdict& verdict, const std::vector<AxisId>& inner, int vector);
bool one_side(Problem& problem, const std::vector<AxisId>& inner, const Hints& hints, int vector);
// Returns whether a read has a mask (from a pad or a cat).
bool is_conditional(const Problem& problem);
bool can_vector(Problem& problem, const MemoryAccess& access, const std::vector<AxisId>& inner,
                const Hints& hints, int vector);

// Registers the guard "`divisor` divides `value`" unless the answer is known statically.
void ask_divides(Verdict& verdict, Expr value, int64_t divisor);
// Register the guards for vectors along `inner`: for one access; for the extent and all accesses.
void ask_vector(Problem& problem, Verdict& verdict, const MemoryAccess& access,
                const std::vector<AxisId>& inner, int vector);
void ask_vectors(Problem& problem, Verdict& verdict, const std::vector<AxisId>& inner, int vector);
// Returns the accesses over some of `axes` that can use vectors along `inner`. Empty if `vector` is
// 1.
AccessSet wide_accesses(Problem& problem, AxisSet axes, const std::vector<AxisId>& inner,
                        const Hints& hints, int vector);

// Returns the number of innermost `axes` that a vector stays within (Schedule::whole): 1 if the
// vector length divides the last extent, else the number of `inner` axes, or 0 for all axes.
int axes_of_lanes(const Problem& problem, const std::vector<AxisId>& axes,
                  const std::vector<AxisId>& inner, const Hints& hints, int vector);

// Returns whether the kernel reads a tensor that an earlier kernel of the definition stores. The
// earlier kernel has just traversed the large inputs, so L2 still holds their last elements.
bool reads_earlier(const Problem& problem);

// ---- Problems with reductions

// The kept axes K and the reduced axes R, in memory order.
std::vector<AxisId> kept_axes(const Problem& problem);
std::vector<AxisId> reduced_axes(const Problem& problem);

// Returns whether the access moves complete rows: it varies over all of R, and over K if K is not
// empty. An access that misses an axis of R is read repeatedly, from cache.
bool moves_rows(const Problem& problem, const MemoryAccess& access);

// ask_across() registers the size hints that lies_across() needs. lies_across() returns whether an
// uncoalesced access is large enough that its sector per element dominates. copies_across() returns
// whether, in addition, kernels that transpose the operands are available.
void ask_across(Problem& problem, Verdict& verdict);
bool lies_across(Problem& problem, const Hints& hints);
bool copies_across(Problem& problem, const Hints& hints);

// The axes along which vectors run, the innermost of them that all moved accesses collapse into one
// linear index, and the vector length of the widest element. `moves` selects the accesses.
struct Run {
  std::vector<AxisId> axes, inner;
  bool whole = false;  // True if `inner` equals `axes`
  int vector = 1;
};
Run run_of(Problem& problem, std::vector<AxisId> axes,
           bool (*moves)(Problem&, const MemoryAccess&));
// Register the guards of schedulers that vectorize along R: all of them; only the vector guards.
void ask_rows(Problem& problem, Verdict& verdict, const Run& rows);
void ask_row_vectors(Problem& problem, Verdict& verdict, const Run& rows, int vector);

// Properties of a reduction problem that its schedulers decide by.
struct Shape {
  // Reduction loops: the phases, plus one for stores that need all of them.
  int walks = 0;
  int phases = 0;            // length of the longest chain of dependent reductions over R
  bool stores_rows = false;  // True if an output varies over K and R
  bool stores_last = false;  // True if an output over K and R depends on the last phase
  int staged = 0;            // reads of complete rows, the candidates for persistence
  int staged_bytes = 0;      // bytes of one element of each staged read
  int cached_bytes = 0;      // bytes of one element of each read over R alone (weights)
  int operations = 0;        // ops on elements of rows
  int widest = 1;            // bytes of the widest element over K and R on the innermost axis
};
Shape shape_of(const Problem& problem);

// Returns the values that one phase computes and a later phase needs, if their operands are not
// needed again. Caching a value costs one register per element.
std::vector<ValueId> computed_again(const Problem& problem);

// Work per element of a row, summed over all reduction loops. Each loop computes all values that it
// needs.
struct WalkWork {
  double slots = 0.0;  // issue slots
  double again = 0.0;  // issue slots of values that an earlier loop has computed already
  double bytes = 0.0;  // bytes moved to and from memory
};
WalkWork work_of_walks(const Problem& problem);

// Returns the lane selection of a strided access: its lanes are not adjacent in memory but lie in
// one aligned window. It covers a constant step (a slice with a step), a repeated element (a stack
// along the innermost axis), or both. Appends to `multiples` the expressions that must be multiples
// of the window width. nullopt if the access is contiguous or has a mask.
std::optional<Window> window_of(Problem& problem, const MemoryAccess& access,
                                const std::vector<AxisId>& inner, int vector,
                                std::vector<Expr>& multiples);
void ask_windows(Problem& problem, Verdict& verdict, const std::vector<AxisId>& inner, int vector);
// Returns the reads that are strided accesses.
AccessSet windows(Problem& problem, const std::vector<AxisId>& inner, const Hints& hints,
                  int vector);

// Returns the elements moved at once by access: `vector` for the accesses in `wide`, else 1.
std::vector<int> widths_of(const Problem& problem, const AccessSet& wide, int vector);

// Starts the schedule of a reduction: dims 0 and 1 are K and R; threads, lanes and widths are from
// the plan.
Schedule start_of_reduction(const Problem& problem, const Plan& plan);
// Appends the loops of a block whose threads run along R: unrolled steps, blocks of a cluster, rows
// of a block, threads of a row, lanes.
void loop_along_rows(Stage& stage, const Plan& plan);
// Returns the blocks of a persistent grid that processes `tiles`: at most `blocks`, at least one.
Expr persistent_blocks(Problem& problem, int64_t blocks, Expr tiles);
// Returns the blocks that share one tile if the grid has `blocks` in total: each has at least one
// of `steps`, and a tile has at least one block.
Expr blocks_a_tile(Problem& problem, int64_t blocks, Expr tiles, Expr steps);

}  // namespace fuser
