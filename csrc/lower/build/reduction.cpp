// Kernels with reductions. A tile of rows is traversed by one reduction loop per phase.
//
// dims[0] is K, the kept axes, and dims[1] is R, the reduced axes. Each dim is one linear index
// whose digits are the loops of the schedule. The Vector loop determines the dim along which a
// thread's lanes run. Along R, the threads of a row combine their partial results. Along K, each
// lane is a column of its own, and threads along Y combine.
//
// Values over K alone are computed between the loops, by every thread that needs them. All other
// values are rematerialized in each loop: persistent are loaded tensors and the values that the
// schedule stores.
#include "base/error.h"
#include "lower/build/reduction_builder.h"

namespace fuser::lower::reduction {

using namespace fusion;
using namespace ir;
using namespace schedule;

Expr Builder::ceil_div(Expr a, Expr b) {
  if (b->is_constant()) return exprs().ceil_div(a, b->value.integer);
  return exprs().div(exprs().add(a, exprs().sub(b, constant(1))), b);
}

int Builder::new_shared(std::string name, DType dtype, int elements, std::optional<State> state) {
  return new_shared(std::move(name), dtype, constant(elements), state);
}

int Builder::new_shared(std::string name, DType dtype, Expr elements, std::optional<State> state) {
  kernel.buffers.push_back({.name = std::move(name),
                            .dtype = dtype,
                            .read = true,
                            .written = true,
                            .kind = Buffer::Kind::Shared,
                            .state = state,
                            .elements = elements});
  return static_cast<int>(kernel.buffers.size()) - 1;
}

int Builder::new_scratch(std::string name, Buffer::Kind kind, DType dtype, Expr elements,
                         std::optional<State> state) {
  kernel.buffers.push_back({.name = std::move(name),
                            .dtype = dtype,
                            .read = true,
                            .written = true,
                            .restrict_ = false,
                            .kind = kind,
                            .state = state,
                            .elements = elements});
  return static_cast<int>(kernel.buffers.size()) - 1;
}

void Builder::declare_staging() {
  declare_places();
  declare_ahead();
  declare_prefetch();
}

void Builder::init_cluster() {
  if (kernel.cluster == 1) return;
  arrivals = new_shared("s_arrivals", DType::Int64, 0);
  kernel.body.push_back({SyncCluster{SyncCluster::Part::Arrive, arrivals}});
}

void Builder::end_cluster() {
  if (kernel.cluster > 1) kernel.buffers[arrivals].elements = constant(places_of_arrival);
}

bool Builder::is_crowded() const {
  constexpr int weighed_registers = 72, many_of_a_block = 16 << 10;
  int registers = 0;
  for (const Array& a : kernel.arrays) {
    const int bytes = a.chunk   ? a.chunk * size_of(a.dtype)
                      : a.state ? state_bytes(a.state->op, a.dtype)
                                : size_of(a.dtype);
    registers += a.extent * std::max(4, bytes) / 4;
  }
  return registers > weighed_registers && registers * schedule.launch.threads >= many_of_a_block;
}

void Builder::limit_registers() {
  if (!kernel.min_blocks) kernel.min_blocks = is_crowded();
}

namespace {

using Row = Step<Builder, Phase>;
using OfLoop = Step<Builder, ReductionLoop>;
using OfStep = Step<Builder, UnrolledStep>;
using OfLane = Step<Builder, LaneOfStep>;

// A lane of a step.
constexpr OfLane lane_steps[] = {
    {"values", &Builder::lane_values,
     "the elements of the step are in registers, values without lanes are known",
     "computes the values that differ between lanes, operands first",
     "every value of the loop is known"},
    {"accumulation", &Builder::accumulate_lane, "the operands of the loop's reductions are known",
     "takes them into the thread's partial results, or into an array of the lanes",
     "the partial results contain the lane, or the array does"},
    {"outputs", &Builder::assign_outputs, "the values of the loop's stores are known",
     "assigns them to the array of each output", "a register per lane and output"},
};

// An unrolled step of a thread.
constexpr OfStep step_steps[] = {
    {"loads", &Builder::unpack, "reads of all steps are in flight, or in shared memory",
     "turns their raw vectors into elements, and reads what each step reads by itself",
     "an array of elements per access"},
    {"uniform values", &Builder::uniform_values, "the elements are in registers",
     "computes the values that are equal in all lanes", "these values are known"},
    {"lanes", &Builder::emit_lanes, "as after uniform values",
     "runs lane_steps in a loop over lanes", "outputs, and partial results or arrays of the lanes"},
    {"accumulation of lanes", &Builder::take_lanes, "all lanes exist, and some are in an array",
     "takes the array into the partial result at once", "the partial results contain the step"},
    {"stores", &Builder::store_step, "the outputs of the step are in registers",
     "stores them to memory, or to packed rows and tiles in shared memory", "no output is pending"},
};

// A reduction loop.
constexpr OfLoop loop_steps[] = {
    {"identities", &Builder::init_loop, "the reductions, stores, values and reads of the phase",
     "initializes partial results and declares the arrays of outputs",
     "partial results of no elements"},
    {"iteration", &Builder::emit_iteration, "as after identities",
     "emits the reads of all unrolled steps, then runs step_steps for each under its mask",
     "the body of the loop, or the complete loop if the thread counts its own steps"},
    {"long sums", &Builder::bound_sums, "the body of a loop of unknown trip count",
     "adds the partial result of a float sum to a total at intervals",
     "bounded chains of additions"},
    {"loop", &Builder::close_loop, "the body of the loop",
     "puts it into a Serial loop if a row takes several iterations, and adds the totals",
     "partial results of whole vectors"},
    {"edges", &Builder::emit_edges, "peeled rows, whose ends are in registers",
     "runs step_steps on the single elements before and after the vectors",
     "partial results of all elements of the thread"},
    {"kept values", &Builder::keep_values, "values that a later loop needs are in arrays",
     "makes the arrays known outside of the loop", "later loops do not compute them again"},
};

// A phase of a row. The phase behind the last reduction loop has stores alone.
constexpr Row phase_steps[] = {
    {"values over K", &Builder::between_loops, "the results of the phases before are combined",
     "computes the values over K alone that wait for them", "these values are known in all loops"},
    {"first reads", &Builder::first_reads, "the first phase",
     "starts copies of the row to shared memory, and reads ends of rows and of the next row",
     "rows are in shared memory, or in registers"},
    {"loop", &Builder::emit_loop, "as after first reads",
     "finds the loop's reductions and stores, then runs loop_steps",
     "each thread has partial results; outputs of this phase over R are stored"},
    {"combination of threads", &Builder::combine_threads, "partial results of each thread",
     "merges those of the lanes, of a warp, of the block and of its cluster",
     "every thread of a row has the result of its block"},
    {"combination of blocks", &Builder::combine_blocks, "blocks share a row, in one phase",
     "writes their results; the last block of a tile merges them and stores what depends on them",
     "outputs over K are stored"},
    {"stores over K", &Builder::store_rows, "the last phase of a row that one block takes",
     "stores the outputs over K alone, by one thread of each row or column",
     "all outputs of the row but those of reductions over K"},
};

}  // namespace

void Builder::emit_lanes(UnrolledStep& s) {
  for_lanes(s.body, s.known, [&](Body& body, Expr lane, Known& known) {
    LaneOfStep of_lane{.loop = s.loop, .body = body, .lane = lane, .known = known};
    run_steps(*this, lane_steps, of_lane);
  });
}

Body Builder::step(const ReductionLoop& w) {
  UnrolledStep s{.loop = w, .body = {}, .known = w.outer};
  run_steps(*this, step_steps, s);
  return std::move(s.body);
}

void Builder::emit_loop(Phase& phase) {
  ReductionLoop w = reduction_loop_of(phase);
  if (!w.reductions.empty() || !w.stores.empty()) run_steps(*this, loop_steps, w);
}

void Builder::compute_row(Body& body) {
  Known known(values().size(), nullptr);
  // The last of the blocks that share a row stores what follows from it.
  const int last = splits && phases.count ? 0 : phases.count;
  for (int p = 0; p <= last; ++p) {
    Phase phase{.index = p, .body = body, .known = known};
    run_steps(*this, phase_steps, phase);
  }
}

// Emits the persistent loop over rows, with prefetched copies.
void Builder::rows_loop() {
  append(kernel.body, before_rows());
  Body body = next_copies();
  compute_row(body);
  if (kernel.cluster > 1) kernel.body.push_back({SyncCluster{SyncCluster::Part::Wait}});
  kernel.body.push_back({Serial{.var = row_var, .extent = row_count, .body = std::move(body)}});
}

void Builder::emit_rows() {
  if (has_tile())
    take_tile();
  else if (row_var >= 0)
    rows_loop();
  else
    compute_row(kernel.body);
}

}  // namespace fuser::lower::reduction

namespace fuser::lower {

using namespace fusion;
using namespace ir;
using namespace schedule;

namespace {

using reduction::Builder;

// The kernel.
constexpr Step<Builder> kernel_steps[] = {
    {"stagings", &Builder::take_stagings, "a legal schedule", "finds the staging of each access",
     "stagings by access"},
    {"index map", &Builder::make_index_map, "as after stagings",
     "makes a digit of the index of K or R of each loop",
     "the position of a thread, its loops, and the grid"},
    {"analysis", &Builder::analyse, "the index map",
     "finds the phase of each value, and declares an array per reduction",
     "phases, products that sums take in unrounded, arrays of partial results"},
    {"staging", &Builder::declare_staging, "the dtypes of accesses and the loops over a row",
     "declares shared memory and registers of persistent rows, copies and tiles",
     "the place of every staged access"},
    {"cluster", &Builder::init_cluster, "blocks of a cluster",
     "declares and arrives at its barriers", "blocks that may send data to each other"},
    {"columns", &Builder::init_columns, "arrays of the reductions over K",
     "initializes them before the loop over rows", "partial results of no rows"},
    {"rows", &Builder::emit_rows, "all memory of the kernel is declared",
     "runs phase_steps for each phase of a row, in the loops over rows and tiles",
     "outputs over rows are stored; partial results of the columns"},
    {"merge", &Builder::finish_columns, "partial results of the columns by block",
     "writes them, waits for all blocks, and merges each column in a fixed order",
     "outputs over columns are stored"},
    {"arrivals", &Builder::end_cluster, "all combinations over a cluster",
     "counts the barriers that they use", "the size of the array of barriers"},
    {"registers", &Builder::limit_registers, "all arrays of registers",
     "asks for one resident block more if the compiler would spill for it",
     "the limit of registers per thread"},
};

}  // namespace

KernelIR build_reduction(const Problem& whole, const Schedule& schedule, bool index64) {
  const Problem& problem = schedule.single_pass ? *whole.single_pass : whole;
  Builder b{{problem, schedule, declare_kernel(problem, schedule, index64)}};
  run_steps(b, kernel_steps);
  return std::move(b.kernel);
}

}  // namespace fuser::lower
