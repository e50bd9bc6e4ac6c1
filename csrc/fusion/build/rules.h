// Functions shared by the shape rules in define*.cpp: appending a tensor, the broadcast rule, and
// parts of error messages.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/fusion.h"

namespace fuser::fusion::rules {

// Returns the tensor of type `compute` that `t` was rounded from, if the rounding was exact; else
// `t`.
const ir::Tensor* unrounded(const ir::Tensor* t, ir::DType compute);

// Limit on the dims of a tensor, equal to torch's: a set of dims is the bits of a word.
inline constexpr size_t max_rank = 64;

// Appends a tensor. Raises Unsupported `rank-1` if it has more than max_rank dims.
const ir::Tensor* append(ir::Fusion& fusion, ir::DType dtype, std::vector<ir::Expr> shape,
                         ir::Definition definition, std::string location);

// "t0: float32[2, 3]  defined at train.py:41".
std::string where(const ir::Tensor& t);
// "add(t0, 2)".
std::string call(std::string_view op, std::span<const ir::Operand> args);
// Returns one line per tensor operand as where() prints it, each after a newline.
std::string lines(std::span<const ir::Operand> args);

// Returns the dim counted from the front. Raises ShapeError `rule` if it is out of range:
// "permute(t0): dim 2 is out of range ...". The dim is of a result that has `more` dims than `arg`.
int64_t dim_of(const std::string& what, std::string_view rule, const ir::Tensor& arg, int64_t dim,
               int more = 0);

// Checks a scalar that an op converts to `dtype`. Raises DTypeError `cast-1` for a complex value of
// a real type, and `scalar-fits-1` for a constant integer that the type cannot hold. With
// `unsigned_wraps`, negative constants of an unsigned type wrap, as in torch.
void check_value(const std::string& what, ir::Expr value, ir::DType dtype,
                 bool unsigned_wraps = true);
// Checks the scalar likewise, but in every execution if its integer is unknown until then.
void check_value(ir::Fusion& fusion, const std::string& what, ir::Expr value, ir::DType dtype,
                 bool unsigned_wraps = true);
// Checks the integer of a narrowed scalar in an execution.
void check_narrowed(const ir::Narrowed& rule, int64_t value);

// "s0 + 1", or "truediv(s0, 2) of type float32, ..." if a size is not an integer.
std::string size_text(ir::Expr size);

// Checks that there is one argument for each dim of `arg`: "expected 2 strides ..., got 3".
void check_count(const std::string& what, const char* rule, const ir::Tensor& arg, size_t count,
                 const char* of);
// Returns the scalar as int64. Raises DTypeError `rule` if it is not an integer.
ir::Expr integer(ir::Fusion& fusion, const std::string& what, const char* rule, ir::Expr e);
// Checks that the size is an integer that is not known to be negative.
void check_size(const std::string& what, const char* rule, ir::Expr size);
// Returns a permutation of 0..rank-1; negative dims count from the end. Raises ShapeError
// `permute-1`.
std::vector<int64_t> permutation(std::string_view op, const ir::Tensor& arg,
                                 std::span<const int64_t> dims);

// Registers a rule that executions check. The op is named with its composite: "reshape():
// merge_dims(t0)".
void require(ir::Fusion& fusion, ir::Constraint constraint);
// Registers a rule for one tensor: its extent along `axis` against the extent that the op assumes.
void require(ir::Fusion& fusion, const std::string& what, const ir::Tensor* arg, int64_t axis,
             ir::Expr has, ir::Expr wanted, ir::Constraint::Law law);

// Rule of a split: the product of the new sizes equals the old size.
inline constexpr ir::Constraint::Law split_law = {.rule = "split-dim-3",
                                                  .broken = "the product of the sizes differs",
                                                  .expected = "an equal number of elements"};

// Returns the first dim of this size, or -1.
int dim_of_size(const ir::Tensor* t, ir::Expr size);

// The extent of one operand along an axis of the result.
struct Side {
  ir::Expr extent = nullptr;
  const ir::Tensor* tensor = nullptr;
};
// An axis of the result of op(args) along which two operands meet; for messages.
struct ResultAxis {
  std::string_view op;
  std::span<const ir::Operand> args;
  int axis = 0;
};
// Returns the extent of that axis by the broadcast rule. If only an execution can decide, appends a
// rule to `constraints`.
ir::Expr meet(const ResultAxis& at, const Side& left, const Side& right,
              std::vector<ir::Constraint>& constraints);

}  // namespace fuser::fusion::rules
