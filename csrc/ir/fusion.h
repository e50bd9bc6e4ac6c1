// A Fusion says what is computed: an immutable graph of tensors with symbolic extents.
//
// Tensors live in the Fusion's arena in creation order, which is a topological order; they have
// identity. Each one carries its definition, one of a closed set of structs (tensor_ops.def), so
// that a forgotten kind is a compile error. The functions that build a Fusion, with their shape and
// dtype rules, are in fusion/define.h.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ir/expr.h"
#include "ir/library.h"
#include "ir/reductions.h"

namespace fuser {

struct Tensor;

// A tensor, or a scalar expression; exactly one is set.
struct Operand {
  const Tensor* tensor = nullptr;
  Expr scalar = nullptr;
};

struct Input {
  int index = 0;  // among the tensor inputs
  // What the definition promised; the layout that counts is found from the strides given at run
  // time.
  std::vector<std::optional<bool>> contiguity;
  std::vector<int64_t> stride_order;
  bool is_cpu = false;
};
struct Pointwise {
  Op op{};
  DType compute{};  // operands are converted to it before the op
  std::vector<Operand> args;
};
struct Cast {
  const Tensor* arg = nullptr;
};
struct Full {
  Expr value = nullptr;
};
struct Broadcast {  // new dims of size 1 where is_broadcast
  const Tensor* arg = nullptr;
  std::vector<bool> is_broadcast;
};
struct Expand {  // dims of size 1 grow; costs nothing
  const Tensor* arg = nullptr;
  std::vector<Expr> shape;  // as wanted; -1 keeps the size of arg
};
struct Squeeze {
  const Tensor* arg = nullptr;
  std::vector<int64_t> dims;      // sorted
  bool squeeze_expanded = false;  // dims of any size: their element 0
};
struct Permute {  // dim d of the result is dim dims[d] of arg
  const Tensor* arg = nullptr;
  std::vector<int64_t> dims;
};
struct StrideOrder {  // the same values; an output of it is laid out in this order (0 = innermost)
  const Tensor* arg = nullptr;
  std::vector<int64_t> order;
};
struct Reduction {  // drops `dims`; the tensor is result 0
  ReduceOp op{};
  DType compute{};  // arg is converted to it; the dtype of the partial results
  const Tensor* arg = nullptr;
  std::vector<int64_t> dims;  // sorted, not empty; any of size 1 among them
  // For max, min, argmax and argmin, which torch refuses over no elements: false, a run with such a
  // dim of size 0 is an error (Fusion::nonempty); true, they give the least (greatest) number, at
  // 0.
  bool identity = false;
};
struct Result {  // a further result of a reduction or library op of several
  const Tensor* of = nullptr;
  int index = 1;
};
struct Iota {};  // of one dim, int64: the coordinate itself
// Where the result has coordinates at, the element of arg at those with coordinate `dim` replaced
// by the value of index, which wraps once if negative. In dim the result has the size of index; in
// the others arg and index broadcast (coordinate 0 along a size of 1), or with same_sizes those of
// index count, which are no larger.
struct TakeAlongAxis {
  const Tensor* arg = nullptr;
  const Tensor* index = nullptr;
  int64_t dim = 0;
  bool same_sizes = false;
};
struct SplitDim {  // dim becomes two, dim and dim + 1: i is (i / inner, i % inner), inner the
                   // second's
                   // size
  const Tensor* arg = nullptr;
  int64_t dim = 0;
  std::vector<Expr>
      sizes;  // outer and inner as wanted; one of them may be -1: what the other leaves
};
struct MergeDims {  // dims dim and dim + 1 become one: (o, i) is o * inner + i
  const Tensor* arg = nullptr;
  int64_t dim = 0;
  Expr size = nullptr;  // as wanted; -1: the product
};

struct Slice {  // element i of a dim is element first + i * step of arg
  const Tensor* arg = nullptr;
  std::vector<Expr> starts, ends;  // as wanted: negative ones count from the end
  std::vector<int64_t> steps;
  std::vector<Expr> first;  // starts in range
};
struct Flip {  // these dims backwards
  const Tensor* arg = nullptr;
  std::vector<int64_t> dims;  // sorted
};
struct Pad {  // `value` before and after arg; negative widths remove elements
  const Tensor* arg = nullptr;
  std::vector<Expr> before, after;  // by dim
  Expr value = nullptr;
};
struct Cat {  // one after the other along dim
  std::vector<const Tensor*> args;
  int64_t dim = 0;
};

// Computed by a library between kernels: operands and results lie in memory. The tensor is result
// 0.
struct Library {
  LibraryOp op{};
  std::vector<const Tensor*> args;
  std::vector<int64_t> attributes;  // as the row names them
  std::vector<Expr> given;          // by attribute: the scalar that it is, or nullptr for a number
};

using Definition = std::variant<
#define FUSER_TENSOR_OP(name, text) name,
#include "ir/tensor_ops.def"
#undef FUSER_TENSOR_OP
    std::monostate>;

struct Tensor {
  int id = 0;  // creation order: "t<id>"
  DType dtype{};
  std::vector<Expr> shape;
  Definition definition;
  std::string location;   // the user's line that defined it: "train.py:41", or empty
  std::string composite;  // what recorded it among other statements: "softmax_fwd", or empty

  int rank() const { return static_cast<int>(shape.size()); }
};

struct ScalarInput {
  DType dtype{};
  Expr symbol = nullptr;  // Symbol::Scalar
};

// What each run takes from torch's generator: two scalar inputs that no argument fills. Random op k
// of the definition stands at offset + 4 * k, where the next op of torch's would.
struct RandomState {
  int seed = -1, offset = -1;  // among the scalars; -1: the definition takes none
  int64_t ops = 0;             // the run advances the generator as so many of torch's ops do
};

struct Output {
  const Tensor* tensor = nullptr;
  int alias = -1;     // tensor input that is overwritten with it, or -1: a result
  bool temp = false;  // handed from one step to another, not to the caller
  bool view = false;  // a view of an input: nobody stores it
  int input = -1;     // of a result that is written into this input as well: it is that memory
  bool superseded = false;  // a later output is written into the same input
};

// Two extents that must be equal, found while the graph was built and checked against concrete
// sizes.
struct Constraint {
  struct Law {
    const char* rule = "broadcast-1";
    const char* broken = "operands do not broadcast";
    const char* expected = "equal, or one of them 1";
  };
  Expr left = nullptr, right = nullptr;
  std::string op;  // "add(t0, t1)"
  int axis = 0;
  const Tensor *left_tensor = nullptr, *right_tensor = nullptr;
  // The dim of the side's tensor, where it may turn out to be 1 and broadcast: specialize() with it
  // among the units. -1: it may not.
  int left_dim = -1, right_dim = -1;
  Law law{};
};

// An extent that must not be 0, checked against concrete sizes: raise_empty() of fusion/define.h.
struct NonEmpty {
  Expr extent = nullptr;
  std::string op;  // "max(t0, dims=[1])"
  int axis = 0;    // of the tensor
  const Tensor* tensor = nullptr;
};

// A scalar of the run that an op takes as one of a narrower integer type.
struct Narrowed {
  int scalar = -1;
  DType dtype = DType::Int64;
  bool unsigned_wraps = true;  // as rules::check_value has it
  std::string op;              // "where(s0, t0)"
};

// One argument of execute(), in definition order.
struct Argument {
  bool is_tensor = true;
  int index = 0;  // into inputs or scalars
};

struct Fusion {
  Exprs exprs;
  std::string composite;  // of the statements that are being recorded, for names of kernels
  std::deque<Tensor> tensors;
  std::vector<const Tensor*> inputs;
  std::vector<ScalarInput> scalars;
  std::vector<Argument> arguments;
  RandomState random;
  std::vector<Output> outputs;
  std::vector<Constraint> constraints;
  std::vector<NonEmpty> nonempty;
  std::vector<Narrowed> narrowed;

  Fusion() = default;
  Fusion(Fusion&&) = default;
  Fusion& operator=(Fusion&&) = default;
};

// The tensors a definition reads, in operand order.
std::vector<const Tensor*> operands(const Tensor& tensor);
// Where a library computes the tensor: result 0 of that call; nullptr elsewhere.
const Tensor* library_call(const Tensor& tensor);

// Runnable Python that rebuilds the definition: a function `nvfuser_fusion(fd)`; the bug report.
std::string to_python(const Fusion& fusion);
// The structure as canonical bytes: equal for two fusions exactly when they compute the same by the
// same ops in the same order. Locations do not count.
std::string structure(const Fusion& fusion);

// The scalars that stand in the text of a tensor's definition, in order; other extents follow from
// the operands.
std::vector<Expr> written_scalars(const Tensor& tensor);

// "float32[128, size(t0, 1)]".
std::string describe(const Tensor& tensor);

}  // namespace fuser
