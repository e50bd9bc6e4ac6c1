// Neighbouring axes as one: how far one linear index over several axes reaches.
#pragma once

#include <vector>

#include "schedulers/scheduler.h"

namespace fuser {

using Dims = std::vector<std::vector<AxisId>>;  // outermost first

// Returns the least power of two >= n, at most 2^30.
int ceil_pow2(int64_t n);

// Returns the product of the extents: in `exprs`, or in the arena of the problem.
Expr extent_of(const Problem& problem, Exprs& exprs, const std::vector<AxisId>& axes);
Expr extent_of(Problem& problem, const std::vector<AxisId>& axes);

// Returns the stride of the access in the linear index over `axes` (outermost first), or nullptr if
// its address is not linear in that index.
Expr coefficient(const Problem& problem, const MemoryAccess& access,
                 const std::vector<AxisId>& axes);

// Returns the offset of a linear access if all axes except `axes` are 0, in `exprs`.
Expr offset_along(Exprs& exprs, const MemoryAccess& access, const std::vector<AxisId>& axes);

// Groups neighbouring `axes` that every access of `accesses` can address by one linear index.
Dims collapse(const Problem& problem, const std::vector<AxisId>& axes,
              const std::vector<const MemoryAccess*>& accesses);
std::vector<const MemoryAccess*> all_accesses(const Problem& problem);

// The kept axes K and the reduced axes R, in memory order.
std::vector<AxisId> kept_axes(const Problem& problem);
std::vector<AxisId> reduced_axes(const Problem& problem);

}  // namespace fuser
