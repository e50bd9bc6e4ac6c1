// Neighbouring axes as one: how far one linear index over several axes reaches.
#pragma once

#include <vector>

#include "schedulers/scheduler.h"

namespace fuser::schedulers {

using Dims = std::vector<std::vector<fusion::AxisId>>;  // outermost first

// Returns the least power of two >= n, at most 2^30.
int ceil_pow2(int64_t n);

// Returns the product of the extents: in `exprs`, or in the arena of the problem.
ir::Expr extent_of(const fusion::Problem& problem, ir::Exprs& exprs,
                   const std::vector<fusion::AxisId>& axes);
ir::Expr extent_of(fusion::Problem& problem, const std::vector<fusion::AxisId>& axes);

// Returns the stride of the access in the linear index over `axes` (outermost first), or nullptr if
// its address is not linear in that index.
ir::Expr coefficient(const fusion::Problem& problem, const fusion::MemoryAccess& access,
                     const std::vector<fusion::AxisId>& axes);

// Returns the offset of a linear access if all axes except `axes` are 0, in `exprs`.
ir::Expr offset_along(ir::Exprs& exprs, const fusion::MemoryAccess& access,
                      const std::vector<fusion::AxisId>& axes);

// Groups neighbouring `axes` that every access of `accesses` can address by one linear index.
Dims collapse(const fusion::Problem& problem, const std::vector<fusion::AxisId>& axes,
              const std::vector<const fusion::MemoryAccess*>& accesses);
std::vector<const fusion::MemoryAccess*> all_accesses(const fusion::Problem& problem);

// The kept axes K and the reduced axes R, in memory order.
std::vector<fusion::AxisId> kept_axes(const fusion::Problem& problem);
std::vector<fusion::AxisId> reduced_axes(const fusion::Problem& problem);

}  // namespace fuser::schedulers
