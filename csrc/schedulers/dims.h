// What schedulers ask of a problem's memory accesses: how far one linear index over several axes
// reaches, and what 16-byte access takes.
#pragma once

#include <optional>

#include "schedulers/scheduler.h"

namespace fuser {

using Dims = std::vector<std::vector<AxisId>>;  // outermost first

// The least power of two that is not less than n; beyond 2^30 that.
int ceil_pow2(int64_t n);

Expr extent_of(Problem& problem, const std::vector<AxisId>& axes);

// Coefficient of the one linear index over `axes` (outermost first) in the access, or nullptr where
// its addresses are not linear in it.
Expr coefficient(Problem& problem, const MemoryAccess& access, const std::vector<AxisId>& axes);
// The offset of an access that has strides, without what it walks along all other axes.
Expr offset_along(Problem& problem, const MemoryAccess& access, const std::vector<AxisId>& axes);

// Neighbours of `axes` that every one of these accesses walks as one.
Dims collapse(Problem& problem, const std::vector<AxisId>& axes,
              const std::vector<const MemoryAccess*>& accesses);
std::vector<const MemoryAccess*> all_accesses(const Problem& problem);

// Elements of the longest vector that an access can move.
int longest_vector(const MemoryAccess& access);

// What 16-byte access takes of an access whose lanes run along `inner`: nothing where it cannot,
// else what must be multiples of the vector's length.
std::optional<std::vector<Expr>> vector_needs(Problem& problem, const MemoryAccess& access,
                                              const std::vector<AxisId>& inner);
// The same of the conditions by which its values choose: for the lanes of a vector along `inner` to
// lie on one side of every boundary. Nothing where they may not, or where none is chosen.
std::optional<std::vector<Expr>> one_side_needs(Problem& problem, const std::vector<AxisId>& inner);
void ask_one_side(Problem& problem, Verdict& verdict, const std::vector<AxisId>& inner, int vector);
bool one_side(Problem& problem, const std::vector<AxisId>& inner, const Hints& hints, int vector);
// Do its reads depend on where they stand (a pad, a cat)?
bool is_conditional(const Problem& problem);
bool can_vector(Problem& problem, const MemoryAccess& access, const std::vector<AxisId>& inner,
                const Hints& hints, int vector);

// Asks, where it is not known, whether `divisor` divides `value`.
void ask_divides(Verdict& verdict, Expr value, int64_t divisor);
// Asks all that vectors along `inner` take: of one access; of its extent and of each access.
void ask_vector(Problem& problem, Verdict& verdict, const MemoryAccess& access,
                const std::vector<AxisId>& inner, int vector);
void ask_vectors(Problem& problem, Verdict& verdict, const std::vector<AxisId>& inner, int vector);
// The accesses over some of `axes` that move vectors along `inner`; none where `vector` is 1.
AccessSet wide_accesses(Problem& problem, AxisSet axes, const std::vector<AxisId>& inner,
                        const Hints& hints, int vector);

// How many of the innermost of `axes` the lanes of a vector stay within (Schedule::whole): the last
// one, or else `inner`, of whose extent the vector is a divisor.
int axes_of_lanes(const Problem& problem, const std::vector<AxisId>& axes,
                  const std::vector<AxisId>& inner, const Hints& hints, int vector);

// Does it read what an earlier kernel of the same definition stored? That one has just walked the
// large inputs of both, and L2 holds their ends.
bool reads_earlier(const Problem& problem);

// ---- Problems with reductions

// The axes of K or R in the order of memory.
std::vector<AxisId> kept_axes(const Problem& problem);
std::vector<AxisId> reduced_axes(const Problem& problem);

// Does it move whole rows: over all of R, and over K where there is one? What misses an axis of R
// is read again and again, from cache.
bool moves_rows(const Problem& problem, const MemoryAccess& access);

// Where something lies across the lanes: asks for what lies_across() wants to know, and whether it
// is so large that transactions of a sector for each element take too long. Can a copy along them
// run instead?
void ask_across(Problem& problem, Verdict& verdict);
bool lies_across(Problem& problem, const Hints& hints);
bool copies_across(Problem& problem, const Hints& hints);

// The axes that lanes run along, the innermost run of them that all accesses which `moves` takes
// walk as one, and the length of a vector of the widest element.
struct Run {
  std::vector<AxisId> axes, inner;
  bool whole = false;  // is `inner` all of `axes`?
  int vector = 1;
};
Run run_of(Problem& problem, std::vector<AxisId> axes,
           bool (*moves)(Problem&, const MemoryAccess&));
// What schedulers whose lanes run along rows of R ask; of their vectors alone.
void ask_rows(Problem& problem, Verdict& verdict, const Run& rows);
void ask_row_vectors(Problem& problem, Verdict& verdict, const Run& rows, int vector);

// How a problem with reductions looks to its schedulers.
struct Shape {
  int walks = 0;             // over R: one for each reduction that waits for another, one to store
  int phases = 0;            // reductions that wait for each other
  bool stores_rows = false;  // an output over K and R
  bool stores_last = false;  // one that waits for all reductions
  int staged = 0;            // reads of whole rows: what would stay on chip
  int staged_bytes = 0;      // of one element of each
  int cached_bytes = 0;      // of one element of each read that all rows share
  int operations = 0;        // on elements of rows
  int widest = 1;            // bytes of the widest element over K and R that lanes move
};
Shape shape_of(const Problem& problem);

// What several walks over R need and an earlier one computes: the values that are worth a register
// for each element, because nothing else that they are computed from is needed again.
std::vector<ValueId> computed_again(const Problem& problem);

// Of one element of a row, in all walks over R together, each computing what it needs.
struct WalkWork {
  double slots = 0.0;  // issue slots,
  double again = 0.0;  // and those of them that compute what an earlier walk has computed
  double bytes = 0.0;  // moved to and from memory
};
WalkWork work_of_walks(const Problem& problem);

// The window that lanes read where they are not neighbours in memory but lie in a stretch of it
// that starts at a multiple of its length: every other element (a slice with a step), each element
// for several lanes (what is stacked along the innermost axis), or both. `multiples`, appended, are
// what must be multiples of its width. Nothing for what is contiguous, or has conditions.
std::optional<Window> window_of(Problem& problem, const MemoryAccess& access,
                                const std::vector<AxisId>& inner, int vector,
                                std::vector<Expr>& multiples);
void ask_windows(Problem& problem, Verdict& verdict, const std::vector<AxisId>& inner, int vector);
// The accesses that are read by windows.
AccessSet windows(Problem& problem, const std::vector<AxisId>& inner, const Hints& hints,
                  int vector);

// `vector` for those in `wide`, by access.
std::vector<int> widths_of(const Problem& problem, const AccessSet& wide, int vector);

// The start of a schedule with reductions: dims 0 and 1 are K and R, and what the plan says of
// threads, lanes and loops.
Schedule start_of_reduction(const Problem& problem, const Plan& plan);
// The loops of blocks whose threads run along R: the steps of a row, its parts over a cluster, the
// rows of a block and the threads of each.
void loop_along_rows(Stage& stage, const Plan& plan);
// Blocks of a persistent grid that take `tiles` in turn: at most `blocks`, at least one.
Expr persistent_blocks(Problem& problem, int64_t blocks, Expr tiles);
// Blocks that a grid of `blocks` has for each of `tiles`: with a step or more each, at least one.
Expr blocks_a_tile(Problem& problem, int64_t blocks, Expr tiles, Expr steps);

}  // namespace fuser
