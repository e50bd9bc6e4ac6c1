// Refined axes: the one index analysis. Coordinates belong to accesses, not to tensors.
//
// Going from outputs to inputs, each output gets fresh axes and every op rewrites the coordinates
// of its operands: permute reorders them, broadcast drops them, an expanded dim reads coordinate 0.
// A value is what is computed at one coordinate tuple: `x - x.T` reads the two values x(i, j) and
// x(j, i). Movement ops leave no value behind.
//
// Two outputs come to share axes (and so a kernel) only where that is offered by a tensor that both
// read, their extents are equal by structure and no coordinate tuple gets one axis twice. A
// rejected offer only reads twice.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ir/fusion.h"

namespace fuser {

using AxisId = int;
using ValueId = int;
using AxisSet = uint64_t;  // torch allows 64 dims

struct Axis {
  Expr extent = nullptr;
};

// lo <= coord < hi for each bound (nullptr: on that side always); no bounds: always.
struct Pred {
  struct Bound {
    Expr coord, lo, hi;
    bool operator==(const Bound&) const = default;
  };
  std::vector<Bound> bounds;
};

// One operand of a value, or one store. A scalar operand has no value but `otherwise`. `in`: see
// Choose; elsewhere without bounds.
struct Access {
  ValueId value = -1;
  Pred in;
  Expr otherwise = nullptr;
};

// An index that was read and became a coordinate, wrapped and clamped (Symbol::Loaded).
struct GivenIndex {
  ValueId given = -1;          // as it was read
  Expr size = nullptr;         // of the dim that it indexes
  Pred in{};                   // where a result is wanted
  const Tensor* op = nullptr;  // the TakeAlongAxis
};
struct Read {       // from the memory of the value's tensor, 0 where the coordinates leave it
  int output = -1;  // that of this fusion output, which an earlier kernel stores; -1: of an input
  Pred in{};        // where a pad or cat led to it: it is inside there
  std::vector<GivenIndex> indices{};  // among its coordinates
};
struct Apply {
  Op op{};
  DType compute{};
  std::vector<Access> args;
};
struct Convert {
  Access arg;
};
struct Choose {  // the first of them whose `in` holds
  std::vector<Access> args;
};
struct Uniform {  // a scalar, the same at every coordinate
  Expr scalar = nullptr;
};
struct Coordinate {  // int64
  Expr at = nullptr;
};
struct Reduced {  // result 0 of a reduction over the axes `over`
  ReduceOp op{};
  DType compute{};
  std::vector<Access> args;  // the element, then its position where the op takes one
  AxisSet over = 0;
  bool unrounded = false;  // of a sum: the products that its elements are enter it so
};
struct Pick {  // another result of a Reduced value
  ValueId reduced = 0;
  int result = 1;
};

struct Value {
  const Tensor* tensor = nullptr;  // nullptr: no tensor's (a negated operand, an index in range)
  std::vector<Expr> at;            // one coordinate per dim of the tensor
  DType dtype{};
  std::variant<Read, Apply, Convert, Choose, Uniform, Coordinate, Reduced, Pick> how;
  AxisSet axes = 0;  // what it varies over
};

struct Store {
  int output = 0;  // index into Fusion::outputs
  Access access;
  std::vector<Expr> at;
};

// One kernel's worth of values over one list of axes; operands stand before their users.
struct Refined {
  Exprs exprs;
  std::vector<Axis> axes;
  std::vector<Value> values;
  std::vector<Store> stores;
};

// Calls visit for each value that `value` is computed from or whose coordinates it was read at.
void visit_operands(const Value& value, const std::function<void(ValueId)>& visit);
// The axes in these coordinates; those behind a Loaded do not count.
AxisSet axes_of(const std::vector<Expr>& at);
// These stores and what they need of the values, in an arena of their own; image: the new id of
// each value, -1 where it is not needed.
Refined extract(const std::vector<Axis>& axes, const std::vector<Value>& values,
                const std::vector<Store>& stores, std::vector<ValueId>& image);

// The sets of axes that a kernel reduces (see refine()). rows: the results may be read by values
// over all axes. columns: they are not, 0 where there is one set. either: those of neither set are.
struct ReductionSets {
  AxisSet rows = 0, columns = 0;
  bool either = false;
};
// Nothing where the values are no kernel's.
std::optional<ReductionSets> reduction_sets(const Refined& refined);

// Tensors, by id, that an output is computed from. What else a definition holds is in no kernel,
// and decides nothing about the arithmetic of one: the adapters round each value of a half type for
// whoever may want it.
std::vector<bool> wanted(const Fusion& fusion);

// The mul that each add, sub or sum takes up as an fma, by tensor id (-1: none); see contract.cpp.
std::vector<int> contract(const Fusion& fusion);
// Compares integers where that is the same: a float that is an integer times a power of two, both
// exactly, against a constant.
void compare_integers(Exprs& exprs, const std::vector<Value>& values, Apply& comparison);

// Tensors, by id, that reach memory only as floats of 16 bits or fewer; see narrow.cpp.
std::vector<bool> ends_narrow(const Fusion& fusion);

// A library's part between kernels, in terms of the fusion's memory.
struct LibraryCall {
  struct Source {  // an operand: an input or an output (a view of an input among them), dims of
                   // which are permuted if `dims` is set
    int input = -1, output = -1;
    std::vector<int64_t> dims;
  };
  struct Given {  // an attribute that is a scalar input of the run
    int attribute = 0, scalar = 0;
    DType dtype{};
  };
  LibraryOp op{};
  std::vector<int64_t> attributes;
  std::vector<Given> given;
  std::vector<Source> args;
  std::vector<int> outputs;  // by result, -1: of no use
};
using Segment = std::variant<Refined, LibraryCall>;

// Why a tensor is stored by a kernel that could not be one with another, for people.
struct Parting {
  int tensor = 0;  // by id
  std::string why;
};

// The outputs of the fusion but for views, grouped by what shares an iteration space, one kernel
// each, and what a library computes, in an order in which they can run. Tensors that one of them
// hands to another are appended to fusion.outputs (Output::temp).
//
// In one kernel all reductions are over one set of axes, R; the others are K. Values over K alone
// may feed values over K and R (a normalization). A kernel may also have terminal reductions over
// all of K, which no value over K and R reads (norm backward: gradients of weight and bias). Raises
// Unsupported ("kernel-size-1", "kernel-size-2") where one op alone takes more than a kernel holds.
// `partings`: what was not fused, appended.
std::vector<Segment> refine(Fusion& fusion, std::vector<Parting>* partings = nullptr);

// The same stores by several kernels that need no row to stay on chip: values over K that depend on
// a reduction and that values over R read become temporaries. Empty where there are none.
std::vector<Refined> pieces(Fusion& fusion, Refined& whole);

// The same values with two walks over the data made one: sum((x - sum(x) / n)^2) becomes Welford,
// sum(exp(x - max(x))) the online form. Nothing where there is no such pair.
std::optional<Refined> single_pass(const Refined& refined);

// A kernel has at most this many values, each counted for every walk that computes it, whose ops
// take at most so many issue slots for an element, and reads and writes at most this many tensors.
// Compilers inline the text of costly functions, and take more than twice as long for twice as
// much; beside so many slots, what a cut stores and reads takes no time (slots_per_byte).
inline constexpr int max_values = 512;
inline constexpr int max_slots = 8192;
inline constexpr int max_buffers = 96;

// The coordinate as a linear form of the axes: coefficients by axis and a rest free of axes, or
// nothing ("irregular").
struct Linear {
  std::vector<Expr> coefficients;  // by axis
  Expr rest = nullptr;
};
std::optional<Linear> linear(Exprs& exprs, Expr coordinate, int axes);

// THE address function: offset of coordinates `at` in a tensor with these strides, as a linear form
// of the axes. Width, coalescing, collapsing, bytes and hazards all ask it.
std::optional<Linear> strides(Exprs& exprs, const std::vector<Expr>& at,
                              const std::vector<Expr>& tensor_strides, int axes);

// Coordinates that are what a division leaves and what it gives, of dims that lie in each other in
// memory, become the one that was divided: it stands at the innermost of them, 0 at the others.
void merge_parts(Exprs& exprs, std::vector<Expr>& at, const std::vector<Expr>& tensor_strides);

}  // namespace fuser
