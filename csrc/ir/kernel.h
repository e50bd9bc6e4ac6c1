// Kernel IR: one kernel as loops over registers, loads, arithmetic and stores.
//
// lower() builds it from a Schedule and turns it, pass by pass (lower/passes.h), into what codegen
// prints without decisions. Statements have identity and order; expressions belong to the kernel's
// own arena. The text of a kernel (ir/print.cpp) parses back (ir/parse.cpp), so that every pass is
// tested as before / after.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "ir/expr.h"

namespace fuser {

// Memory of a tensor, as the kernel sees it.
struct Buffer {
  std::string name;  // "g_in0", "g_out0"
  DType dtype{};
  bool read = false, written = false;
  bool restrict_ = true;  // no other buffer overlaps it
};

// What the kernel is given beside its buffers, in this order.
struct Param {
  enum class Kind : uint8_t {
    Int,      // value, an integer expression of sizes and strides
    Divisor,  // the same, as a number to divide by (device/integer.cuh: FastDiv)
    Scalar,   // scalar input `index`, converted to dtype
    Value,    // the one element of tensor input `index`, a CPU tensor, by value
  };
  Kind kind{};
  DType dtype = DType::Int64;  // Int, Divisor: Int32 where offsets are 32-bit
  Expr value = nullptr;        // Int, Divisor: over Symbol::Size, Stride, Scalar
  int index = 0;               // Scalar, Value
};

// A register array; extent 1 prints as a plain variable.
struct Array {
  std::string name;  // "r_in0"
  DType dtype{};
  int extent = 1;
};

// A run of axes walked by one linear index. Only between `loops` and `addresses`.
struct LinearAxes {
  std::vector<int> axes;      // outermost first
  std::vector<Expr> extents;  // of the axes
  Expr index = nullptr;       // of lane 0
  bool vector = false;        // lane v is index + v
};

struct Stmt;
using Body = std::vector<Stmt>;

struct Let {  // const v<var> = value
  int var = 0;
  Expr value = nullptr;
  bool index =
      false;  // an offset or coordinate, kept in the kernel's index type; else of value's dtype
};
// array[element + k] = buffer[offset + k] for k < width. Where `in` is false, or k >= count, zeros
// are read.
struct Load {
  int array = 0;
  Expr element = nullptr;
  int width = 1;
  int buffer = 0;
  Expr offset = nullptr;
  Expr in = nullptr;     // bool, or nullptr: always
  Expr count = nullptr;  // number of elements that exist, may be <= 0 or > width; nullptr: all
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
  Expr column = nullptr, columns = nullptr, jump = nullptr;
};
struct For {  // v<var> = 0 .. extent - 1, fully unrolled: it indexes registers
  int var = 0;
  int extent = 1;
  Body body;
};
struct Barrier {};  // every thread of the block arrives

struct Stmt {
  std::variant<Let, Load, Assign, Write, For, Barrier> node;
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
  int vars = 0;         // variables numbered so far
  Expr work = nullptr;  // items, one per thread: the grid is ceil(work / threads)
  Body body;
  Exprs exprs;

  bool collectives() const;  // has a Barrier: the host executor needs fibers
  // Bytes of the parameter block of a launch.
  int argument_bytes() const;
};

// Calls f(Stmt&) for every statement, outer before inner.
void visit(Body& body, const std::function<void(Stmt&)>& f);
void visit(const Body& body, const std::function<void(const Stmt&)>& f);
// The fields of a statement that are index arithmetic: the value of an index Let, offsets,
// predicates, counts.
std::vector<Expr*> index_fields(Stmt& stmt);
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
