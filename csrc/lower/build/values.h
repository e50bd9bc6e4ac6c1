// Functions that all builders use: computing a value from its operands, and declaring the problem's
// memory as kernel buffers.
#pragma once

#include "fusion/kernel/problem.h"
#include "ir/kernel.h"
#include "schedule/schedule.h"

namespace fuser::lower {

// Copies `e` from the problem's arena into the kernel's arena.
ir::Expr import(ir::KernelIR& kernel, ir::Expr e);

// Declares the problem's buffers in the problem's order.
void declare_buffers(const fusion::Problem& problem, ir::KernelIR& kernel);

// Returns the expression of value `v` from its operands in `known`. Handles Apply, Convert and
// Uniform; builders handle reads, coordinates and reductions themselves.
ir::Expr arithmetic(const fusion::Problem& problem, ir::KernelIR& kernel, fusion::ValueId v,
                    const std::vector<ir::Expr>& known);
ir::Expr operand(ir::KernelIR& kernel, const fusion::Access& access,
                 const std::vector<ir::Expr>& known);

// Returns a coordinate as an int64 value: the index may have 32 bits, but its products may exceed
// them. `place` maps an expression over axes to the builder's index map.
ir::Expr coordinate(ir::KernelIR& kernel, ir::Body& body, const fusion::Coordinate& how,
                    const std::vector<ir::Expr>& known,
                    const std::function<ir::Expr(ir::Expr)>& place);
// Returns the value of a Select and names its conditions in `conditions`, or in `body` if
// `conditions` is nullptr. `place` is as for coordinate().
ir::Expr selected(ir::KernelIR& kernel, ir::Body& body, const fusion::Select& how, ir::DType dtype,
                  const std::vector<ir::Expr>& known,
                  const std::function<ir::Expr(ir::Expr)>& place, ir::Body* conditions = nullptr);
// Returns value `v`, named in `body`, if it is computed from operands or coordinates by one of the
// three functions above. Returns nullptr for reads; builders handle reductions themselves.
ir::Expr computed(const fusion::Problem& problem, ir::KernelIR& kernel, ir::Body& body,
                  fusion::ValueId v, const std::vector<ir::Expr>& known,
                  const std::function<ir::Expr(ir::Expr)>& place, ir::Body* conditions = nullptr);
// Returns the mask under which an access is inside its tensor, over axes; nullptr means always.
// Loaded coordinates are looked up in `known`.
ir::Expr within(ir::KernelIR& kernel, const fusion::Pred& in, const std::vector<ir::Expr>& known);
// Returns the conjunction of two masks; nullptr means true.
ir::Expr both(ir::Exprs& exprs, ir::Expr a, ir::Expr b);

// Returns the cache policy of an access that moves `width` elements. Single elements, and vectors
// of which `count` elements exist, have none.
ir::CachePolicy cache_of(const schedule::Schedule& schedule, size_t access, int width,
                         ir::Expr count);

// Gives `value` a name in `body` unless it is a leaf already.
ir::Expr named(ir::KernelIR& kernel, ir::Body& body, ir::Expr value);

// Two loads of one buffer at a constant distance, of which a Select needs exactly one per element:
// access `first` if `in` holds, else access `second`. One load serves both.
struct SelectLoad {
  int first = 0, second = 0;
  fusion::Pred in;
  fusion::Pred if_first{}, if_second{};  // masks of the two loads beyond `in`
  fusion::AxisSet axes = 0;              // axes over which `in` varies
};
std::vector<SelectLoad> find_select_loads(const fusion::Problem& problem);
// Returns the mask of the combined load; nullptr means always. `here` is the value of `in`.
ir::Expr within(ir::KernelIR& kernel, const SelectLoad& either, ir::Expr here);

// Adds AssertIndex statements (Check) to `body` for the gather indices of the load that follows.
// `in` is the mask of that load; `place` is as for coordinate().
void check_indices(const fusion::Problem& problem, ir::KernelIR& kernel, ir::Body& body,
                   const fusion::MemoryAccess& access, ir::Expr in,
                   const std::vector<ir::Expr>& known,
                   const std::function<ir::Expr(ir::Expr)>& place);

// Returns the offset of an access over axes. Loaded coordinates are looked up in `known`.
ir::Expr offset_of(ir::KernelIR& kernel, const fusion::MemoryAccess& access,
                   const std::vector<ir::Expr>& known);

// Returns the offset in memory of the first element of the current row along `dim`, in the access
// to whose lines the dim is aligned (Dim::line).
ir::Expr line_origin(ir::KernelIR& kernel, const fusion::Problem& problem,
                     const schedule::Schedule& schedule, schedule::DimId dim);

}  // namespace fuser::lower
