// Construction of a Fusion: one function per tensor op, with its shape and dtype rules. The rules
// of movement ops are in fusion/movement.
//
// Every function appends one tensor and returns it. If a rule is broken it raises ShapeError,
// DTypeError or UserError and leaves the Fusion unchanged. `location` is the user's source line,
// for messages.
#pragma once

#include <span>
#include <string>
#include <utility>

#include "ir/fusion.h"

namespace fuser::fusion {

// Returns the common dtype of the operands by torch's promotion: within a category, tensors with
// dims take precedence over tensors without dims, which take precedence over scalars.
ir::DType promoted_dtype(std::span<const ir::Operand> operands);
// Returns the dtype in which torch computes: promoted_dtype() with half types widened to float32.
ir::DType common_dtype(std::span<const ir::Operand> operands);

// shape: -1 is symbolic, other values are static sizes (1 broadcasts).
const ir::Tensor* define_tensor(ir::Fusion& fusion, std::span<const int64_t> shape, ir::DType dtype,
                                ir::Input input, std::string location);
ir::Expr define_scalar(ir::Fusion& fusion, ir::DType dtype);

// Returns seed and offset for the next `ops` random ops, whose offsets are 4 apart.
std::pair<ir::Expr, ir::Expr> take_random(ir::Fusion& fusion, int64_t ops);

const ir::Tensor* pointwise(ir::Fusion& fusion, ir::Op op, std::span<const ir::Operand> args,
                            std::string location);
// Applies the op to scalars only.
ir::Expr pointwise_scalar(ir::Fusion& fusion, ir::Op op, std::span<const ir::Expr> args);
const ir::Tensor* cast(ir::Fusion& fusion, const ir::Tensor* arg, ir::DType dtype,
                       std::string location);
const ir::Tensor* full(ir::Fusion& fusion, std::span<const ir::Expr> shape, ir::Expr value,
                       ir::DType dtype, std::string location);
// Adds a movement op (ir/movement.h).
const ir::Tensor* movement(ir::Fusion& fusion, ir::Movement op, std::string location);
const ir::Tensor* broadcast_in_dim(ir::Fusion& fusion, const ir::Tensor* arg,
                                   std::span<const ir::Expr> shape,
                                   std::span<const int64_t> broadcast_dims, std::string location);

// Returns the extent of a dim for use by later statements. If a tensor's shape was named after one
// of two unknown sizes that must match, the named one may turn out to be 1 and the other the
// extent. Then the result is the symbol Symbol::Extent of the tensor, which rebuild()
// (fusion/build/rebuild.h) resolves.
ir::Expr extent(ir::Fusion& fusion, const ir::Tensor* tensor, int dim);

// Reduces `dims` to one element; negative dims count from the end. At least one dim is given, and
// no dim twice. The dtype follows torch: integers and bool are summed and multiplied in int64, half
// types in float32. The result has the kept dims. `identity`: see Reduction.
const ir::Tensor* reduce(ir::Fusion& fusion, ir::ReduceOp op, const ir::Tensor* arg,
                         std::span<const int64_t> dims, bool identity, std::string location);
// Reduces like reduce(). If `arg` depends on an earlier reduction over some of the dims, reduces
// over these dims first and over the rest afterwards. A kernel that has a normalized row on chip
// for its statistics then sums it too; one reduction over all dims would read it again.
const ir::Tensor* reduce_in_turn(ir::Fusion& fusion, ir::ReduceOp op, const ir::Tensor* arg,
                                 std::span<const int64_t> dims, bool identity,
                                 std::string location);
// Returns result 1, 2, ... of a reduction or library op with several results; `of` is its result 0.
const ir::Tensor* result(ir::Fusion& fusion, const ir::Tensor* of, int index, std::string location);
// 0, 1, ..., length - 1 in int64.
const ir::Tensor* iota(ir::Fusion& fusion, ir::Expr length, std::string location);
const ir::Tensor* take_along_axis(ir::Fusion& fusion, const ir::Tensor* arg,
                                  const ir::Tensor* index, int64_t dim, bool same_sizes,
                                  std::string location);
const ir::Tensor* pad(ir::Fusion& fusion, const ir::Tensor* arg, std::span<const ir::Expr> before,
                      std::span<const ir::Expr> after, ir::Expr value, std::string location);
const ir::Tensor* cat(ir::Fusion& fusion, std::span<const ir::Tensor* const> args, int64_t dim,
                      std::string location);

// Calls a torch library op on these tensors, with attributes in the order of its row. `given`: by
// attribute, the scalar input that supplies it, or nullptr; empty if all are constants.
const ir::Tensor* library(ir::Fusion& fusion, ir::LibraryOp op,
                          std::span<const ir::Tensor* const> args,
                          std::span<const int64_t> attributes, std::vector<ir::Expr> given,
                          std::string location);
// Returns the shape of further result `result` (1, 2, ...) of the library op whose first result is
// `call`.
std::vector<ir::Expr> result_shape(ir::Fusion& fusion, const ir::Tensor& call, int result);

// `alias`: the input to overwrite, or -1. If several outputs overwrite one input, the last one
// counts. A result that is also written into an input uses that input's memory.
void add_output(ir::Fusion& fusion, const ir::Tensor* tensor, int alias = -1);
// Raises unless the output may be written into the input. Sizes that only an execution knows become
// rules.
void require_alias(ir::Fusion& fusion, const ir::Tensor& tensor, int alias);
// Returns the tensor of the last output that is written into the input, or nullptr.
const ir::Tensor* written_into(const ir::Fusion& fusion, int input);
// Returns the input that the tensor is, or the last input that it is written into; -1 if it is no
// input.
int input_of(const ir::Fusion& fusion, const ir::Tensor& tensor);

// Raises ShapeError "reduce-empty-1" for a broken rule of Fusion::nonempty.
[[noreturn]] void raise_empty(const ir::NonEmpty& rule);

}  // namespace fuser::fusion
