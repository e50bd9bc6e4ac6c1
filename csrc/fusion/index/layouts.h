// Memory layouts of results, op by op as torch has them. No other file defines layouts.
//
// | op | layout of its result |
// |---|---|
// | elementwise, cast, flip | the first operand that orders two dims decides which is outer |
// | permute, slice, expand, squeeze, broadcast, reshapes that can be views | operand's layout |
// | cat, pad (and so roll) | row-major, or channels-last if all operands are |
// | cat along a dim that broadcasts made (stack) | cat along the next dim, then split |
// | reductions, take_along_axis, full, other reshapes, library calls | row-major |
// | iota | undetermined: results follow their other operands |
// | stride_order | as given, including dims of one element |
//
// All layouts are dense. Composite ops (softmax, triu) follow the ops that they are made of.
#pragma once

#include <vector>

#include "fusion/kernel/problem.h"

namespace fuser::fusion {

// Returns the layouts of the results for inputs of these layouts. Views, in-place outputs and
// temporaries are not included.
OutputOrders result_orders(const ir::Fusion& fusion, const std::vector<LayoutClass>& layouts);

// Returns the order of `axes` in memory, outermost first, by torch's rule for elementwise results.
// For two axes the first teller that knows both decides which is outer; if no teller knows both,
// `logical` decides. A teller holds, by axis, a rank that is larger for outer axes, or -1 for
// unknown.
std::vector<int> memory_order(int axes, const std::vector<int>& logical,
                              const std::vector<std::vector<int>>& tellers);

// Rank by dim of a tensor: larger for outer dims. -1 if it is unknown, because the dim has one
// element or its elements share an address.
using Ranks = std::vector<int>;

Ranks row_major_ranks(int rank);
// Returns the layout of the result of a loop over the elements of these operands, as torch
// allocates it.
Ranks elementwise_ranks(const ir::Tensor& t, const std::vector<Ranks>& tellers);
// Returns the layout after a dim is split into two adjacent dims.
Ranks split_ranks(int64_t dim, const Ranks& of);

// Returns the dims of a row-major layout, outermost first.
std::vector<int> row_major(int rank);
// Returns the strides of a dense layout whose dims have this order, outermost first.
std::vector<ir::Expr> dense_strides(ir::Exprs& exprs, const std::vector<ir::Expr>& extents,
                                    const std::vector<int>& order);

}  // namespace fuser::fusion
