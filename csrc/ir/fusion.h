// A Fusion: an immutable graph of tensors with symbolic extents, which specifies the computation.
//
// Tensors live in the Fusion's arena in creation order, which is a topological order; they have
// identity. Each tensor carries its definition, one of a closed set of structs (tensor_ops.def and
// movement.h).
// The functions that build a Fusion, with their shape and dtype rules, are in
// fusion/build/define.h.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ir/expr.h"
#include "ir/library.h"
#include "ir/movement.h"
#include "ir/reductions.h"

namespace fuser::ir {

struct Tensor;

// A tensor or a scalar expression; exactly one is set.
struct Operand {
  const Tensor* tensor = nullptr;
  Expr scalar = nullptr;
};

struct Input {
  int index = 0;  // index among the tensor inputs
  // Layout that the definition declares. The layout that kernels use follows from the strides at
  // run time.
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
struct Reduction {  // drops `dims`; the tensor is result 0
  ReduceOp op{};
  DType compute{};  // arg is converted to it; dtype of the partial results
  const Tensor* arg = nullptr;
  std::vector<int64_t> dims;  // sorted, not empty; may include dims of size 1
  // For reductions that select, which torch rejects for no elements. false: a reduced dim of size 0
  // is an error at run time (Fusion::nonempty). true: the result is the identity, i.e. the least or
  // greatest number, at index 0.
  bool identity = false;
};
struct Result {  // a further result of a reduction or library op with several results
  const Tensor* of = nullptr;
  int index = 1;
};
struct Iota {};  // one dim, int64: the coordinate itself
// The element of arg at the result's coordinates, with coordinate `dim` replaced by the value of
// index. A negative index wraps once. In `dim` the result has the size of index. In other dims arg
// and index broadcast (coordinate 0 along a size of 1). With same_sizes the result has the sizes of
// index, which do not exceed the sizes of arg.
struct TakeAlongAxis {
  const Tensor* arg = nullptr;
  const Tensor* index = nullptr;
  int64_t dim = 0;
  bool same_sizes = false;
};
struct Pad {  // `value` before and after arg; negative widths remove elements
  const Tensor* arg = nullptr;
  std::vector<Expr> before, after;  // by dim
  Expr value = nullptr;
};
struct Cat {  // concatenation along dim
  std::vector<const Tensor*> args;
  int64_t dim = 0;
};

// An extern op, which a torch library computes between kernels. Its operands and results are in
// memory. The tensor is result 0.
struct Library {
  LibraryOp op{};
  std::vector<const Tensor*> args;
  std::vector<int64_t> attributes;  // in the order of the row
  std::vector<Expr> given;  // by attribute: scalar that supplies it, or nullptr for a number
};

using Definition = WithMovementOps<
#define FUSER_TENSOR_OP(name, text) name,
#include "ir/tensor_ops.def"
#undef FUSER_TENSOR_OP
    std::monostate>;

// Returns the op's name in text: "define_tensor", "flip".
const char* name_of(const Definition& definition);

struct Tensor {
  int id = 0;  // creation order: "t<id>"
  DType dtype{};
  std::vector<Expr> shape;
  Definition definition;
  std::string location;   // the user's line that defined it: "train.py:41", or empty
  std::string composite;  // composite op that recorded it: "softmax_fwd", or empty

  int rank() const { return static_cast<int>(shape.size()); }
};

struct ScalarInput {
  DType dtype{};
  Expr symbol = nullptr;  // Symbol::Scalar
};

// State that each run takes from torch's generator: two scalar inputs without an argument. Random
// op k of the definition uses offset + 4 * k, like the next op of torch would.
struct RandomState {
  int seed = -1, offset = -1;  // indices among the scalars; -1: the definition has no random op
  int64_t ops = 0;             // number of torch ops by which a run advances the generator
};

struct Output {
  const Tensor* tensor = nullptr;
  int alias = -1;           // tensor input that it overwrites, or -1: a result
  bool temp = false;        // temporary: passed from one step to another, not to the caller
  bool view = false;        // a view of an input: no kernel stores it
  int input = -1;           // input that a result is also written into: the result is that memory
  bool superseded = false;  // a later output is written into the same input
};

// Two extents that must be equal, found while the graph was built and checked against concrete
// sizes.
struct Constraint {
  struct Law {
    const char* rule = "broadcast-1";
    const char* broken = "operands do not broadcast";
    const char* expected = "equal sizes, or a size of 1";
  };
  Expr left = nullptr, right = nullptr;
  std::string op;  // "add(t0, t1)"
  int axis = 0;
  const Tensor *left_tensor = nullptr, *right_tensor = nullptr;
  // Dim of the side's tensor that may turn out to be 1 and broadcast; specialize() then treats it
  // as a unit dim. -1: no such dim.
  int left_dim = -1, right_dim = -1;
  Law law{};
};

// An extent that must not be 0, checked against concrete sizes: raise_empty() of
// fusion/build/define.h.
struct NonEmpty {
  Expr extent = nullptr;
  std::string op;  // "max(t0, dims=[1])"
  int axis = 0;    // axis of the tensor
  const Tensor* tensor = nullptr;
};

// A scalar of the run that an op converts to a narrower integer type.
struct Narrowed {
  int scalar = -1;
  DType dtype = DType::Int64;
  bool unsigned_wraps = true;  // as in rules::check_value
  std::string op;              // "where(s0, t0)"
};

// One argument of execute(), in definition order.
struct Argument {
  bool is_tensor = true;
  int index = 0;  // index into inputs or scalars
};

struct Fusion {
  Exprs exprs;
  std::string composite;  // composite op that is being recorded, for names of kernels
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

// Returns the tensors that a definition reads, in operand order.
std::vector<const Tensor*> operands(const Tensor& tensor);
// Returns result 0 of the library call that computes the tensor; nullptr for other tensors.
const Tensor* library_call(const Tensor& tensor);

// Returns runnable Python that rebuilds the definition: a function `nvfuser_fusion(fd)`. Also used
// for bug reports.
std::string to_python(const Fusion& fusion);
// Returns the structure as canonical bytes, without locations. They are equal exactly if two
// fusions consist of the same ops in the same order.
std::string structure(const Fusion& fusion);

// Returns the scalars that the text of a tensor's definition contains, in order. Other extents
// follow from the operands.
std::vector<Expr> written_scalars(const Tensor& tensor);

// Returns "float32[128, size(t0, 1)]".
std::string describe(const Tensor& tensor);

}  // namespace fuser::ir
