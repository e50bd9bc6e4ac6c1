// The builder of kernels with reductions, in parts: the walk over a tile (tiles.cpp) and the ends
// of rows that it leaves (tile_edges.cpp), rows in shared memory (tile_rows.cpp), the values of a
// walk (tile_walks.cpp), and combining over threads, blocks and the grid (tile_grid.cpp). tiles.cpp
// says how such a kernel is made.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fusion/walks.h"
#include "lower/passes.h"
#include "lower/values.h"
#include "schedule/device.h"

namespace fuser::tile {

enum { K, R };

using Known = std::vector<Expr>;  // by value: its expression where it is in scope, else nullptr

// What exists of an access or an element.
struct Guard {
  Expr in = nullptr, count = nullptr;
};

// A place in the stretch of memory that the rows of a block are.
struct StretchPlace {
  Expr offset = nullptr, shared = nullptr;  // in its buffer, and in that of shared memory
  Expr in = nullptr;                        // does it exist?
  int width = 1;
};

// How threads move the tile of an access that lies across the rows: the runs of as many columns
// together as fill a bank, several of these under way; the run that a thread is in stays the same.
struct TileMoves {
  int length = 1;               // elements of a run
  int together = 1, count = 1;  // columns; of these, side by side
  int64_t elements = 0;         // that they have places for
  int step = 0, beside = 0;     // variables: of the loop, of what is under way,
  int of_run = 0, of_bank = 0;  // of the elements of a run, of the columns together
  Expr run = nullptr, column = nullptr;
  Expr first = nullptr;                 // row of the tile
  Expr steps = nullptr;                 // trip count
  Expr in = nullptr, offset = nullptr;  // in the tensor
  Expr place = nullptr;                 // where what was copied ahead of time lies
};

// A walk over R: what it is for, and how it reads.
struct Walk {
  int phase = 0;
  Known& outer;  // what is known before it
  std::vector<ValueId> reductions{};
  std::vector<int> stores{};      // by access
  std::vector<ValueId> wanted{};  // values, operands first
  std::vector<int> read{};        // accesses, before the steps
  std::vector<bool> all_steps{};  // by access: side by side in plain arrays
  std::vector<bool> in_pairs{};   // by access: for two steps at a time
};

struct Builder {
  const Problem& problem;
  const Schedule& schedule;
  KernelIR kernel;

  // The walk.
  AxisSet axes_of_dim[2] = {0, 0};
  Expr extents[2] = {nullptr, nullptr};
  int lanes = 1, unroll = 1;
  int lane_dim = R;
  AxisSet lane_axes = 0;      // that lanes walk along
  int columns = 1, rows = 1;  // threads along and across: threads = rows * columns
  Expr x = nullptr, y = nullptr, rank = nullptr;
  int serial_var = -1, unroll_var = -1, pair_var = -1, lane_var = -1, row_var = -1;
  bool pairs = false;                                // the unrolled steps are walked two by two
  Expr step_at = nullptr;                            // index of the unrolled step
  Expr serial_count = nullptr, row_count = nullptr;  // trip counts, or nullptr
  Expr splits = nullptr, split = nullptr;            // of R over the grid
  Expr tile = nullptr, tiles = nullptr;              // index of the block along K, and their number
  int tile_var = -1;          // of the tiles that cross shared memory, which a block takes in turn
  Expr tile_count = nullptr;  // their trip count
  std::vector<LinearAxes> walk;

  // Rows that are no multiple of a vector: see peel().
  bool peeled = false;
  int reach = 1;                  // elements from a vector's first one on that exist where it does
  std::vector<LinearAxes> edges;  // of the one element of a thread that no vector holds
  Expr at_edge = nullptr;         // is there one?
  std::vector<int> edge_of;       // by access: array that holds it, or -1
  // Which of `parts` equal parts of a vector what all rows read is shifted by: as a variable
  // (nullptr: nobody asks), and inside a condition that says which (-1: elsewhere).
  Expr shift_part = nullptr;
  int part_here = -1, parts = 1;

  bool checks = true;      // false: inside a condition that says that all lanes exist
  bool all_exist = false;  // inside one that says it of all lanes of all steps

  // By value.
  std::vector<bool> finish;      // depends on a reduction over K: known at the very end
  std::vector<int> access_of;    // its memory access, or -1
  std::vector<int> state_of;     // array of a Reduced value's partial results
  std::vector<int> product_of;   // the product that a sum takes in without rounding it, or -1
  std::vector<bool> takes;       // see takes_arrays()
  std::vector<int> taken_of;     // array of the elements that a partial result takes in at once
  std::vector<int> places_of;    // of their positions, where it asks for them
  std::vector<int> slots_of;     // shared memory in which threads above each other combine it
  std::vector<int> kept_of;      // array that keeps it for later walks, or -1
  std::vector<int> array_of;     // register array of a lane of a value over K (columns)
  std::vector<int> raw_of;       // by access: array that holds it as loaded, or -1
  std::vector<int> shared_of;    // by access: buffer in shared memory, or -1
  std::vector<int> elements_of;  // by access: plain register array
  std::vector<int> output_of;    // by access (stores)
  Walks walks;                   // what each is for

  const std::vector<Value>& values() const { return problem.refined.values; }
  Exprs& exprs() { return kernel.exprs; }
  Expr constant(int64_t v) { return exprs().constant(v); }
  Expr var(int v) { return exprs().symbol(Symbol::Var, v); }
  int new_var() { return kernel.vars++; }
  Expr both(Expr a, Expr b) { return fuser::both(exprs(), a, b); }
  Expr inside(const Guard& g, const MemoryAccess& a, const Known& known = {}) {
    return both(g.in, within(kernel, a.in, known));
  }
  Expr less(Expr a, Expr b) { return exprs().apply(Op::lt, {a, b}); }
  bool over(AxisSet axes, int dim) const { return (axes & axes_of_dim[dim]) != 0; }
  // Does it differ between the lanes of a vector?
  bool in_lanes(AxisSet axes) const { return lanes > 1 && (axes & lane_axes) != 0; }
  Expr ceil_div(Expr a, Expr b);
  // A position in registers: that of the unrolled step and of the lane.
  Expr element(Expr lane, int per_step);

  int new_array(std::string name, DType dtype, int extent, std::optional<State> state = {},
                int chunk = 0);
  int new_shared(std::string name, DType dtype, int elements, std::optional<State> state = {});
  int new_shared(std::string name, DType dtype, Expr elements, std::optional<State> state = {});
  int new_scratch(std::string name, Buffer::Kind kind, DType dtype, Expr elements,
                  std::optional<State> state = {});

  // ---- The walk

  Expr index_let(Expr value);

  // Where each thread is in the space, and the loops that take it on.
  void make_walk();
  const std::vector<Loop>& loops() const { return schedule.stages[0].loops; }
  void take_loops();
  // By loop: what is left of a dim when the other loops took theirs.
  std::vector<Expr> trip_counts();
  // By loop: where in it a block of threads is, nullptr where that is no matter of blocks.
  std::vector<Expr> place_blocks(const std::vector<Expr>& counts);
  // The same of the other loops.
  void index_loops(const std::vector<Expr>& counts, std::vector<Expr>& index);
  bool peels() const { return schedule.tail && lane_dim == R && lanes > 1; }
  void peel();
  bool at_edges() const { return peeled && lanes == 1; }
  Body on_edges(const std::function<void(Body&)>& make);
  Body read_edges(const Known& known);
  bool walks_pairs() const;

  // What exists for something that varies over `axes`; `lane`: of one lane of it, nullptr: of the
  // whole vector.
  Guard guard(AxisSet axes, Expr lane);

  // Does the element of a lane exist, as one condition?
  Expr exists(AxisSet axes, Expr lane);

  // ---- Analysis of the values

  bool reduces_columns(const Value& v) const;

  static std::vector<ValueId> operands_of(const Value& v);

  // When each value is known, and the arrays of partial results.
  void analyse();

  // One partial result a thread, for all of its lanes.
  bool takes_arrays(ValueId v);
  AccumulateAll take_in(ValueId v) const {
    return {.array = state_of[v], .values = taken_of[v], .positions = places_of[v]};
  }
  // Takes the elements of a column's steps at once.
  bool takes_steps(ValueId v) const;
  bool ascends(Expr position);

  // A product that nothing but one sum reads is part of that sum, where contract() has it so.
  void find_products();

  bool is_inner(ValueId v) const { return over(values()[v].axes, R); }
  bool is_reduced(ValueId v) const { return std::holds_alternative<Reduced>(values()[v].how); }

  // What a walk is for: reductions that end with it, or the stores.
  std::vector<ValueId> reductions_of(int p) const;
  std::vector<int> stores_over(bool k, bool r) const;
  ValueId stored_value(int access) const;
  bool is_finish_store(int access) const;

  // Values that `roots` are computed from inside a walk, operands first; those known already and
  // those over K alone are not among them.
  std::vector<ValueId> needed(const std::vector<ValueId>& roots, const Known& known) const;

  // ---- Reads

  std::string name_of(const char* prefix, int access);

  bool is_wide(int access) const;
  bool is_shifted(int access) const;  // its vectors lie at any element
  // Is it shifted by as much as the walk starts behind its row?
  bool follows_rows(int access) const;
  bool is_once(int access) const { return schedule.once.contains(access); }
  Place place_of(int access) const;
  bool stays(int access) const;

  // The elements of a read value: in each step of the walk, or all steps side by side.
  int plain_array(int access, bool all_steps);

  // Reads the lanes of one step into its plain array.
  void load_step(Body& body, int access, const Known& known, bool all_steps);

  // `reads` of a pair of steps come before both.
  Body unrolled(Body body, Body reads = {});
  // A row in shared memory is walked step by step, in a loop that is not unrolled.
  bool rolled() const { return serial_var >= 0 && schedule.rolled > 0; }
  Body stepped(Body body);
  static void append(Body& to, Body from);

  // Where a thread keeps its part of a row in shared memory: it alone reads what it copied.
  Expr shared_element(int access, Expr step_of_ring);

  // Of a row in shared memory, in the part of this block of the cluster.
  Expr row_elements();
  bool grows();                      // only the launch knows how long the rows are
  std::vector<int> before_of;        // by access: rows of its own dtype that lie before its row
  Expr elements_before(int access);  // in its buffer: those of such rows

  void declare_places();

  // Copies of one row into shared memory; `row`: see row_at().
  Body copies(Expr row, Expr step_of_ring, const Known& known);
  Body first_copies();
  Body next_copies();
  // The same expression for another row.
  Expr at_row(Expr e, Expr row);

  // Reads over K alone in a persistent loop: those of the next row are under way while the present
  // one is worked on.
  std::vector<int> next_of;  // by access: array, or -1
  Body read_ahead(Expr row);
  void declare_ahead();

  bool has_copies() const;

  // ---- Rows of a block as one stretch of memory

  // Rows of a block that cross shared memory together, as a stretch or by a tile across them.
  int turns = 1;  // rows that a thread takes in turn
  bool has_tile() const { return schedule.stretch || !schedule.across.empty(); }
  Expr row_of_block();
  void walk_tile();
  // Of the block: its first element, and how many exist.
  Expr stretch_start = nullptr, stretch_count = nullptr;
  // Of a thread and its row: unrolled groups of steps, and steps behind them.
  Expr own_groups = nullptr, own_rest = nullptr;
  using AtPlace = std::function<void(Body&, Expr at, Expr in)>;
  bool crosses(int access) const;
  std::vector<int> places_to_take() const;
  Expr stretch_element(int access);
  StretchPlace place_in_stretch(int access, Expr at, Expr in, int width);
  Body along_stretch(int width, const AtPlace& whole, const AtPlace& rest);
  void move_place(Body& body, int access, const StretchPlace& place);
  Body stretch_in();
  Body stretch_out();
  Expr spread_row();
  void place_stretch();
  Body own_steps(const Walk& w);

  // ---- Tiles of what lies across the rows of a block

  bool is_across(int access) const;
  int run_of(int access) const;
  Expr tile_element(int access, Expr row, Expr run, Expr chunk, Expr lane);
  Expr across_element(int access);
  std::vector<int> ahead_of;  // by access: buffer of what is copied for the next tile, or -1
  TileMoves moves_of(int access, Expr tile_of_rows);
  void declare_tiles_ahead();
  Expr tile_at(Expr turn);
  Body copy_tiles(Expr turn);
  Body cross_tile(int access);
  Body cross_tiles(bool stores);
  Body tiles_in();
  Body tiles_out();

  // ---- Values

  // Value v in the present scope: loads what is not loaded yet, names what is computed.
  void compute(ValueId v, Known& known, Body& body, Expr lane);

  // A field of a reduction's partial result after it was combined.
  Expr result(ValueId reduced, int field, Expr lane);

  // Runs make(body, lane, known) for each lane.
  void for_lanes(Body& body, const Known& known,
                 const std::function<void(Body&, Expr lane, Known&)>& make);

  // Values over K alone (and those of no axes) that are known from walk p on.
  void between_walks(Body& body, int p, Known& known);

  // ---- A walk over R

  void accumulate(Body& body, ValueId v, Expr lane, const Known& known);
  // What an access stores, into its array of results.
  void assign_output(Body& body, int access, Expr lane, const Known& known);

  // Values that are kept for later walks are known from there on.
  void nest(Body& out, int phase, Known& outer);
  // Bounds the chains of additions of a walk in a loop: see long_sums().
  std::vector<ValueId> long_sums(const Walk& w) const;
  Body merged(const std::vector<ValueId>& sums, bool into_total);
  std::vector<int> total_of;  // by value: array of what a long sum's partial results come to
  Walk walk_of(int phase, Known& outer);
  // Reads come first, of all steps: they are in flight together. `beside`: those of a pair of
  // steps.
  Body reads(const Walk& w, bool beside);
  // What was read becomes elements. Vectors are read before as a whole, and a part of one here.
  void unpack(Body& body, const Walk& w, const Known& known);
  // One step: what was read is unpacked, values are computed, taken in and stored.
  Body step(const Walk& w);
  Body steps(const Walk& w);
  // Along columns the steps of an unrolled walk without questions where all exist, or with them.
  Body steps_of_columns(Walk& w);

  // Is v in registers from the first walk that computes it to the last?
  bool is_kept(ValueId v) const;
  void keep(Body& body, ValueId v, Expr lane, Expr value);

  // A step where it exists: whole, without a question for each lane; or, at the end of columns that
  // are no multiple of a vector, lane by lane. `extent`: the elements that must exist from its
  // first one on for it to be whole.
  Body existing(const std::function<Body()>& step, int extent);
  Body by_shift(const std::function<Body()>& step);
  Expr all_steps_in(bool shifts);

  // Stores the lanes of an output; `owner`: which thread does.
  void store(Body& body, int access, const Known& known, Expr owner);

  // Would all arrays together take so many registers that the compiler, left to itself, spills a
  // few bytes for one resident block more? Of small blocks several should be resident all the same;
  // one that does spill is compiled once more (fuser/runtime/toolchain.py).
  bool is_crowded() const;

  // ---- Combining

  int slot_index = 0;
  int arrivals = -1, places_of_arrival = 0;  // in shared memory, of the blocks of a cluster
  void combine(Body& body, const std::vector<ValueId>& reduced, Expr parity);

  // Do threads above each other (ThreadY) share a column, with one element a thread?
  bool across_rows() const;

  // ---- The grid takes part in a reduction over R: the last block of a tile finishes.

  void last_block(Body& body, const std::vector<ValueId>& reduced, const Known& start);

  // Combines entries that are merged already: no fold over the lanes.
  void combine_states(Body& body, const std::vector<ValueId>& reduced);

  Expr tiles_along_k();

  // Outputs over K alone: the first thread of a row stores, or of a column.
  void store_kept(Body& body, const Known& known);

  // ---- Rows

  Expr ring_step();

  void walk_row(Body& body);

  // The persistent loop over rows, its copies running ahead.
  void rows_loop();
  Body before_rows();
  // Does a thread walk several rows, one after the other?
  bool walks_rows() const { return row_var >= 0 || tile_var >= 0; }
  Expr row_at();

  // ---- Reductions over K: every block has a partial result for each column; when all have
  // arrived, each takes some of the columns and merges the blocks in order.

  void finish_columns();
  std::vector<int> write_columns(const std::vector<ValueId>& reduced);
  void merge_blocks(Body& body, const std::vector<ValueId>& reduced,
                    const std::vector<int>& partials, Expr column, Expr y, Known& known);
  void store_columns(Body& body, Expr column, Expr owner, Known& known);

  void build();
};

}  // namespace fuser::tile
