// Functions that all builders use: computing a value from its operands, and declaring the problem's
// memory as kernel buffers.
#pragma once

#include "fusion/kernel/problem.h"
#include "ir/kernel.h"
#include "schedule/schedule.h"

namespace fuser {

// Copies `e` from the problem's arena into the kernel's arena.
Expr import(KernelIR& kernel, Expr e);

// Declares the problem's buffers in the problem's order.
void declare_buffers(const Problem& problem, KernelIR& kernel);

// Returns the expression of value `v` from its operands in `known`. Handles Apply, Convert and
// Uniform; builders handle reads, coordinates and reductions themselves.
Expr arithmetic(const Problem& problem, KernelIR& kernel, ValueId v,
                const std::vector<Expr>& known);
Expr operand(KernelIR& kernel, const Access& access, const std::vector<Expr>& known);

// Returns a coordinate as an int64 value: the index may have 32 bits, but its products may exceed
// them. `place` maps an expression over axes to the builder's index map.
Expr coordinate(KernelIR& kernel, Body& body, const Coordinate& how, const std::vector<Expr>& known,
                const std::function<Expr(Expr)>& place);
// Returns the value of a Select and names its conditions in `conditions`, or in `body` if
// `conditions` is nullptr. `place` is as for coordinate().
Expr selected(KernelIR& kernel, Body& body, const Select& how, DType dtype,
              const std::vector<Expr>& known, const std::function<Expr(Expr)>& place,
              Body* conditions = nullptr);
// Returns value `v`, named in `body`, if it is computed from operands or coordinates by one of the
// three functions above. Returns nullptr for reads; builders handle reductions themselves.
Expr computed(const Problem& problem, KernelIR& kernel, Body& body, ValueId v,
              const std::vector<Expr>& known, const std::function<Expr(Expr)>& place,
              Body* conditions = nullptr);
// Returns the mask under which an access is inside its tensor, over axes; nullptr means always.
// Loaded coordinates are looked up in `known`.
Expr within(KernelIR& kernel, const Pred& in, const std::vector<Expr>& known);
// Returns the conjunction of two masks; nullptr means true.
Expr both(Exprs& exprs, Expr a, Expr b);

// Gives `value` a name in `body` unless it is a leaf already.
Expr named(KernelIR& kernel, Body& body, Expr value);

// Two loads of one buffer at a constant distance, of which a Select needs exactly one per element:
// access `first` if `in` holds, else access `second`. One load serves both.
struct SelectLoad {
  int first = 0, second = 0;
  Pred in;
  Pred if_first{}, if_second{};  // masks of the two loads beyond `in`
  AxisSet axes = 0;              // axes over which `in` varies
};
std::vector<SelectLoad> find_select_loads(const Problem& problem);
// Returns the mask of the combined load; nullptr means always. `here` is the value of `in`.
Expr within(KernelIR& kernel, const SelectLoad& either, Expr here);

// Adds AssertIndex statements (Check) to `body` for the gather indices of the load that follows.
// `in` is the mask of that load; `place` is as for coordinate().
void check_indices(const Problem& problem, KernelIR& kernel, Body& body, const MemoryAccess& access,
                   Expr in, const std::vector<Expr>& known, const std::function<Expr(Expr)>& place);

// Returns the offset of an access over axes. Loaded coordinates are looked up in `known`.
Expr offset_of(KernelIR& kernel, const MemoryAccess& access, const std::vector<Expr>& known);

// Returns the offset in memory of the first element of the current row along `dim`, in the access
// to whose lines the dim is aligned (Dim::line).
Expr line_origin(KernelIR& kernel, const Problem& problem, const Schedule& schedule, DimId dim);

}  // namespace fuser
