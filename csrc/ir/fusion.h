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
  std::string location;  // the user's line that defined it: "train.py:41", or empty

  int rank() const { return static_cast<int>(shape.size()); }
};

struct ScalarInput {
  DType dtype{};
  Expr symbol = nullptr;  // Symbol::Scalar
};

struct Output {
  const Tensor* tensor = nullptr;
  int alias = -1;  // tensor input that is overwritten with it, or -1: a result
};

// Two extents that must be equal, found while the graph was built and checked against concrete
// sizes.
struct Constraint {
  Expr left = nullptr, right = nullptr;
  std::string op;  // "add(t0, t1)"
  int axis = 0;
  const Tensor *left_tensor = nullptr, *right_tensor = nullptr;
};

// One argument of execute(), in definition order.
struct Argument {
  bool is_tensor = true;
  int index = 0;  // into inputs or scalars
};

struct Fusion {
  Exprs exprs;
  std::deque<Tensor> tensors;
  std::vector<const Tensor*> inputs;
  std::vector<ScalarInput> scalars;
  std::vector<Argument> arguments;
  std::vector<Output> outputs;
  std::vector<Constraint> constraints;

  Fusion() = default;
  Fusion(Fusion&&) = default;
  Fusion& operator=(Fusion&&) = default;
};

// The tensors a definition reads, in operand order.
std::vector<const Tensor*> operands(const Tensor& tensor);

// Runnable Python that rebuilds the definition: a function `nvfuser_fusion(fd)`; the bug report.
std::string to_python(const Fusion& fusion);
// The structure as canonical bytes: equal for two fusions exactly when they compute the same by the
// same ops in the same order. Locations do not count.
std::string structure(const Fusion& fusion);

// "float32[128, size(t0, 1)]".
std::string describe(const Tensor& tensor);

}  // namespace fuser
