// Refined axes: the one index analysis. Coordinates belong to accesses, not to tensors.
//
// Going from outputs to inputs, each output gets fresh axes and every op rewrites the coordinates
// of its operands: permute reorders them, broadcast drops them, an expanded dim reads coordinate 0.
// A value is what is computed at one coordinate tuple: `x - x.T` reads the two values x(i, j) and
// x(j, i). Movement ops leave no value behind.
//
// Two outputs come to share axes (and so a kernel) only where that is offered by a tensor that both
// read, their extents are equal by structure and no coordinate tuple gets one axis twice. A
// rejected offer only reads twice.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ir/fusion.h"

namespace fuser {

using AxisId = int;
using ValueId = int;
using AxisSet = uint64_t;  // torch allows 64 dims

struct Axis {
  Expr extent = nullptr;
};

// lo <= coord < hi for each bound; no bounds: always.
struct Pred {
  struct Bound {
    Expr coord, lo, hi;
  };
  std::vector<Bound> bounds;
};

// One operand of a value, or one store: a value where `in` holds, `otherwise` elsewhere. A scalar
// operand has no value and `otherwise` alone.
struct Access {
  ValueId value = -1;
  Pred in;
  Expr otherwise = nullptr;
};

struct Read {};  // from the memory of the value's tensor
struct Apply {
  Op op{};
  DType compute{};
  std::vector<Access> args;
};
struct Convert {
  Access arg;
};
struct Uniform {  // a scalar, the same at every coordinate
  Expr scalar = nullptr;
};

struct Value {
  const Tensor* tensor = nullptr;
  std::vector<Expr> at;  // one coordinate per dim of the tensor
  DType dtype{};
  std::variant<Read, Apply, Convert, Uniform> how;
  AxisSet axes = 0;  // what it varies over
};

struct Store {
  int output = 0;  // index into Fusion::outputs
  Access access;
  std::vector<Expr> at;
};

// One kernel's worth of values over one list of axes; operands stand before their users.
struct Refined {
  Exprs exprs;
  std::vector<Axis> axes;
  std::vector<Value> values;
  std::vector<Store> stores;
};

// The mul that each add or sub takes up as an fma, by tensor id (-1: none); see contract.cpp.
std::vector<int> contract(const Fusion& fusion);

// Tensors, by id, that reach memory only as floats of 16 bits or fewer; see narrow.cpp.
std::vector<bool> ends_narrow(const Fusion& fusion);

// The outputs of the fusion, grouped by what shares an iteration space, in output order. Raises
// Unsupported
// ("kernel-size-1") for a single output that takes more statements than a kernel holds.
std::vector<Refined> refine(const Fusion& fusion);

// A kernel has at most this many values, and reads and writes at most this many tensors.
inline constexpr int max_values = 512;
inline constexpr int max_buffers = 96;

// The coordinate as a linear form of the axes: coefficients by axis and a rest free of axes, or
// nothing ("irregular").
struct Linear {
  std::vector<Expr> coefficients;  // by axis
  Expr rest = nullptr;
};
std::optional<Linear> linear(Exprs& exprs, Expr coordinate, int axes);

// THE address function: offset of coordinates `at` in a tensor with these strides, as a linear form
// of the axes. Width, coalescing, collapsing, bytes and hazards all ask it.
std::optional<Linear> strides(Exprs& exprs, const std::vector<Expr>& at,
                              const std::vector<Expr>& tensor_strides, int axes);

}  // namespace fuser
