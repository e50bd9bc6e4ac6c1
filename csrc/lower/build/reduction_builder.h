// Builder of kernels with reductions. reduction.cpp has its overview and the tables of its steps:
// of the kernel, of a phase, of a reduction loop, of an unrolled step and of a lane. A file holds
// the functions of one kind of step.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fusion/kernel/reduction_phases.h"
#include "lower/build/builder_state.h"
#include "lower/passes.h"
#include "schedule/device.h"

namespace fuser::lower::reduction {

enum { K, R };

using Known = std::vector<ir::Expr>;  // expression by value: set while it is in scope, else nullptr

// Mask and element count under which an access or an element exists.
struct Mask {
  ir::Expr in = nullptr, count = nullptr;
};

// Position in the packed rows of a block.
struct PackedPosition {
  ir::Expr offset = nullptr, shared = nullptr;  // offset in its buffer, and in the buffer in shared
                                                // memory
  ir::Expr in = nullptr;                        // mask
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
  ir::Expr run = nullptr, column = nullptr;
  ir::Expr first = nullptr;                 // first row of the vector in the tile
  ir::Expr steps = nullptr;                 // trip count
  ir::Expr in = nullptr, offset = nullptr;  // mask and offset in the tensor
  ir::Expr place = nullptr;                 // position in the buffer of prefetched tiles
};

// A phase of a row: `index` of the phases before are complete.
struct Phase {
  int index = 0;
  ir::Body& body;
  Known& known;
};

// A reduction loop: the reductions and stores of its phase, and how it reads.
struct ReductionLoop {
  int phase = 0;
  Known& outer;   // expressions known before the loop
  ir::Body& out;  // body that contains the loop
  std::vector<fusion::ValueId> reductions{};
  std::vector<int> stores{};              // access indices
  std::vector<fusion::ValueId> wanted{};  // values that the loop computes, operands first
  std::vector<int> read{};                // accesses that are read before the steps
  std::vector<bool> all_steps{};        // by access: all unrolled steps have elements of their own
  std::vector<bool> in_pairs{};         // by access: read for two steps at a time
  ir::Body iteration{};                 // body of the loop
  bool complete = false;                // the loop is in `out` already, see own_steps()
  std::vector<fusion::ValueId> sums{};  // long sums
};

// An unrolled step of a reduction loop, and a lane of it.
struct UnrolledStep {
  const ReductionLoop& loop;
  ir::Body body;
  Known known;
};
struct LaneOfStep {
  const ReductionLoop& loop;
  ir::Body& body;
  ir::Expr lane;
  Known& known;
};

struct Builder : BuilderState {
  // Stagings by access: nullptr if the access is reloaded. `packed`, `staged`: whether any has this
  // shape. `stages`: copies of rows in flight.
  std::vector<const schedule::Staging*> stagings;
  bool packed = false, staged = false, prefetches = false;
  int stages = 1;

  // Index map.
  fusion::AxisSet axes_of_dim[2] = {0, 0};
  ir::Expr extents[2] = {nullptr, nullptr};
  int vector = 1, unroll = 1;
  int lane_dim = R;
  fusion::AxisSet lane_axes = 0;     // axes that the lanes run along
  int threads_x = 1, threads_y = 1;  // threads along X and along Y: threads = rows * columns
  ir::Expr x = nullptr, y = nullptr, rank = nullptr;
  int serial_unroll = 0;  // unroll factor of the loop over a row in shared memory; 0: no loop
  int serial_var = -1, unroll_var = -1, pair_var = -1, lane_var = -1, row_var = -1;
  bool pairs = false;                                    // the unrolled steps run in pairs
  ir::Expr step_at = nullptr;                            // index of the unrolled step
  ir::Expr serial_count = nullptr, row_count = nullptr;  // trip counts, or nullptr
  ir::Expr splits = nullptr,
           split = nullptr;                  // blocks that R is split over, and index of this block
  ir::Expr tile = nullptr, tiles = nullptr;  // index of the block along K, and number of blocks
  int tile_var = -1;              // variable of the loop over staging tiles of a persistent block
  ir::Expr tile_count = nullptr;  // its trip count
  std::vector<ir::LinearAxes> index_map;

  // Peeled rows, whose length is no multiple of a vector; see peel().
  bool peeled = false;
  int reach = 1;                      // elements that must exist from a vector's first element on
  std::vector<ir::LinearAxes> edges;  // index map of the single elements outside all vectors
  ir::Expr at_edge = nullptr;         // mask of a thread's single element
  std::vector<int> edge_of;           // by access: array that holds that element, or -1
  // Misalignment of operands that all rows read, in units of 1 / `parts` of a vector: as a variable
  // (nullptr: unused), and as a constant inside a condition that fixes it (-1: outside).
  ir::Expr shift_part = nullptr;
  int part_here = -1, parts = 1;

  bool checks = true;      // false: inside a condition under which all lanes exist
  bool all_exist = false;  // inside a condition under which all lanes of all steps exist

  // Vectors by value or access.
  std::vector<bool> finish;        // by value: depends on a reduction over K
  std::vector<int> access_of;      // by value: its memory access, or -1
  std::vector<int> state_of;       // by value: array of partial results of a Reduced value
  std::vector<int> product_of;     // by value: product that a sum accumulates unrounded, or -1
  std::vector<bool> takes;         // by value: see takes_arrays()
  std::vector<int> taken_of;       // by value: array of elements that accumulate at once
  std::vector<int> positions_of;   // by value: array of their positions, if any
  std::vector<int> slots_of;       // by value: shared memory in which threads along Y combine it
  std::vector<int> kept_of;        // by value: array that holds it for later phases, or -1
  std::vector<int> array_of;       // by value over K: array with one element per lane
  std::vector<int> raw_of;         // by access: array of raw vectors, or -1
  std::vector<int> shared_of;      // by access: buffer in shared memory, or -1
  std::vector<int> elements_of;    // by access: array of elements
  std::vector<int> output_of;      // by access: array of the elements to store
  fusion::ReductionPhases phases;  // phase of each value and store

  ir::Expr both(ir::Expr a, ir::Expr b) { return lower::both(exprs(), a, b); }
  ir::Expr inside(const Mask& g, const fusion::MemoryAccess& a, const Known& known = {}) {
    return both(g.in, within(kernel, a.in, known));
  }
  ir::Expr less(ir::Expr a, ir::Expr b) { return exprs().apply(ir::Op::lt, {a, b}); }
  bool over(fusion::AxisSet axes, int dim) const { return (axes & axes_of_dim[dim]) != 0; }
  // Returns whether a value over `axes` differs between the lanes of a vector.
  bool in_lanes(fusion::AxisSet axes) const { return vector > 1 && (axes & lane_axes) != 0; }
  ir::Expr ceil_div(ir::Expr a, ir::Expr b);
  // Returns the position of a lane of the unrolled step in a register array.
  ir::Expr element(ir::Expr lane, int per_step);

  int new_shared(std::string name, ir::DType dtype, int elements,
                 std::optional<ir::State> state = {});
  int new_shared(std::string name, ir::DType dtype, ir::Expr elements,
                 std::optional<ir::State> state = {});
  int new_scratch(std::string name, ir::Buffer::Kind kind, ir::DType dtype, ir::Expr elements,
                  std::optional<ir::State> state = {});

  // ---- Index map

  ir::Expr index_let(ir::Expr value);

  // Builds the index map: the position of each thread in the iteration space, and the loops.
  void make_index_map();
  const schedule::LoopNest& nest_of_rows() const { return schedule.nests[0]; }
  const std::vector<schedule::Loop>& loops() const { return nest_of_rows().loops; }
  void take_stagings();
  void take_loops();
  ir::Expr tiles_of(int dim);
  ir::Expr blocks_of(const schedule::Loop& loop);
  // Returns the trip count of each loop. A loop without an extent covers the remainder of its dim.
  std::vector<ir::Expr> trip_counts();
  // Returns the index of each Grid loop for this block; nullptr for other loops.
  std::vector<ir::Expr> place_blocks(const std::vector<ir::Expr>& counts);
  // Sets the index of every loop that is no Grid loop.
  void index_loops(const std::vector<ir::Expr>& counts, std::vector<ir::Expr>& index);
  bool peels() const { return nest_of_rows().lanes.tail && lane_dim == R && vector > 1; }
  void peel();
  bool at_edges() const { return peeled && vector == 1; }
  ir::Body on_edges(const std::function<void(ir::Body&)>& make);
  ir::Body read_edges(const Known& known);
  bool takes_pairs() const;

  // Returns the mask of a value or access that varies over `axes`: of one lane, or of the whole
  // vector if `lane` is nullptr.
  Mask mask(fusion::AxisSet axes, ir::Expr lane);

  // Returns whether the element of a lane exists, as one condition.
  ir::Expr exists(fusion::AxisSet axes, ir::Expr lane);

  // ---- Analysis of the values

  bool reduces_columns(const fusion::Value& v) const;

  static std::vector<fusion::ValueId> operands_of(const fusion::Value& v);

  // Finds the memory access of each value and allocates the arrays of partial results.
  void analyse();

  // Returns whether a thread has one partial result for all of its lanes.
  bool takes_arrays(fusion::ValueId v);
  ir::AccumulateAll take_in(fusion::ValueId v) const {
    return {.array = state_of[v], .values = taken_of[v], .positions = positions_of[v]};
  }
  // Returns whether a partial result takes in the elements of all unrolled steps of a column at
  // once.
  bool takes_steps(fusion::ValueId v) const;
  bool ascends(ir::Expr position);

  // Finds the products that a sum accumulates unrounded: contract() marked the sum, and it is the
  // only user.
  void find_products();

  bool is_inner(fusion::ValueId v) const { return over(values()[v].axes, R); }
  bool is_reduced(fusion::ValueId v) const {
    return std::holds_alternative<fusion::Reduced>(values()[v].how);
  }

  // Return the reductions that end with phase p, and the stores over these dims.
  std::vector<fusion::ValueId> reductions_of(int p) const;
  std::vector<fusion::ValueId> row_reductions_of(int p) const;  // those over R
  std::vector<int> stores_over(bool k, bool r) const;
  fusion::ValueId stored_value(int access) const;
  bool is_finish_store(int access) const;

  // Returns the values that `roots` are computed from inside a reduction loop, operands first.
  // Known values and values over K alone are left out.
  std::vector<fusion::ValueId> needed(const std::vector<fusion::ValueId>& roots,
                                      const Known& known) const;

  // ---- Reads

  std::string name_of(const char* prefix, int access);

  bool is_vectorized(int access) const;
  bool is_unaligned(int access) const;  // its vectors start at any element
  // Returns whether the misalignment of the access equals that of the peeled row.
  bool follows_rows(int access) const;
  schedule::Place place_of(int access) const {
    return stagings[access] ? stagings[access]->place : schedule::Place::Reload;
  }
  bool has_shape(int access, schedule::StagingShape shape) const {
    return stagings[access] && stagings[access]->shape == shape;
  }
  bool stays(int access) const;

  // Returns the array of a read value's elements: of one step, or of all unrolled steps.
  int plain_array(int access, bool all_steps);

  // Loads the lanes of one step into the access's array of elements.
  void load_step(ir::Body& body, int access, const Known& known, bool all_steps);

  // Unrolls a step. `reads` of a pair of steps precede both.
  ir::Body unrolled(ir::Body body, ir::Body reads = {});
  // Returns whether rows in shared memory are traversed by a loop that is not fully unrolled.
  bool rolled() const { return serial_var >= 0 && serial_unroll > 0; }
  ir::Body stepped(ir::Body body);
  static void append(ir::Body& to, ir::Body from);

  // Returns the position of the thread's elements of a row in shared memory. Only the copying
  // thread reads them, so no barrier is needed.
  ir::Expr shared_element(int access, ir::Expr step_of_stage);

  // Returns the elements of a row that this block of the cluster holds in shared memory.
  ir::Expr row_elements();
  bool grows();                          // the row length is known only at launch
  std::vector<int> before_of;            // by access: rows of its own dtype in front of its row
  ir::Expr elements_before(int access);  // elements of these rows

  void declare_places();

  // Copies one row into shared memory; `row` is as for row_at().
  ir::Body copies(ir::Expr row, ir::Expr step_of_stage, const Known& known);
  ir::Body first_copies();
  ir::Body next_copies();
  // Returns the expression with the row variables replaced by `row`.
  ir::Expr at_row(ir::Expr e, ir::Expr row);

  // Reads over K alone in a persistent loop: the values of the next row are loaded while the
  // current row is processed.
  std::vector<int> next_of;  // by access: array, or -1
  ir::Body read_ahead(ir::Expr row);
  void declare_ahead();

  bool has_copies() const;

  // ---- Packed rows

  // Rows of a block that pass through shared memory together, as packed rows or by staging tiles.
  int rows_per_thread = 1;  // rows that a thread processes in sequence
  bool has_tile() const { return packed || staged; }
  ir::Expr row_of_block();
  void take_tile();
  // first element of the block's packed rows, and number of elements that exist
  ir::Expr packed_start = nullptr, packed_count = nullptr;
  // Groups of unrolled steps in which this thread has elements of its row, and remaining steps.
  ir::Expr own_groups = nullptr, own_rest = nullptr;
  using AtPlace = std::function<void(ir::Body&, ir::Expr at, ir::Expr in)>;
  bool crosses(int access) const;
  std::vector<int> places_to_take() const;
  ir::Expr packed_element(int access);
  PackedPosition packed_position(int access, ir::Expr at, ir::Expr in, int width);
  ir::Body along_packed(int width, const AtPlace& whole, const AtPlace& rest);
  void move_packed(ir::Body& body, int access, const PackedPosition& place);
  ir::Body packed_in();
  ir::Body packed_out();
  ir::Expr spread_row();
  void place_packed();
  ir::Body own_steps(const ReductionLoop& w);

  // ---- Staging tiles of uncoalesced accesses

  ir::Expr tile_element(int access, ir::Expr row, ir::Expr run, ir::Expr chunk, ir::Expr lane);
  ir::Expr staged_element(int access);
  std::vector<int> prefetch_of;  // by access: buffer of the tile that is prefetched, or -1
  StagingCopy moves_of(int access, ir::Expr tile_of_rows);
  void declare_prefetch();
  ir::Expr tile_at(ir::Expr turn);
  ir::Body copy_tiles(ir::Expr turn);
  ir::Body stage_tile(int access);
  ir::Body stage_tiles(bool stores);
  ir::Body tiles_in();
  ir::Body tiles_out();

  // ---- Values

  // Computes value v in the present scope. Emits the load of a loaded coordinate's read, and names
  // every other result.
  void compute(fusion::ValueId v, Known& known, ir::Body& body, ir::Expr lane);

  void find_value(const ReductionLoop& w, ir::Body& body, fusion::ValueId v, ir::Expr lane,
                  Known& known);

  // Returns a field of a reduction's combined result.
  ir::Expr result(fusion::ValueId reduced, int field, ir::Expr lane);

  // Emits make(body, lane, known) for each lane.
  void for_lanes(ir::Body& body, const Known& known,
                 const std::function<void(ir::Body&, ir::Expr lane, Known&)>& make);

  // Computes the values over K alone, and over no axes, that are first known in the phase.
  void between_loops(Phase& phase);

  // ---- Reduction loops

  void accumulate(ir::Body& body, fusion::ValueId v, ir::Expr lane, const Known& known);
  // Assigns an access's stored value to its array of outputs.
  void assign_output(ir::Body& body, int access, ir::Expr lane, const Known& known);

  // Returns the sums of a loop whose chains of additions must be bounded.
  std::vector<fusion::ValueId> long_sums(const ReductionLoop& w) const;
  ir::Body merged(const std::vector<fusion::ValueId>& sums, bool into_total);
  std::vector<int> total_of;  // by value: array of the totals of a long sum
  ReductionLoop reduction_loop_of(Phase& phase);
  // Emits the reads of all steps first, so that they are in flight together. `beside`: reads of a
  // pair of steps.
  ir::Body reads(const ReductionLoop& w, bool beside);
  // Turns raw vectors into elements. Masked vectors along K are loaded here lane by lane.
  void unpack(UnrolledStep& s);
  ir::Body step(const ReductionLoop& w);
  ir::Body steps(const ReductionLoop& w);
  // Emits the unrolled steps of columns twice: without masks if all steps exist, else with masks.
  ir::Body steps_of_columns(ReductionLoop& w);

  // Returns whether v stays in registers from the first phase that computes it to the last.
  bool is_kept(fusion::ValueId v) const;
  void keep(ir::Body& body, fusion::ValueId v, ir::Expr lane, ir::Expr value);

  // Emits a step under its mask: without per-lane masks if the whole vector exists, else lane by
  // lane at the end of columns. `extent`: elements that must exist from the step's first element on
  // for the vector to be whole.
  ir::Body existing(const std::function<ir::Body()>& step, int extent);
  ir::Body by_shift(const std::function<ir::Body()>& step);
  ir::Expr all_steps_in(bool shifts);

  // Stores the lanes of an output; `owner` selects the storing thread.
  void store(ir::Body& body, int access, const Known& known, ir::Expr owner);

  // Returns whether the register arrays are so large that the compiler would spill a few bytes to
  // fit one more resident block. Blocks with fewer registers in total should still share an SM. A
  // kernel that spills is compiled once more (fuser/runtime/toolchain.py).
  bool is_crowded() const;

  // ---- Reductions over threads and blocks

  int slot_index = 0;
  int arrivals = -1, places_of_arrival = 0;  // barriers in shared memory for data from other blocks
                                             // of the cluster
  void combine(ir::Body& body, const std::vector<fusion::ValueId>& reduced, ir::Expr parity);

  // Returns whether threads along Y (ThreadY) share a column and hold one element each.
  bool across_rows() const;

  // ---- Reductions over R by several blocks: the last block of a tile finishes.

  void last_block(ir::Body& body, const std::vector<fusion::ValueId>& reduced, const Known& start);

  // Combines states without folding lanes first: the entries are merged already.
  void combine_states(ir::Body& body, const std::vector<fusion::ValueId>& reduced);

  ir::Expr tiles_along_k();

  // Stores outputs over K alone: one thread of each row or column stores.
  void store_kept(ir::Body& body, const Known& known);

  // ---- Rows of a persistent block

  ir::Expr stage_step();

  void compute_row(ir::Body& body);

  // Emits the persistent loop over rows, with prefetched copies.
  void rows_loop();
  ir::Body before_rows();
  // Returns whether a thread processes several rows in sequence.
  bool takes_rows() const { return row_var >= 0 || tile_var >= 0; }
  ir::Expr row_at();

  // ---- Reductions over K: every block writes a partial result for each column. After a grid
  // barrier, each block merges some of the columns over all blocks in order.

  int columns_per_merge() const;
  void finish_columns();
  std::vector<int> write_columns(const std::vector<fusion::ValueId>& reduced);
  void merge_blocks(ir::Body& body, const std::vector<fusion::ValueId>& reduced,
                    const std::vector<int>& partials, ir::Expr column, ir::Expr y, Known& known);
  void store_columns(ir::Body& body, ir::Expr column, ir::Expr owner, Known& known);

  // ---- Steps that run the functions above, by the table that lists them (reduction.cpp)

  void lane_values(LaneOfStep& s);
  void accumulate_lane(LaneOfStep& s);
  void assign_outputs(LaneOfStep& s);

  void uniform_values(UnrolledStep& s);
  void emit_lanes(UnrolledStep& s);
  void take_lanes(UnrolledStep& s);
  void store_step(UnrolledStep& s);

  void init_loop(ReductionLoop& w);
  void emit_iteration(ReductionLoop& w);
  void bound_sums(ReductionLoop& w);
  void close_loop(ReductionLoop& w);
  void emit_edges(ReductionLoop& w);
  void keep_values(ReductionLoop& w);

  void first_reads(Phase& phase);
  void emit_loop(Phase& phase);
  void combine_threads(Phase& phase);
  void combine_blocks(Phase& phase);
  void store_rows(Phase& phase);

  void declare_staging();
  void init_cluster();
  void init_columns();
  void emit_rows();
  void end_cluster();
  void limit_registers();
};

}  // namespace fuser::lower::reduction
