// Kernel IR: one kernel as register loops, loads, arithmetic and stores.
//
// lower() builds it from a Schedule, and compiler passes (lower/passes.h) bring it into a form that
// codegen prints without decisions. Statements have identity and order; expressions belong to the
// kernel's own arena. The text of a kernel (ir/print.cpp) parses back (ir/parse.cpp), so that every
// pass is tested by texts before and after it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ir/cache_policy.h"
#include "ir/expr.h"
#include "ir/reductions.h"

namespace fuser::ir {

// Partial result of a reduction; reductions.def lists its fields.
struct State {
  ReduceOp op{};
  bool operator==(const State&) const = default;
};

// Memory as the kernel sees it. The problem's buffers come first, in the problem's order.
struct Buffer {
  enum class Kind : uint8_t {
    Tensor,     // memory of an input, an output or a temporary
    Workspace,  // `elements` of scratch for one launch, uninitialized
    Counters,   // `elements` of uint32 that are 0 before and after every launch
    Shared,     // `elements` of the block's shared memory. Buffers whose size is not constant all
                // start behind the constant-sized buffers.
  };
  std::string name;  // "g_in0", "g_out0", "s_in0"
  DType dtype{};
  bool read = false, written = false;
  bool restrict_ = true;  // no other buffer overlaps it
  Kind kind = Kind::Tensor;
  std::optional<State> state;  // elements are partial results computed in dtype
  Expr elements = nullptr;     // number of elements; nullptr for a Tensor
};

int element_bytes(const Buffer& buffer);

// Kernel parameter besides the buffers, in launch order.
struct Param {
  enum class Kind : uint8_t {
    Int,        // value of an integer expression of sizes and strides
    Divisor,    // Int as a divisor (device/fast_div.cuh: FastDiv)
    Real,       // Int as a float, or 1 / it if `inverse`
    Scalar,     // scalar input `index`, converted to dtype
    RngOffset,  // scalar input `index`, plus a number that a CUDA graph reads from GPU memory at
                // each replay
    Value,      // the one element of tensor input `index`, a CPU tensor, by value
  };
  Kind kind{};
  DType dtype = DType::Int64;  // Int, Divisor: Int32 if offsets are 32-bit
  Expr value = nullptr;        // Int, Divisor, Real: over Symbol::Size, Stride, Scalar
  int index = 0;               // Scalar, Drawn, Value
  bool inverse = false;        // Real
};

// Register array; extent 1 prints as a plain variable.
struct Array {
  std::string name;  // "r_in0"
  DType dtype{};
  int extent = 1;
  std::optional<State> state;  // elements are partial results computed in dtype
  // > 0: elements per chunk of a raw array, which holds `extent` chunks as loaded. Only Unpack
  // reads it. The `element` of a Load into it counts chunks, and that Load has no count.
  int chunk = 0;
};

// Axes with one linear index. Exists only between a builder and addresses().
struct LinearAxes {
  std::vector<int> axes;      // outermost first
  std::vector<Expr> extents;  // extents of the axes
  Expr index = nullptr;       // linear index of lane 0
  bool vector = false;        // lane v is index + v
  bool whole = false;  // lanes never cross the last axis: its extent is a multiple of the vector
                       // length
};

struct Stmt;
using Body = std::vector<Stmt>;

struct Let {  // const v<var> = value
  int var = 0;
  Expr value = nullptr;
  bool index = false;  // an offset or coordinate in the kernel's index type; else of value's dtype
};
// array[element + k] = buffer[offset + k] for k < width. If `in` is false or k >= count, then the
// element is 0.
struct Load {
  int array = 0;
  Expr element = nullptr;
  int width = 1;
  int buffer = 0;
  Expr offset = nullptr;
  Expr in = nullptr;     // mask; nullptr: always
  Expr count = nullptr;  // number of elements that exist, may be <= 0 or > width; nullptr: all
  // Unaligned access: the offset is no multiple of width, but the buffer is aligned. The two
  // aligned vectors around the existing elements are read whole.
  bool unaligned = false;
  int words = -1;       // misalignment in 32-bit words if it is a constant, else -1
  CachePolicy cache{};  // of a load of whole chunks
  // Elements along rows: the first is `column` elements into a row of `columns`. At the end of a
  // row the offset advances by `jump` more. nullptr: all elements are neighbours.
  Expr column = nullptr, columns = nullptr, jump = nullptr;
};
struct Assign {  // array[element] = value
  int array = 0;
  Expr element = nullptr;
  Expr value = nullptr;
};
// buffer[offset + k] = array[element + k] for k < width, if `in` holds and k < count.
struct Write {
  int array = 0;
  Expr element = nullptr;
  int width = 1;
  int buffer = 0;
  Expr offset = nullptr;
  Expr in = nullptr;
  Expr count = nullptr;
  CachePolicy cache{};  // of a vector; on GPUs of one without a count
  Expr column = nullptr, columns = nullptr, jump = nullptr;
};
struct For {  // v<var> = 0 .. extent - 1, fully unrolled: it indexes registers
  int var = 0;
  int extent = 1;
  Body body;
};
struct Serial {  // v<var> = 0 .. extent - 1; the extent is uniform across the block
  int var = 0;
  Expr extent = nullptr;
  int unroll = 0;  // unroll factor for the compiler; 0: its choice
  Body body;
};
struct If {
  Expr condition = nullptr;
  bool uniform = false;  // uniform across the block; else the body contains no collective
  Body body;
};
struct Barrier {};  // every thread of the block arrives

// Statements on partial results; `array` has a state.
struct InitState {  // every element becomes the identity
  int array = 0;
};
struct Accumulate {  // array[element] takes in one element of the reduction, if `in` holds
  int array = 0;
  Expr element = nullptr;
  std::vector<Expr> values;  // the reduction's operands; for a sum also the two factors of a
                             // product
  Expr in = nullptr;
};
struct AccumulateAll {  // array[k % its extent] takes in values[k]; every state takes in equally
                        // many elements
  int array = 0;
  int values = 0;
  int positions = -1;  // array of the values' positions, if the reduction takes positions
};
struct Merge {  // array[element] = merge(array[element], other[other_element])
  int array = 0;
  Expr element = nullptr;
  int other = 0;
  Expr other_element = nullptr;
};
struct ThreadReduce {  // array[0] = merge of all elements, pairwise
  int array = 0;
};
// array[0] = merge of other[0] over all threads of the block, in a fixed tree. CPU kernels alone
// have it: their threads are the lanes of a vector.
struct LaneReduce {
  int array = 0, other = 0;
};
// Element k of thread l and element l of thread k change places. The array has as many elements as
// the block has threads. CPU kernels alone have it.
struct LaneTranspose {
  int array = 0;
};
// array[0] of each array becomes the merge over groups of `group` neighbouring threads. `lanes` is
// a power of two up to the block size, or the block size itself. In a cluster array[0] is the merge
// over all threads of all its blocks. Every thread of the group gets the result; every thread of
// the block arrives.
//
// slots[i] is Shared memory with one state per warp, used if a group exceeds a warp. No other
// statement accesses it between this statement and the next barrier. In a cluster, cluster_slots[i]
// takes its place, with one state per warp of all its blocks. Each block then waits at
// arrivals[arrival] until the states of the other blocks have arrived.
struct BlockReduce {
  std::vector<int> arrays;
  int group = 1;
  std::vector<int> slots, cluster_slots;
  Expr parity =
      nullptr;  // 0 or 1: which half of doubled slots, inside a Serial loop; nullptr: not doubled
  int arrivals = -1;
  Expr arrival = nullptr;
  Expr turn = nullptr;  // number of earlier waits at that arrival, modulo 2
};
// Minimum bytes of a partial result that is sent to another block of a cluster: states are sent in
// words of 4 bytes, and a smaller state takes a whole word.
constexpr int least_sent_bytes = 4;
// Every element of each array becomes the merge over the `rows` threads that are `columns` threads
// apart. threads_y * threads_x is the block size. All these threads get the result. slots[i]:
// Shared, extent * block size states.
struct BlockReduceColumns {
  std::vector<int> arrays;
  int threads_y = 1, threads_x = 1;
  std::vector<int> slots;
};
// v<var> is true in all threads of the last of `count` blocks to arrive at counters[index]. Earlier
// writes of the other blocks are visible to that block.
struct IsLastBlock {
  int var = 0;
  int counters = 0;
  Expr index = nullptr;
  Expr count = nullptr;
  int slot = 0;  // Shared: one uint32
};
// Asynchronous copy of `width` elements, at most 16 bytes, from a Tensor to Shared memory; zeros if
// `in` is false. Only the issuing thread may read them, after its Wait.
struct AsyncCopy {
  int shared = 0;
  Expr element = nullptr;
  int width = 1;
  int buffer = 0;
  Expr offset = nullptr;
  Expr in = nullptr;
};
struct Unpack {  // array = the elements of chunk `chunk` of a raw array
  int array = 0;
  int raw = 0;
  Expr chunk = nullptr;
};
// Raises an error in CPU kernels and debug builds unless -extent <= index < extent, if `in` holds.
// GPU kernels ignore it. It precedes a load that uses the index.
struct AssertIndex {
  Expr index = nullptr, extent = nullptr, in = nullptr;
  int number = 0;  // index into KernelIR::checked
};
struct AsyncCommit {};  // closes a group of this thread's asynchronous copies
struct AsyncWait {      // waits until at most `pending` groups of this thread are in flight
  int pending = 0;
};
struct SyncCluster {  // every thread of the cluster arrives; all have arrived when the wait ends
  enum class Part : uint8_t { Arrive, Wait };
  Part part{};
  int arrivals = -1;  // Arrive: Shared int64 barriers that become usable after the Wait
};
struct SyncGrid {    // every thread of the grid arrives (cooperative)
  int counters = 0;  // three counters
};

struct Stmt {
  std::variant<Let, Load, Assign, Write, For, Serial, If, Barrier, InitState, Accumulate,
               AccumulateAll, Merge, ThreadReduce, BlockReduce, BlockReduceColumns, IsLastBlock,
               AsyncCopy, Unpack, AssertIndex, AsyncCommit, AsyncWait, SyncCluster, SyncGrid,
               LaneReduce, LaneTranspose>
      node;
};

struct KernelIR {
  std::string name;
  int threads = 256;     // threads per block
  int min_blocks = 0;    // resident blocks per SM that the compiler must allow; 0: its choice
  bool index64 = false;  // offsets and coordinates are 64-bit
  std::vector<Buffer> buffers;
  std::vector<Param> params;
  std::vector<Array> arrays;
  std::vector<LinearAxes> axes;
  int vars = 0;              // number of variables so far
  Expr blocks = nullptr;     // blocks of the grid
  int cluster = 1;           // blocks per cluster; divides `blocks`
  bool cooperative = false;  // all blocks are resident at once
  Body body;
  Exprs exprs;
  Images imported;  // images of the problem's expressions, while the kernel is built

  bool collectives() const;  // the kernel has collectives: the host executor needs fibers
  int shared_bytes() const;  // dynamic shared memory of constant-sized buffers, in bytes per block
  std::vector<std::string> checked;  // operand descriptions for the errors of Check; not part of
                                     // the text
  Expr shared_rows = nullptr;  // bytes of shared memory behind these, known at launch; nullptr:
                               // none
  // Returns the bytes of the parameter block of a launch.
  int argument_bytes() const;
};

// Calls f(Stmt&) for every statement, outer before inner.
void visit(Body& body, const std::function<void(Stmt&)>& f);
void visit(const Body& body, const std::function<void(const Stmt&)>& f);
// Returns the body of a statement, or nullptr.
Body* inner_body(Stmt& stmt);
const Body* inner_body(const Stmt& stmt);
// Returns the variable that a statement defines, or -1.
int defined_var(const Stmt& stmt);
void set_defined_var(Stmt& stmt, int var);
// Returns whether threads synchronize or exchange data in the statement.
bool is_collective(const Stmt& stmt);
// Return the fields of a statement. index_fields(): index arithmetic, i.e. the value of an index
// Let, offsets, masks, counts and trip counts. value_fields(): values and indices of register
// arrays.
std::vector<Expr*> index_fields(Stmt& stmt);
std::vector<Expr*> value_fields(Stmt& stmt);
// Replaces every expression of the kernel's statements by f(e); nullptr entries are skipped.
void map_expressions(Body& body, const std::function<Expr(Expr)>& f);

// Returns the expressions of one statement without nullptr entries, and without a loop's body.
std::vector<Expr> expressions(const Stmt& stmt);
// Returns one more than the highest variable number in statements and axes.
int named_vars(const KernelIR& kernel);

// Returns "kernel pointwise_add threads 256 ..." (grammar at the top of parse.cpp).
std::string to_text(const KernelIR& kernel);
// Returns one line; a loop without its body. Accepts statements that verify() rejects.
std::string to_text(const KernelIR& kernel, const Stmt& stmt);
// Raises UserError "parse-1" with line and column.
KernelIR parse_kernel(std::string_view text);
// Raises InternalError naming the statement. Checks that variables are defined before use and in
// scope, constant indices are within array bounds, and widths and dtypes of assignments are valid.
// Also checks that collectives are convergent, and that each op follows its dtype rule.
void verify(const KernelIR& kernel);

}  // namespace fuser::ir
