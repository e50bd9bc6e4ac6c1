// Kernel IR: one kernel as loops over registers, loads, arithmetic and stores.
//
// lower() builds it from a Schedule and turns it, pass by pass (lower/passes.h), into what codegen
// prints without decisions. Statements have identity and order; expressions belong to the kernel's
// own arena. The text of a kernel (ir/print.cpp) parses back (ir/parse.cpp), so that every pass is
// tested as before / after.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ir/expr.h"
#include "ir/reductions.h"

namespace fuser {

// A partial result of a reduction: reductions.def says what it looks like.
struct State {
  ReduceOp op{};
  bool operator==(const State&) const = default;
};

// Memory, as the kernel sees it. Those of the problem come first and in its order.
struct Buffer {
  enum class Kind : uint8_t {
    Tensor,     // of an input, an output or a temporary between kernels
    Workspace,  // `elements` of scratch for one launch, uninitialized
    Counters,   // `elements` of uint32 that are 0 before and after every launch
    Shared,     // `elements` of the block's shared memory; those whose number is no constant all
                // start where the others end
  };
  std::string name;  // "g_in0", "g_out0", "s_in0"
  DType dtype{};
  bool read = false, written = false;
  bool restrict_ = true;  // no other buffer overlaps it
  Kind kind = Kind::Tensor;
  std::optional<State> state;  // its elements are partial results computed in dtype
  Expr elements = nullptr;     // but of a Tensor
};

int element_bytes(const Buffer& buffer);

// What the kernel is given beside its buffers, in this order.
struct Param {
  enum class Kind : uint8_t {
    Int,      // value, an integer expression of sizes and strides
    Divisor,  // the same, as a number to divide by (device/integer.cuh: FastDiv)
    Real,     // the same as a float, or 1 / it if `inverse`
    Scalar,   // scalar input `index`, converted to dtype
    Drawn,    // the same, and what lies where the launch says, added: inside a CUDA graph
    Value,    // the one element of tensor input `index`, a CPU tensor, by value
  };
  Kind kind{};
  DType dtype = DType::Int64;  // Int, Divisor: Int32 where offsets are 32-bit
  Expr value = nullptr;        // Int, Divisor: over Symbol::Size, Stride, Scalar
  int index = 0;               // Scalar, Drawn, Value
  bool inverse = false;        // Real
};

// A register array; extent 1 prints as a plain variable.
struct Array {
  std::string name;  // "r_in0"
  DType dtype{};
  int extent = 1;
  std::optional<State> state;  // its elements are partial results computed in dtype
  // > 0: held as loaded, in `extent` chunks of so many elements; read by Unpack alone, and the
  // element of a Load, which has no count, counts chunks.
  int chunk = 0;
};

// A run of axes walked by one linear index. Only between `loops` and `addresses`.
struct LinearAxes {
  std::vector<int> axes;      // outermost first
  std::vector<Expr> extents;  // of the axes
  Expr index = nullptr;       // of lane 0
  bool vector = false;        // lane v is index + v
  bool whole = false;         // lanes never cross the last axis: its extent is a multiple of theirs
};

struct Stmt;
using Body = std::vector<Stmt>;

struct Let {  // const v<var> = value
  int var = 0;
  Expr value = nullptr;
  bool index =
      false;  // an offset or coordinate, kept in the kernel's index type; else of value's dtype
};
// array[element + k] = buffer[offset + k] for k < width. Where `in` is false or k >= count, zeros
// are read.
struct Load {
  int array = 0;
  Expr element = nullptr;
  int width = 1;
  int buffer = 0;
  Expr offset = nullptr;
  Expr in = nullptr;     // bool, or nullptr: always
  Expr count = nullptr;  // number of elements that exist, may be <= 0 or > width; nullptr: all
  // The offset is no multiple of width; the buffer is aligned. What lies in the two vectors around
  // the elements that exist is read whole.
  bool shifted = false;
  int words = -1;     // of a shift: whole 32-bit words, where they are known
  bool once = false;  // into chunks; nothing else reads it, and it takes no place in L1
  // Elements along rows: the first is `column` elements into a row of `columns`; where a row ends,
  // the next element lies `jump` further on. nullptr: all are neighbours.
  Expr column = nullptr, columns = nullptr, jump = nullptr;
};
struct Assign {  // array[element] = value
  int array = 0;
  Expr element = nullptr;
  Expr value = nullptr;
};
// buffer[offset + k] = array[element + k] for k < width, where `in` holds and k < count.
struct Write {
  int array = 0;
  Expr element = nullptr;
  int width = 1;
  int buffer = 0;
  Expr offset = nullptr;
  Expr in = nullptr;
  Expr count = nullptr;
  bool once = false;  // it takes no place in L1
  Expr column = nullptr, columns = nullptr, jump = nullptr;
};
struct For {  // v<var> = 0 .. extent - 1, fully unrolled: it indexes registers
  int var = 0;
  int extent = 1;
  Body body;
};
struct Serial {  // v<var> = 0 .. extent - 1; the extent is the same for all threads of the block
  int var = 0;
  Expr extent = nullptr;
  int unroll = 0;  // iterations that the compiler may put side by side; 0: its choice
  Body body;
};
struct If {
  Expr condition = nullptr;
  bool uniform = false;  // the same for all threads of the block; else no collective stands inside
  Body body;
};
struct Barrier {};  // every thread of the block arrives

// Partial results. `array` has a state.
struct Reset {  // every element becomes the identity
  int array = 0;
};
struct Accumulate {  // array[element] takes in one element of the reduction, where `in` holds
  int array = 0;
  Expr element = nullptr;
  std::vector<Expr> values;  // the reduction's operands; of a sum also two, whose product it is
  Expr in = nullptr;
};
struct AccumulateAll {  // array[k % its extent] takes in values[k]; the states hold equally many
  int array = 0;
  int values = 0;
  int positions = -1;  // of the values, where the reduction takes them
};
struct Merge {  // array[element] = merge(array[element], other[other_element])
  int array = 0;
  Expr element = nullptr;
  int other = 0;
  Expr other_element = nullptr;
};
struct Fold {  // array[0] = all of its elements, pairwise
  int array = 0;
};
// array[0] of each array becomes the merge over a group of `lanes` neighbouring threads (a power
// of two up to the block, or all of it), and over the blocks of the cluster where that is more than
// one: of all threads then. All of them get the result; every thread of the block arrives. Beyond a
// warp, slots[i] is Shared memory of one state per warp that nothing reads or writes between this
// point and the next barrier; in a cluster cluster_slots[i], of one per warp of all its blocks,
// takes its place. There each block waits for what the others send to arrive, at arrivals[arrival].
struct Combine {
  std::vector<int> arrays;
  int lanes = 1;
  std::vector<int> slots, cluster_slots;
  Expr parity =
      nullptr;  // 0 or 1: which half of doubled slots, inside a Serial loop; nullptr: not doubled
  int arrivals = -1;
  Expr arrival = nullptr;
  Expr turn = nullptr;  // how often it was waited at before, modulo 2
};
// Words of 4 bytes in which a partial result is sent to the blocks of a cluster; one that is
// smaller has a whole one.
constexpr int least_sent_bytes = 4;
// Every element of each array becomes the merge over the `rows` threads that lie `columns` threads
// apart; rows * columns is the block. All get the result. slots[i]: Shared, extent * block states.
struct CombineRows {
  std::vector<int> arrays;
  int rows = 1, columns = 1;
  std::vector<int> slots;
};
// v<var> (bool, the same for all threads of the block): the last of `count` blocks to arrive at
// counters[index]. What the others wrote before is visible to it.
struct Last {
  int var = 0;
  int counters = 0;
  Expr index = nullptr;
  Expr count = nullptr;
  int slot = 0;  // Shared: one uint32
};
// Asynchronous copy of `width` elements, 16 bytes at most, from a Tensor to Shared memory; zeros
// where `in` is false. Only the thread that asked may read them, after its Wait.
struct Copy {
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
// In debug builds of the host executor a fault unless -extent <= index < extent, where `in` holds;
// elsewhere nothing. It stands before a load that addresses by the index.
struct Check {
  Expr index = nullptr, extent = nullptr, in = nullptr;
  int number = 0;  // into KernelIR::checked
};
struct Commit {};  // closes a group of this thread's copies
struct Wait {      // until at most `pending` groups of this thread are under way
  int pending = 0;
};
struct SyncCluster {  // every thread of the cluster arrives; all have when the wait is over
  enum class Part : uint8_t { Arrive, Wait };
  Part part{};
  int arrivals = -1;  // Arrive: Shared int64, all of which may be waited at after the Wait
};
struct SyncGrid {    // every thread of the grid arrives (cooperative)
  int counters = 0;  // three of them
};

struct Stmt {
  std::variant<Let, Load, Assign, Write, For, Serial, If, Barrier, Reset, Accumulate, AccumulateAll,
               Merge, Fold, Combine, CombineRows, Last, Copy, Unpack, Check, Commit, Wait,
               SyncCluster, SyncGrid>
      node;
};

struct KernelIR {
  std::string name;
  int threads = 256;     // per block
  int min_blocks = 0;    // resident per processor, 0: the compiler's choice
  bool index64 = false;  // offsets and coordinates are 64-bit
  std::vector<Buffer> buffers;
  std::vector<Param> params;
  std::vector<Array> arrays;
  std::vector<LinearAxes> axes;
  int vars = 0;              // variables numbered so far
  Expr blocks = nullptr;     // of the grid
  int cluster = 1;           // blocks of a cluster; divides `blocks`
  bool cooperative = false;  // all blocks are resident at once
  Body body;
  Exprs exprs;
  Images imported;  // expressions of the problem that have been copied, while it is built

  bool collectives() const;          // threads meet: the host executor needs fibers
  int shared_bytes() const;          // dynamic shared memory of a block, of a constant size
  std::vector<std::string> checked;  // whose index a Check is about, for people; in no text
  Expr shared_rows = nullptr;        // bytes behind it, known at the launch; nullptr: none
  // Bytes of the parameter block of a launch.
  int argument_bytes() const;
};

// Calls f(Stmt&) for every statement, outer before inner.
void visit(Body& body, const std::function<void(Stmt&)>& f);
void visit(const Body& body, const std::function<void(const Stmt&)>& f);
// The statements inside a statement, or nullptr.
Body* inner_body(Stmt& stmt);
const Body* inner_body(const Stmt& stmt);
// The variable that a statement defines, or -1.
int defined_var(const Stmt& stmt);
void set_defined_var(Stmt& stmt, int var);
// Do threads meet in it?
bool is_collective(const Stmt& stmt);
// The fields of a statement that are index arithmetic: the value of an index Let, offsets,
// predicates, counts, trip counts. And the others: values, and indices of register arrays.
std::vector<Expr*> index_fields(Stmt& stmt);
std::vector<Expr*> value_fields(Stmt& stmt);
// Replaces every expression of the kernel's statements by f(e) (nullptr entries are skipped).
void map_expressions(Body& body, const std::function<Expr(Expr)>& f);

// The expressions of one statement, those of a loop's body not included; none is nullptr.
std::vector<Expr> expressions(const Stmt& stmt);
// One more than the highest number of a variable that statements and axes mention.
int named_vars(const KernelIR& kernel);

// "kernel pointwise_add threads 256 ..." (grammar at the top of parse.cpp).
std::string to_text(const KernelIR& kernel);
// One line; a loop without its body. Also of statements that verify() refuses.
std::string to_text(const KernelIR& kernel, const Stmt& stmt);
// Raises UserError "parse-1" with line and column.
KernelIR parse_kernel(std::string_view text);
// Raises InternalError naming the statement: variables defined before use and in scope, array
// bounds of constant indices, widths, dtypes of assignments, collectives convergent, one dtype rule
// per op.
void verify(const KernelIR& kernel);

}  // namespace fuser
