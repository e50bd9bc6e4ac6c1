// Choice of tensors to materialize for a kernel that cannot compute its output alone: an earlier
// kernel stores them. segment.cpp decides when. `root`: the tensor that the kernel computes.
#pragma once

#include <vector>

#include "fusion/index/kernel_builder.h"

namespace fuser::fusion {

// Returns whether the group is within 1/part of the limits of a kernel.
bool fits(const KernelBuilder& group, int part = 1);

// Returns the tensors to materialize in place of `refused`: for each of them the last and narrowest
// tensor computed from it that has equal sizes and needs no other reduction of this kernel.
std::vector<const ir::Tensor*> to_materialize(const KernelBuilder& group,
                                              const std::vector<const ir::Tensor*>& refused,
                                              const ir::Tensor* root);

// Returns dead reductions, e.g. of an index into a broadcast tensor.
std::vector<const ir::Tensor*> dead_reductions(const Refined& r);

// Returns incompatible reductions: if neither of two reduced sets is terminal, the reductions over
// the set that is farther from the output.
std::vector<const ir::Tensor*> incompatible_reductions(const KernelBuilder& group);

// Returns values that vary over fewer axes than the kernel and cost more time than their bytes; the
// kernel would compute each again along the missing axes.
std::vector<const ir::Tensor*> costly_broadcasts(KernelBuilder& group, const ir::Tensor* root);
// By tensor: True if costly_broadcasts() may find values for its kernel. Known from shapes alone.
std::vector<bool> may_repeat(const FusionGraph& graph);

// If the kernel exceeds 1/part of the limits, splits its values into ranges at the cheapest live
// sets and returns the tensors to materialize between them. Every range fits, so the work is linear
// in the number of values.
std::vector<const ir::Tensor*> over_budget(const KernelBuilder& group, const ir::Tensor* root,
                                           int part);

}  // namespace fuser::fusion
