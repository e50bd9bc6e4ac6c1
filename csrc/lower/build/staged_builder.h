// Builder of kernels whose threads cover a tile in several stages, or cover a tile of several dims.
// staged_mapping.cpp holds the thread mapping of a stage. staged_values.cpp moves staged values
// through shared memory. staged.cpp emits the loads, arithmetic and stores of a stage.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "lower/build/builder_state.h"
#include "lower/passes.h"
#include "schedule/device.h"

namespace fuser::lower::staged {

// Mapping of the threads of a block to its tile in one stage.
struct ThreadMapping {
  std::vector<ir::LinearAxes> axes;   // index map by dim
  std::vector<ir::LinearAxes> start;  // index map of the first step, by dim
  std::vector<schedule::Loop> steps;  // Unroll loops, outer to inner
  std::vector<ir::Expr> step;         // variable of each step
  std::vector<int64_t> stride;        // elements along its dim per step
  std::vector<ir::Expr> in_tile;      // position of lane 0 in the tile, by dim
  std::vector<ir::Expr> run;  // position by dim, in units of the extent of the dim's innermost loop
  schedule::DimId lane_dim = 0;
  int lanes = 1;
  int lane_var = -1;
  bool tail = false, uniform_select = false;  // as in Lanes
  int cut = 0;  // > 0: the stage stores the elements of vectors that an end of a row cuts; vector
                // length in lanes
};

// A staged value: its elements of the tile pass through shared memory to a later stage. They are
// laid out in rows along the lanes of that later stage.
struct StagedValue {
  fusion::ValueId value = 0;
  size_t from = 0;            // stage that computes the value
  schedule::DimId along = 0;  // dim along a row of the tile in shared memory; `across` is the lane
                              // dim of stage `from`
  schedule::DimId across = 0;
  int run = 1;    // elements of one access of the later stage
  int held = 1;   // elements of such an access that one lane of `across` holds: `run`, or 1 if
                  // stores are line-aligned
  int turn = 1;   // accesses by which each row is rotated against the previous row
  int pitch = 0;  // elements from one row to the next
  int buffer = 0;
  int turned = -1;  // array of a thread's elements, ordered as the writes to shared memory need
                    // them
  int array = -1;   // array of the elements that the most recent later stage read
};

using Known = std::vector<ir::Expr>;  // expression by value: set while it is in scope, else nullptr

// Mask and element count under which an access or an element exists.
struct Mask {
  ir::Expr in = nullptr, count = nullptr;
};

// Offset of an access as a function of the lane.
using Offset = std::function<ir::Expr(ir::Expr lane)>;

// Depth at which a value is computed: before the loops, inside the step loops, or inside the lane
// loop.
enum Depth { Outside, Step, Lane };

// A stage of the kernel: one nest of the schedule, with its statements.
struct Stage {
  size_t index = 0;
  ir::Body body{};
};

struct Builder : BuilderState {
  // Axes, extents, block index and tile extent of each dim.
  std::vector<fusion::AxisSet> axes_of_dim{};
  std::vector<ir::Expr> extents{}, block_at{};
  std::vector<int64_t> tile{};

  std::vector<ThreadMapping> mappings{};  // by stage
  std::vector<StagedValue> staged_values{};
  std::vector<int> access_of{};              // by value: its memory access, or -1
  std::vector<std::vector<int>> array_of{};  // register array, by stage and access
  std::vector<SelectLoad> select_loads{};    // pairs of reads that one load serves

  bool over(fusion::AxisSet axes, schedule::DimId dim) const {
    return (axes & axes_of_dim[dim]) != 0;
  }
  bool in_lanes(const ThreadMapping& w, fusion::AxisSet axes) const {
    return w.lanes > 1 && over(axes, w.lane_dim);
  }
  bool in_steps(const ThreadMapping& w, fusion::AxisSet axes) const {
    return std::any_of(w.steps.begin(), w.steps.end(),
                       [&](const schedule::Loop& l) { return over(axes, l.dim); });
  }

  ir::Expr index_let(ir::Body& body, ir::Expr value);

  // ---- Thread mapping of a stage

  void measure_dims();
  // Computes the tile of the block. Grid loops are equal in all stages, and the last one varies
  // fastest.
  void place_block();
  ThreadMapping make_mapping(const schedule::LoopNest& nest);
  // Sets the index of each dim for the running thread; `start` is the thread's position in its
  // first step.
  void index_axes(ThreadMapping& w, const std::vector<ir::Expr>& start);
  // Returns the elements along a dim that the step loops have advanced.
  ir::Expr stepped(const ThreadMapping& w, schedule::DimId dim);
  // Returns whether lanes start at the first memory line of each row of the tile (Dim::store_line).
  bool is_aligned(const ThreadMapping& w, schedule::DimId dim) const;
  // Returns the distance in elements from the preceding multiple of `unit` in memory to the start
  // of a row of the tile, by lane. `unit` is a power of two up to a line. Yields nullptr if rows
  // are not line-aligned.
  Offset start_behind(const ThreadMapping& w, schedule::DimId dim, int64_t unit, ir::Body& body);
  // Returns the position of the thread's first lane in its row of the tile. `start` is the distance
  // of the row's start from the preceding line, in elements.
  ir::Expr place(const ThreadMapping& w, schedule::DimId dim, ir::Expr start);
  // Returns the number of elements of a row of the tile.
  ir::Expr end_of_row(const ThreadMapping& w, schedule::DimId dim);
  // For the stage that stores the ends of rows: returns whether the thread's element is at the
  // start of a row, and its distance from that end.
  std::pair<ir::Expr, ir::Expr> from_end(const ThreadMapping& w);
  // Returns whether the element exists and no whole vector stored it. `start` is the distance of
  // the row's start from the preceding vector boundary, in elements.
  ir::Expr is_cut(const ThreadMapping& w, ir::Expr start);
  // Returns the mask of a value or access that varies over `axes`: of one lane, or of the whole
  // vector if `lane` is nullptr.
  Mask mask(const ThreadMapping& w, fusion::AxisSet axes, ir::Expr lane);
  // Returns a thread's number of elements of a value over `axes`: its lanes in all steps.
  int elements(const ThreadMapping& w, fusion::AxisSet axes) const;
  ir::Expr element(const ThreadMapping& w, fusion::AxisSet axes, ir::Expr lane);
  // Emits make(body) inside the step loops along which `axes` vary, except the loop `without`.
  void nest(const ThreadMapping& w, fusion::AxisSet axes, ir::Body& out,
            const std::function<void(ir::Body&)>& make, const schedule::Loop* without = nullptr);
  void for_lanes(const ThreadMapping& w, ir::Body& out,
                 const std::function<void(ir::Body&, ir::Expr lane)>& make);

  // ---- Memory

  // Returns the offset of an access. If `here` is given and false, then the offset starts at
  // `second` instead of `whole`.
  Offset offset(const ThreadMapping& w, ir::Expr whole, ir::Body& body, ir::Expr second = nullptr,
                ir::Expr here = nullptr);
  bool is_vectorized(const ThreadMapping& w, int access) const;
  bool is_unaligned(const ThreadMapping& w, int access) const;  // its vectors start at any element
  bool in_lanes(const ThreadMapping& w, const fusion::MemoryAccess& a) const;
  std::string name_of(const char* prefix, int access, size_t stage);
  // Returns the pair whose first read is `access` if one load can serve both. The condition must be
  // known before the step loops.
  const SelectLoad* together(const ThreadMapping& w, int access);
  // Emits the reads that the stage needs. Reads of an earlier stage with the same lane dim are
  // reused.
  void loads(Stage& stage);
  void stores(Stage& stage);
  // Emits the stores of rows whose vectors start at memory lines and wrap around in the tile.
  void store_round(size_t s, int access, ir::Body& body);
  std::vector<int> stored_by(size_t s) const;

  // ---- Shared memory

  void declare_staged_values();
  // Returns the innermost step loop along a row of the staged value. The register transpose runs
  // over it and over the lanes.
  const schedule::Loop* turned_loop(const ThreadMapping& w, const StagedValue& c) const;
  // Returns the offset of a thread's access to the tile in shared memory, by lane.
  Offset tile_offset(const ThreadMapping& w, const StagedValue& c, ir::Body& body);
  // Returns the element of the transposed register array; `within` is the position inside one
  // access.
  ir::Expr turned(const ThreadMapping& w, const StagedValue& c, ir::Expr lane, ir::Expr within);
  void wait_for_tiles(Stage& stage);
  void write_tiles(Stage& stage);
  void read_tiles(Stage& stage);
  // Returns whether stage `s` reads the staged value from shared memory.
  bool takes(size_t s, const StagedValue& c) const;

  // ---- Values

  // Returns value `v` inside the lane loop; `outside` is the body in front of that loop.
  ir::Expr compute(size_t s, fusion::ValueId v, const Known& known, ir::Body& body, ir::Expr lane,
                   ir::Body* outside);
  Depth depth(const ThreadMapping& w, fusion::AxisSet axes) const;
  void compute_stage(Stage& stage);
  // Assigns the values that leave the stage to the arrays from which they are stored.
  void assign(size_t s, ir::Body& body, const Known& known, ir::Expr lane);

  // ---- Steps of build_staged() that run the functions above

  void map_threads();
  void prepare_reads();
  void resolve_addresses(Stage& stage);
  void emit_stages();
};

}  // namespace fuser::lower::staged
