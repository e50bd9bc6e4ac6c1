// Building a Fusion: one function per tensor op, with its shape and dtype rules.
//
// Every function appends one tensor and returns it; a broken rule raises ShapeError, DTypeError or
// UserError and leaves the Fusion as it was. `location` is the user's source line, for messages.
#pragma once

#include <span>
#include <string>
#include <utility>

#include "ir/fusion.h"

namespace fuser {

// The common dtype of these operands as torch promotes them: tensors with dims decide within a
// category over 0-dim tensors, and those over scalars.
DType promoted_dtype(std::span<const Operand> operands);
// The dtype in which torch computes on them: that one, half types widened to float32.
DType common_dtype(std::span<const Operand> operands);

// shape: -1 symbolic, otherwise the static size (1 broadcasts).
const Tensor* define_tensor(Fusion& fusion, std::span<const int64_t> shape, DType dtype,
                            Input input, std::string location);
Expr define_scalar(Fusion& fusion, DType dtype);

// Seed and offset for the next `ops` random ops, which follow each other at distances of 4.
std::pair<Expr, Expr> take_random(Fusion& fusion, int64_t ops);

const Tensor* pointwise(Fusion& fusion, Op op, std::span<const Operand> args, std::string location);
// The same op on scalars only.
Expr pointwise_scalar(Fusion& fusion, Op op, std::span<const Expr> args);
const Tensor* cast(Fusion& fusion, const Tensor* arg, DType dtype, std::string location);
const Tensor* full(Fusion& fusion, std::span<const Expr> shape, Expr value, DType dtype,
                   std::string location);
const Tensor* broadcast(Fusion& fusion, const Tensor* arg, std::vector<bool> is_broadcast,
                        std::string location);
// shape[d] nullptr or -1 keeps the size; a dim of size 1 may grow.
const Tensor* expand(Fusion& fusion, const Tensor* arg, std::span<const Expr> shape,
                     std::string location);
const Tensor* broadcast_in_dim(Fusion& fusion, const Tensor* arg, std::span<const Expr> shape,
                               std::span<const int64_t> broadcast_dims, std::string location);
const Tensor* squeeze(Fusion& fusion, const Tensor* arg, std::span<const int64_t> dims,
                      bool squeeze_expanded, std::string location);
const Tensor* permute(Fusion& fusion, const Tensor* arg, std::span<const int64_t> dims,
                      std::string location);
const Tensor* stride_order(Fusion& fusion, const Tensor* arg, std::span<const int64_t> order,
                           std::string location);

// The extent of a dim as later statements may use it. Where sizes that are not known meet, a tensor
// is given the name of one of them; should that one turn out to be 1, the other is the extent. So
// such an extent is named after the tensor (Symbol::Extent) until rebuild() (fusion/rebuild.h)
// knows.
Expr extent(Fusion& fusion, const Tensor* tensor, int dim);

// The elements of `dims` (negative: from the end; at least one, none twice) as one, in the dtype
// that torch gives: integers and bool are summed and multiplied in int64, half types in float32. A
// tensor of the kept dims. `identity`: see Reduction.
const Tensor* reduce(Fusion& fusion, ReduceOp op, const Tensor* arg, std::span<const int64_t> dims,
                     bool identity, std::string location);
// The same, where `arg` is computed from what was reduced over some of the dims before: over these
// first, then over the others. The loss of a batch takes in rows that are normalized: a kernel that
// has the row for its statistics sums it too, where one that reduces all would read it again.
const Tensor* reduce_in_turn(Fusion& fusion, ReduceOp op, const Tensor* arg,
                             std::span<const int64_t> dims, bool identity, std::string location);
// Result 1, 2, ... of a reduction or library op of several, with the tensor that is its result 0.
const Tensor* result(Fusion& fusion, const Tensor* of, int index, std::string location);
// 0, 1, ..., length - 1 in int64.
const Tensor* iota(Fusion& fusion, Expr length, std::string location);
const Tensor* take_along_axis(Fusion& fusion, const Tensor* arg, const Tensor* index, int64_t dim,
                              bool same_sizes, std::string location);
// A dim as two of these sizes; one of them nullptr or -1 is what the other leaves.
const Tensor* split_dim(Fusion& fusion, const Tensor* arg, int64_t dim, Expr outer, Expr inner,
                        std::string location);
// Dims dim and dim + 1 as one. size: a better name for its extent, or nullptr or -1.
const Tensor* merge_dims(Fusion& fusion, const Tensor* arg, int64_t dim, Expr size,
                         std::string location);

// Elements starts[d], starts[d] + steps[d], ... before ends[d] of each dim, bounds clamped as torch
// does.
const Tensor* slice(Fusion& fusion, const Tensor* arg, std::span<const Expr> starts,
                    std::span<const Expr> ends, std::span<const int64_t> steps,
                    std::string location);
const Tensor* flip(Fusion& fusion, const Tensor* arg, std::span<const int64_t> dims,
                   std::string location);
const Tensor* pad(Fusion& fusion, const Tensor* arg, std::span<const Expr> before,
                  std::span<const Expr> after, Expr value, std::string location);
const Tensor* cat(Fusion& fusion, std::span<const Tensor* const> args, int64_t dim,
                  std::string location);

// The result of a library call on these tensors, with the attributes of the op's row. `given` holds
// by attribute the scalar input that replaces it, or nullptr; it is empty if there is none.
const Tensor* library(Fusion& fusion, LibraryOp op, std::span<const Tensor* const> args,
                      std::span<const int64_t> attributes, std::vector<Expr> given,
                      std::string location);
// The shape of a further result (1, 2, ...) of the library op that gives `call`.
std::vector<Expr> result_shape(Fusion& fusion, const Tensor& call, int result);

// `alias`: the input that is written. If several outputs are written into one input, the last one
// counts; a result that is one of them is that input's memory.
void add_output(Fusion& fusion, const Tensor* tensor, int alias = -1);
// Raises unless an output may be written into the input; sizes that only a run knows become rules.
void require_alias(Fusion& fusion, const Tensor& tensor, int alias);
// The last output that is written into the input, nullptr without one.
const Tensor* written_into(const Fusion& fusion, int input);
// The input that the tensor is, or is written into (the last of them); -1: none.
int input_of(const Fusion& fusion, const Tensor& tensor);

// The ShapeError "reduce-empty-1" of a rule of Fusion::nonempty that does not hold.
[[noreturn]] void raise_empty(const NonEmpty& rule);

}  // namespace fuser
