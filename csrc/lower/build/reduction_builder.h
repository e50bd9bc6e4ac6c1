// Builder of kernels with reductions, whose overview is at the top of reduction.cpp. Its files hold
// the index map (reduction.cpp), peeled ends of rows (reduction_edges.cpp), rows in shared memory
// (reduction_rows.cpp), packed rows (reduction_packed.cpp), staging tiles (reduction_staging.cpp),
// the values of a reduction loop (reduction_loops.cpp), and reductions over threads, blocks and the
// grid (reduction_grid.cpp).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fusion/kernel/reduction_phases.h"
#include "lower/build/values.h"
#include "lower/passes.h"
#include "schedule/device.h"

namespace fuser::reduction {

enum { K, R };

using Known = std::vector<Expr>;  // expression by value: set while it is in scope, else nullptr

// Mask and element count under which an access or an element exists.
struct Mask {
  Expr in = nullptr, count = nullptr;
};

// Position in the packed rows of a block.
struct PackedPosition {
  Expr offset = nullptr, shared = nullptr;  // offset in its buffer, and in the buffer in shared
                                            // memory
  Expr in = nullptr;                        // mask
  int width = 1;
};

// How threads copy the staging tile of an uncoalesced access: as vectors along K, for as many
// adjacent columns as fill a bank, with several copies in flight. Each thread keeps its vector
// position along K.
struct StagingCopy {
  int length = 1;               // elements of a vector
  int together = 1, count = 1;  // adjacent columns, and copies in flight of each
  int64_t elements = 0;         // elements that the tile has room for
  int step = 0, beside = 0;     // variables of the loop, and of the copies in flight,
  int of_run = 0, of_bank = 0;  // of the elements of a vector, and of the adjacent columns
  Expr run = nullptr, column = nullptr;
  Expr first = nullptr;                 // first row of the vector in the tile
  Expr steps = nullptr;                 // trip count
  Expr in = nullptr, offset = nullptr;  // mask and offset in the tensor
  Expr place = nullptr;                 // position in the buffer of prefetched tiles
};

// A reduction loop: the reductions and stores of its phase, and how it reads.
struct ReductionLoop {
  int phase = 0;
  Known& outer;  // expressions known before the loop
  std::vector<ValueId> reductions{};
  std::vector<int> stores{};      // access indices
  std::vector<ValueId> wanted{};  // values that the loop computes, operands first
  std::vector<int> read{};        // accesses that are read before the steps
  std::vector<bool> all_steps{};  // by access: all unrolled steps have elements of their own
  std::vector<bool> in_pairs{};   // by access: read for two steps at a time
};

struct Builder {
  const Problem& problem;
  const Schedule& schedule;
  KernelIR kernel;

  // Stagings by access: nullptr if the access is reloaded. `packed`, `staged`: whether any has this
  // shape. `stages`: copies of rows in flight.
  std::vector<const Staging*> stagings;
  bool packed = false, staged = false, prefetches = false;
  int stages = 1;

  // Index map.
  AxisSet axes_of_dim[2] = {0, 0};
  Expr extents[2] = {nullptr, nullptr};
  int vector = 1, unroll = 1;
  int lane_dim = R;
  AxisSet lane_axes = 0;             // axes that the lanes run along
  int threads_x = 1, threads_y = 1;  // threads along X and along Y: threads = rows * columns
  Expr x = nullptr, y = nullptr, rank = nullptr;
  int serial_unroll = 0;  // unroll factor of the loop over a row in shared memory; 0: no loop
  int serial_var = -1, unroll_var = -1, pair_var = -1, lane_var = -1, row_var = -1;
  bool pairs = false;                                // the unrolled steps run in pairs
  Expr step_at = nullptr;                            // index of the unrolled step
  Expr serial_count = nullptr, row_count = nullptr;  // trip counts, or nullptr
  Expr splits = nullptr, split = nullptr;  // blocks that R is split over, and index of this block
  Expr tile = nullptr, tiles = nullptr;    // index of the block along K, and number of blocks
  int tile_var = -1;          // variable of the loop over staging tiles of a persistent block
  Expr tile_count = nullptr;  // its trip count
  std::vector<LinearAxes> index_map;

  // Peeled rows, whose length is no multiple of a vector; see peel().
  bool peeled = false;
  int reach = 1;                  // elements that must exist from a vector's first element on
  std::vector<LinearAxes> edges;  // index map of the single elements outside all vectors
  Expr at_edge = nullptr;         // mask of a thread's single element
  std::vector<int> edge_of;       // by access: array that holds that element, or -1
  // Misalignment of operands that all rows read, in units of 1 / `parts` of a vector: as a variable
  // (nullptr: unused), and as a constant inside a condition that fixes it (-1: outside).
  Expr shift_part = nullptr;
  int part_here = -1, parts = 1;

  bool checks = true;      // false: inside a condition under which all lanes exist
  bool all_exist = false;  // inside a condition under which all lanes of all steps exist

  // Vectors by value or access.
  std::vector<bool> finish;       // by value: depends on a reduction over K
  std::vector<int> access_of;     // by value: its memory access, or -1
  std::vector<int> state_of;      // by value: array of partial results of a Reduced value
  std::vector<int> product_of;    // by value: product that a sum accumulates unrounded, or -1
  std::vector<bool> takes;        // by value: see takes_arrays()
  std::vector<int> taken_of;      // by value: array of elements that accumulate at once
  std::vector<int> positions_of;  // by value: array of their positions, if any
  std::vector<int> slots_of;      // by value: shared memory in which threads along Y combine it
  std::vector<int> kept_of;       // by value: array that holds it for later phases, or -1
  std::vector<int> array_of;      // by value over K: array with one element per lane
  std::vector<int> raw_of;        // by access: array of raw vectors, or -1
  std::vector<int> shared_of;     // by access: buffer in shared memory, or -1
  std::vector<int> elements_of;   // by access: array of elements
  std::vector<int> output_of;     // by access: array of the elements to store
  ReductionPhases phases;         // phase of each value and store

  const std::vector<Value>& values() const { return problem.refined.values; }
  Exprs& exprs() { return kernel.exprs; }
  Expr constant(int64_t v) { return exprs().constant(v); }
  Expr var(int v) { return exprs().symbol(Symbol::Var, v); }
  int new_var() { return kernel.vars++; }
  Expr both(Expr a, Expr b) { return fuser::both(exprs(), a, b); }
  Expr inside(const Mask& g, const MemoryAccess& a, const Known& known = {}) {
    return both(g.in, within(kernel, a.in, known));
  }
  Expr less(Expr a, Expr b) { return exprs().apply(Op::lt, {a, b}); }
  bool over(AxisSet axes, int dim) const { return (axes & axes_of_dim[dim]) != 0; }
  // Returns whether a value over `axes` differs between the lanes of a vector.
  bool in_lanes(AxisSet axes) const { return vector > 1 && (axes & lane_axes) != 0; }
  Expr ceil_div(Expr a, Expr b);
  // Returns the position of a lane of the unrolled step in a register array.
  Expr element(Expr lane, int per_step);

  int new_array(std::string name, DType dtype, int extent, std::optional<State> state = {},
                int chunk = 0);
  int new_shared(std::string name, DType dtype, int elements, std::optional<State> state = {});
  int new_shared(std::string name, DType dtype, Expr elements, std::optional<State> state = {});
  int new_scratch(std::string name, Buffer::Kind kind, DType dtype, Expr elements,
                  std::optional<State> state = {});

  // ---- Index map

  Expr index_let(Expr value);

  // Builds the index map: the position of each thread in the iteration space, and the loops.
  void make_index_map();
  const LoopNest& nest_of_rows() const { return schedule.nests[0]; }
  const std::vector<Loop>& loops() const { return nest_of_rows().loops; }
  void take_stagings();
  void take_loops();
  Expr tiles_of(int dim);
  Expr blocks_of(const Loop& loop);
  // Returns the trip count of each loop. A loop without an extent covers the remainder of its dim.
  std::vector<Expr> trip_counts();
  // Returns the index of each Grid loop for this block; nullptr for other loops.
  std::vector<Expr> place_blocks(const std::vector<Expr>& counts);
  // Sets the index of every loop that is no Grid loop.
  void index_loops(const std::vector<Expr>& counts, std::vector<Expr>& index);
  bool peels() const { return nest_of_rows().lanes.tail && lane_dim == R && vector > 1; }
  void peel();
  bool at_edges() const { return peeled && vector == 1; }
  Body on_edges(const std::function<void(Body&)>& make);
  Body read_edges(const Known& known);
  bool takes_pairs() const;

  // Returns the mask of a value or access that varies over `axes`: of one lane, or of the whole
  // vector if `lane` is nullptr.
  Mask mask(AxisSet axes, Expr lane);

  // Returns whether the element of a lane exists, as one condition.
  Expr exists(AxisSet axes, Expr lane);

  // ---- Analysis of the values

  bool reduces_columns(const Value& v) const;

  static std::vector<ValueId> operands_of(const Value& v);

  // Finds the memory access of each value and allocates the arrays of partial results.
  void analyse();

  // Returns whether a thread has one partial result for all of its lanes.
  bool takes_arrays(ValueId v);
  AccumulateAll take_in(ValueId v) const {
    return {.array = state_of[v], .values = taken_of[v], .positions = positions_of[v]};
  }
  // Returns whether a partial result takes in the elements of all unrolled steps of a column at
  // once.
  bool takes_steps(ValueId v) const;
  bool ascends(Expr position);

  // Finds the products that a sum accumulates unrounded: contract() marked the sum, and it is the
  // only user.
  void find_products();

  bool is_inner(ValueId v) const { return over(values()[v].axes, R); }
  bool is_reduced(ValueId v) const { return std::holds_alternative<Reduced>(values()[v].how); }

  // Return the reductions that end with phase p, and the stores over these dims.
  std::vector<ValueId> reductions_of(int p) const;
  std::vector<int> stores_over(bool k, bool r) const;
  ValueId stored_value(int access) const;
  bool is_finish_store(int access) const;

  // Returns the values that `roots` are computed from inside a reduction loop, operands first.
  // Known values and values over K alone are left out.
  std::vector<ValueId> needed(const std::vector<ValueId>& roots, const Known& known) const;

  // ---- Reads

  std::string name_of(const char* prefix, int access);

  bool is_vectorized(int access) const;
  bool is_unaligned(int access) const;  // its vectors start at any element
  // Returns whether the misalignment of the access equals that of the peeled row.
  bool follows_rows(int access) const;
  bool is_streaming(int access) const { return schedule.accesses[access].streaming; }
  Place place_of(int access) const {
    return stagings[access] ? stagings[access]->place : Place::Reload;
  }
  bool has_shape(int access, StagingShape shape) const {
    return stagings[access] && stagings[access]->shape == shape;
  }
  bool stays(int access) const;

  // Returns the array of a read value's elements: of one step, or of all unrolled steps.
  int plain_array(int access, bool all_steps);

  // Loads the lanes of one step into the access's array of elements.
  void load_step(Body& body, int access, const Known& known, bool all_steps);

  // Unrolls a step. `reads` of a pair of steps precede both.
  Body unrolled(Body body, Body reads = {});
  // Returns whether rows in shared memory are traversed by a loop that is not fully unrolled.
  bool rolled() const { return serial_var >= 0 && serial_unroll > 0; }
  Body stepped(Body body);
  static void append(Body& to, Body from);

  // Returns the position of the thread's elements of a row in shared memory. Only the copying
  // thread reads them, so no barrier is needed.
  Expr shared_element(int access, Expr step_of_stage);

  // Returns the elements of a row that this block of the cluster holds in shared memory.
  Expr row_elements();
  bool grows();                      // the row length is known only at launch
  std::vector<int> before_of;        // by access: rows of its own dtype in front of its row
  Expr elements_before(int access);  // elements of these rows

  void declare_places();

  // Copies one row into shared memory; `row` is as for row_at().
  Body copies(Expr row, Expr step_of_stage, const Known& known);
  Body first_copies();
  Body next_copies();
  // Returns the expression with the row variables replaced by `row`.
  Expr at_row(Expr e, Expr row);

  // Reads over K alone in a persistent loop: the values of the next row are loaded while the
  // current row is processed.
  std::vector<int> next_of;  // by access: array, or -1
  Body read_ahead(Expr row);
  void declare_ahead();

  bool has_copies() const;

  // ---- Packed rows

  // Rows of a block that pass through shared memory together, as packed rows or by staging tiles.
  int rows_per_thread = 1;  // rows that a thread processes in sequence
  bool has_tile() const { return packed || staged; }
  Expr row_of_block();
  void take_tile();
  // first element of the block's packed rows, and number of elements that exist
  Expr packed_start = nullptr, packed_count = nullptr;
  // Groups of unrolled steps in which this thread has elements of its row, and remaining steps.
  Expr own_groups = nullptr, own_rest = nullptr;
  using AtPlace = std::function<void(Body&, Expr at, Expr in)>;
  bool crosses(int access) const;
  std::vector<int> places_to_take() const;
  Expr packed_element(int access);
  PackedPosition packed_position(int access, Expr at, Expr in, int width);
  Body along_packed(int width, const AtPlace& whole, const AtPlace& rest);
  void move_packed(Body& body, int access, const PackedPosition& place);
  Body packed_in();
  Body packed_out();
  Expr spread_row();
  void place_packed();
  Body own_steps(const ReductionLoop& w);

  // ---- Staging tiles of uncoalesced accesses

  Expr tile_element(int access, Expr row, Expr run, Expr chunk, Expr lane);
  Expr staged_element(int access);
  std::vector<int> prefetch_of;  // by access: buffer of the tile that is prefetched, or -1
  StagingCopy moves_of(int access, Expr tile_of_rows);
  void declare_prefetch();
  Expr tile_at(Expr turn);
  Body copy_tiles(Expr turn);
  Body stage_tile(int access);
  Body stage_tiles(bool stores);
  Body tiles_in();
  Body tiles_out();

  // ---- Values

  // Computes value v in the present scope. Emits the load of a loaded coordinate's read, and names
  // every other result.
  void compute(ValueId v, Known& known, Body& body, Expr lane);

  // Returns a field of a reduction's combined result.
  Expr result(ValueId reduced, int field, Expr lane);

  // Emits make(body, lane, known) for each lane.
  void for_lanes(Body& body, const Known& known,
                 const std::function<void(Body&, Expr lane, Known&)>& make);

  // Computes the values over K alone, and over no axes, that are first known in phase p.
  void between_loops(Body& body, int p, Known& known);

  // ---- Reduction loops

  void accumulate(Body& body, ValueId v, Expr lane, const Known& known);
  // Assigns an access's stored value to its array of outputs.
  void assign_output(Body& body, int access, Expr lane, const Known& known);

  // Emits the reduction loop of a phase. Values that are kept for later phases become known in
  // `outer`.
  void nest(Body& out, int phase, Known& outer);
  // Returns the sums of a loop whose chains of additions must be bounded.
  std::vector<ValueId> long_sums(const ReductionLoop& w) const;
  Body merged(const std::vector<ValueId>& sums, bool into_total);
  std::vector<int> total_of;  // by value: array of the totals of a long sum
  ReductionLoop reduction_loop_of(int phase, Known& outer);
  // Emits the reads of all steps first, so that they are in flight together. `beside`: reads of a
  // pair of steps.
  Body reads(const ReductionLoop& w, bool beside);
  // Turns raw vectors into elements. Masked vectors along K are loaded here lane by lane.
  void unpack(Body& body, const ReductionLoop& w, const Known& known);
  // Emits one step: unpack, compute, accumulate and store.
  Body step(const ReductionLoop& w);
  Body steps(const ReductionLoop& w);
  // Emits the unrolled steps of columns twice: without masks if all steps exist, else with masks.
  Body steps_of_columns(ReductionLoop& w);

  // Returns whether v stays in registers from the first phase that computes it to the last.
  bool is_kept(ValueId v) const;
  void keep(Body& body, ValueId v, Expr lane, Expr value);

  // Emits a step under its mask: without per-lane masks if the whole vector exists, else lane by
  // lane at the end of columns. `extent`: elements that must exist from the step's first element on
  // for the vector to be whole.
  Body existing(const std::function<Body()>& step, int extent);
  Body by_shift(const std::function<Body()>& step);
  Expr all_steps_in(bool shifts);

  // Stores the lanes of an output; `owner` selects the storing thread.
  void store(Body& body, int access, const Known& known, Expr owner);

  // Returns whether the register arrays are so large that the compiler would spill a few bytes to
  // fit one more resident block. Blocks with fewer registers in total should still share an SM. A
  // kernel that spills is compiled once more (fuser/runtime/toolchain.py).
  bool is_crowded() const;

  // ---- Reductions over threads and blocks

  int slot_index = 0;
  int arrivals = -1, places_of_arrival = 0;  // barriers in shared memory for data from other blocks
                                             // of the cluster
  void combine(Body& body, const std::vector<ValueId>& reduced, Expr parity);

  // Returns whether threads along Y (ThreadY) share a column and hold one element each.
  bool across_rows() const;

  // ---- Reductions over R by several blocks: the last block of a tile finishes.

  void last_block(Body& body, const std::vector<ValueId>& reduced, const Known& start);

  // Combines states without folding lanes first: the entries are merged already.
  void combine_states(Body& body, const std::vector<ValueId>& reduced);

  Expr tiles_along_k();

  // Stores outputs over K alone: one thread of each row or column stores.
  void store_kept(Body& body, const Known& known);

  // ---- Rows of a persistent block

  Expr stage_step();

  void compute_row(Body& body);

  // Emits the persistent loop over rows, with prefetched copies.
  void rows_loop();
  Body before_rows();
  // Returns whether a thread processes several rows in sequence.
  bool takes_rows() const { return row_var >= 0 || tile_var >= 0; }
  Expr row_at();

  // ---- Reductions over K: every block writes a partial result for each column. After a grid
  // barrier, each block merges some of the columns over all blocks in order.

  int columns_per_merge() const;
  void finish_columns();
  std::vector<int> write_columns(const std::vector<ValueId>& reduced);
  void merge_blocks(Body& body, const std::vector<ValueId>& reduced,
                    const std::vector<int>& partials, Expr column, Expr y, Known& known);
  void store_columns(Body& body, Expr column, Expr owner, Known& known);

  void build();
};

}  // namespace fuser::reduction
