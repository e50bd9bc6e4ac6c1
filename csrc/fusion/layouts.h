// How results lie in memory: as torch's would, op by op. The one place where that is said.
//
// | op | its result is laid out |
// |---|---|
// | elementwise, cast, flip | by the first operand that tells which of two dims is outer |
// | permute, slice, expand, squeeze, broadcast, reshapes that can be views | as the operand lies |
// | cat, pad (and so roll) | row-major, or channels-last where all operands are |
// | cat along a dim that broadcasts made (stack) | as a cat along the dim behind, taken apart |
// | reductions, take_along_axis, full, other reshapes, library calls | row-major |
// | iota | tells nothing: what is made of it follows its other operands |
// | stride_order | as it says, dims of one element too |
//
// All are dense. Ops that are made of others (softmax, triu) follow what they are made of.
#pragma once

#include <vector>

#include "fusion/facts.h"

namespace fuser {

// The layouts of the results of these arguments; those that are views, in place or handed from one
// kernel to another are not among them.
OutputOrders result_orders(const Fusion& fusion, const std::vector<LayoutClass>& layouts);

// The order of `axes` in memory, outermost first, by torch's rule for elementwise results: the
// first teller that knows of two axes decides which is outer, and `logical` where none does. A
// teller is, by axis, how far out it lies (larger: outer), or -1.
std::vector<int> memory_order(int axes, const std::vector<int>& logical,
                              const std::vector<std::vector<int>>& tellers);

// The order of the dims of row-major memory, outermost first.
std::vector<int> row_major(int rank);
// The strides of dense memory whose dims lie in this order, outermost first.
std::vector<Expr> dense_strides(Exprs& exprs, const std::vector<Expr>& extents,
                                const std::vector<int>& order);

}  // namespace fuser
