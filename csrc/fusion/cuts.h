// What a kernel that cannot take an output whole reads from memory instead: the tensors that an
// earlier kernel hands over. segment.cpp says when. `root`: the tensor that the kernel is for.
#pragma once

#include <vector>

#include "fusion/group.h"

namespace fuser {

// Does it take at most this part of what one kernel holds?
bool fits(const ValueGroup& group, int part = 1);

// The tensors to hand over in place of those that are refused: what each comes to, the last and
// narrowest of what is no larger and needs nothing else that this kernel reduces.
std::vector<const Tensor*> handed_over(const ValueGroup& group,
                                       const std::vector<const Tensor*>& refused,
                                       const Tensor* root);

// Reductions that nothing comes from: those of an index into what is the same everywhere.
std::vector<const Tensor*> unused(const Refined& r);

// Of two sets of which neither is terminal: the reductions of the one farther from the output.
std::vector<const Tensor*> misfits(const ValueGroup& group);

// Where a kernel does not fit into such a part of one: the tensors that stretches of its values
// read of earlier ones, cut where they are fewest and smallest. The stretches fit, all of them: the
// work is linear in the number of values.
std::vector<const Tensor*> excess(const ValueGroup& group, const Tensor* root, int part);

}  // namespace fuser
