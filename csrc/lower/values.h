// What the builders of loops share: how a value is computed from its operands, and the kernel's
// view of the problem's memory.
#pragma once

#include "fusion/facts.h"
#include "ir/kernel.h"

namespace fuser {

// Copies `e` into the kernel's arena.
Expr import(KernelIR& kernel, Expr e);

// Declares the problem's buffers, in its order.
void declare_buffers(const Problem& problem, KernelIR& kernel);

// The expression of value `v` from those of its operands, which are in `known`; for values that are
// applied, converted or uniform. Loads, coordinates and reductions are the builder's own.
Expr arithmetic(const Problem& problem, KernelIR& kernel, ValueId v,
                const std::vector<Expr>& known);
Expr operand(KernelIR& kernel, const Access& access, const std::vector<Expr>& known);

// A coordinate as an int64 value: the index itself may have 32 bits, its products need not.
// `place`: what an expression over axes is in the builder's walk.
Expr coordinate(KernelIR& kernel, Body& body, const Coordinate& how, const std::vector<Expr>& known,
                const std::function<Expr(Expr)>& place);
// A value that is one of several, by where it stands: names the conditions in `conditions`, which
// is `body` where it is nullptr. `place`: as of coordinate().
Expr chosen(KernelIR& kernel, Body& body, const Choose& how, DType dtype,
            const std::vector<Expr>& known, const std::function<Expr(Expr)>& place,
            Body* conditions = nullptr);
// Value `v` where it is made from its operands or its place: named, by the three above. nullptr for
// what is read; reductions are the builder's own.
Expr computed(const Problem& problem, KernelIR& kernel, Body& body, ValueId v,
              const std::vector<Expr>& known, const std::function<Expr(Expr)>& place,
              Body* conditions = nullptr);
// Where an access is inside its tensor, over axes; nullptr: always. What a loaded coordinate is
// comes from `known`.
Expr within(KernelIR& kernel, const Pred& in, const std::vector<Expr>& known);
// Both conditions, nullptr being true.
Expr both(Exprs& exprs, Expr a, Expr b);

// A name for `value` in `body` where it is more than a name already.
Expr named(KernelIR& kernel, Body& body, Expr value);

// Two reads of one buffer, so much apart wherever they are, of which what is chosen by place needs
// one: `first` where `in` holds, else `second` (accesses). One load serves both.
struct Either {
  int first = 0, second = 0;
  Pred in;
  Pred if_first{}, if_second{};  // what each asks beyond that
  AxisSet axes = 0;              // over which `in` varies
};
std::vector<Either> either_reads(const Problem& problem);
// Where that load is made, `here` being whether `in` holds; nullptr: always.
Expr within(KernelIR& kernel, const Either& either, Expr here);

// Checks in `body` of the indices at which a load that follows reads; `in`: where it does. `place`:
// as of coordinate().
void check_indices(const Problem& problem, KernelIR& kernel, Body& body, const MemoryAccess& access,
                   Expr in, const std::vector<Expr>& known, const std::function<Expr(Expr)>& place);

// Offset of an access, over axes; what a loaded coordinate is comes from `known`.
Expr offset_of(KernelIR& kernel, const MemoryAccess& access, const std::vector<Expr>& known);

}  // namespace fuser
