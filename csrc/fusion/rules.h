// What the shape rules of define*.cpp share: appending a tensor, the broadcast rule, and the words
// of their messages.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/fusion.h"

namespace fuser::rules {

// Dims of a tensor, as many as torch's own ops take: a set of them is the bits of a word.
inline constexpr size_t max_rank = 64;

// Unsupported `rank-1` beyond that.
const Tensor* append(Fusion& fusion, DType dtype, std::vector<Expr> shape, Definition definition,
                     std::string location);

// "t0: float32[2, 3]  defined at train.py:41".
std::string where(const Tensor& t);
// "add(t0, 2)".
std::string call(std::string_view op, std::span<const Operand> args);
// A line `where` for each tensor, each after a newline.
std::string lines(std::span<const Operand> args);

// The dim counted from the front, or ShapeError `rule`: "<what>: dim 2 is out of range ...". It is
// one of a result that has `more` dims than `arg`.
int64_t dim_of(const std::string& what, std::string_view rule, const Tensor& arg, int64_t dim,
               int more = 0);

// `what` takes `value` as one of `dtype`: DTypeError `cast-1` for a complex value of a real type,
// `scalar-fits-1` for a constant integer that the type does not hold. A negative constant of an
// unsigned type wraps, as in torch, unless it is none of its elements.
void check_value(const std::string& what, Expr value, DType dtype, bool unsigned_wraps = true);
// The same, in each run where only that knows the integer.
void check_value(Fusion& fusion, const std::string& what, Expr value, DType dtype,
                 bool unsigned_wraps = true);
// The integer that a run has for such a scalar.
void check_narrowed(const Narrowed& rule, int64_t value);

// "s0 + 1", or "truediv(s0, 2) of type float32, ..." where a size is no integer.
std::string size_text(Expr size);

// To be checked when it runs. Its op is named with what it is a part of: "reshape():
// merge_dims(t0)".
void require(Fusion& fusion, Constraint constraint);
// The same of one tensor: what it has along `axis` against what the op `what` makes of it.
void require(Fusion& fusion, const std::string& what, const Tensor* arg, int64_t axis, Expr has,
             Expr wanted, Constraint::Law law);

// The parts of a dim that is split have its elements.
inline constexpr Constraint::Law split_law = {.rule = "split-dim-3",
                                              .broken = "the sizes have another product",
                                              .expected = "as many elements as before"};

// The first dim of this size, or -1.
int dim_of_size(const Tensor* t, Expr size);

// What an operand has along the axis of a result.
struct Side {
  Expr extent = nullptr;
  const Tensor* tensor = nullptr;
};
// The axis of the result of op(args) that two operands meet on; for messages.
struct ResultAxis {
  std::string_view op;
  std::span<const Operand> args;
  int axis = 0;
};
// The extent there, by the broadcast rule; what only a run can tell becomes one of `constraints`.
Expr meet(const ResultAxis& at, const Side& left, const Side& right,
          std::vector<Constraint>& constraints);

}  // namespace fuser::rules
