// Refined axes: the index analysis. Coordinates belong to accesses, not to tensors.
//
// The analysis proceeds from outputs to inputs. Each output has new axes, and every op rewrites the
// coordinates of its operands: permute reorders them, broadcast drops them, an expanded dim reads
// coordinate 0. A value is the result of an op at one coordinate tuple: `x - x.T` reads the two
// values x(i, j) and x(j, i). Movement ops produce no values.
//
// Two outputs share axes, and so a kernel, if tensors that both read map the axes of one to the
// axes of the other (an axis mapping). The mapped extents must be equal by structure, and no
// coordinate tuple may use an axis twice. An output of one element has no axes to share; its
// reductions have. If a mapping is rejected, the tensor is read twice.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ir/fusion.h"

namespace fuser::fusion {

using AxisId = int;
using ValueId = int;
using AxisSet = uint64_t;  // torch allows 64 dims

struct Axis {
  ir::Expr extent = nullptr;
};

// A mask: lo <= coord < hi for every bound, nullptr for no limit on that side. A mask without
// bounds is always true.
struct Pred {
  struct Bound {
    ir::Expr coord, lo, hi;
    bool operator==(const Bound&) const = default;
  };
  std::vector<Bound> bounds;
};

// One operand of a value, or the operand of a store. A scalar operand has value -1 and is
// `otherwise`. `in` is the mask of a select operand (see Choose) and has no bounds elsewhere.
struct Access {
  ValueId value = -1;
  Pred in;
  ir::Expr otherwise = nullptr;
};

// A gather index: an index loaded from memory that is used as a coordinate, after wrapping and
// clamping (Symbol::Indirect).
struct GatherIndex {
  ValueId given = -1;              // the index as loaded
  ir::Expr size = nullptr;         // size of the indexed dim
  Pred in{};                       // mask under which the gathered element is used
  const ir::Tensor* op = nullptr;  // the TakeAlongAxis op
};
// A load from the memory of the value's tensor; 0 if the coordinates are outside of it.
struct Read {
  int output = -1;  // fusion output to read, which an earlier kernel stores; -1: an input
  // Mask of a read behind a pad or cat: its coordinates are inside the tensor if it is true.
  Pred in{};
  std::vector<GatherIndex> indices{};  // gather indices among its coordinates
};
struct Apply {
  ir::Op op{};
  ir::DType compute{};
  std::vector<Access> args;
};
struct Convert {
  Access arg;
};
struct Select {  // select: the first argument whose mask `in` is true
  std::vector<Access> args;
};
struct Splat {  // splat: one scalar at every coordinate
  ir::Expr scalar = nullptr;
};
struct Coordinate {  // a coordinate as an int64 value
  ir::Expr at = nullptr;
};
struct Reduced {  // result 0 of a reduction over the axes `over`
  ir::ReduceOp op{};
  ir::DType compute{};
  std::vector<Access> args;  // the element, then its position if the op needs it
  AxisSet over = 0;
  // True for a sum that adds its elements, which are products, without rounding them.
  bool unrounded = false;
};
struct Project {  // projection: a further result of a Reduced value
  ValueId reduced = 0;
  int result = 1;
};

struct Value {
  // Its tensor, or nullptr for a value of no tensor (a negated operand, a clamped index).
  const ir::Tensor* tensor = nullptr;
  std::vector<ir::Expr> at;  // one coordinate per dim of the tensor
  ir::DType dtype{};
  std::variant<Read, Apply, Convert, Select, Splat, Coordinate, Reduced, Project> how;
  AxisSet axes = 0;  // axes that the value varies over
};

struct Store {
  int output = 0;  // index into Fusion::outputs
  Access access;
  std::vector<ir::Expr> at;
};

// The values of one kernel over one list of axes. Operands precede their users.
struct Refined {
  ir::Exprs exprs;
  std::vector<Axis> axes;
  std::vector<Value> values;
  std::vector<Store> stores;
};

// Calls `visit` for each operand of `value` and for each value loaded for its coordinates.
void visit_operands(const Value& value, const std::function<void(ValueId)>& visit);
// Returns the axes in these coordinates. Axes that only a loaded index varies over do not count.
AxisSet axes_of(const std::vector<ir::Expr>& at);
// Copies the stores and the values that they need into a new arena. image: new id of each value, -1
// if it is not needed.
Refined extract(const std::vector<Axis>& axes, const std::vector<Value>& values,
                const std::vector<Store>& stores, std::vector<ValueId>& image);

// The sets of axes that a kernel reduces (see refine()). rows: axes whose reductions may feed
// values over all axes. columns: axes of terminal reductions, 0 if there is only one set. either:
// True if both sets are terminal, and so interchangeable.
struct ReductionSets {
  AxisSet rows = 0, columns = 0;
  bool either = false;
};
// Returns nullopt if the values do not fit one kernel.
std::optional<ReductionSets> reduction_sets(const Refined& refined);

// Live tensors, by id: the tensors that an output depends on. Dead tensors are in no kernel and
// must not influence FMA contraction or precision choices. Adapters create many, because they round
// each value of a half type in case it is used.
std::vector<bool> live_tensors(const ir::Fusion& fusion);

// The mul that each add, sub or sum absorbs as an fma, by tensor id; -1 if it absorbs no mul. See
// contract.cpp.
std::vector<int> contract(const ir::Fusion& fusion);
// Converts a float comparison to a comparison of integers if the result is equal: one operand is an
// integer times a power of two, exact in both steps, and the other a constant.
void compare_integers(ir::Exprs& exprs, const std::vector<Value>& values, Apply& comparison);

// Demanded precision: the tensors, by id, that reach memory only as floats of 16 bits or fewer. See
// demanded_precision.cpp.
std::vector<bool> demanded_narrow(const ir::Fusion& fusion);

// A call of a torch library op as a step between kernels, in terms of the fusion's memory.
struct LibraryCall {
  // An operand: an input or an output, with permuted dims if `dims` is set. The output may be a
  // view of an input.
  struct Source {
    int input = -1, output = -1;
    std::vector<int64_t> dims;
  };
  struct Given {  // an attribute whose value is a scalar input
    int attribute = 0, scalar = 0;
    ir::DType dtype{};
  };
  ir::LibraryOp op{};
  std::vector<int64_t> attributes;
  std::vector<Given> given;
  std::vector<Source> args;
  std::vector<int> outputs;  // by result; -1: unused
};
using Segment = std::variant<Refined, LibraryCall>;

// A fusion break: the reason, for people, why a tensor is materialized or computed by a kernel of
// its own.
struct FusionBreak {
  int tensor = 0;  // tensor id
  std::string why;
};

// Groups all outputs except views into kernels over one iteration space each, and into library
// calls, in an order in which they can run. Appends the tensors that one of them materializes for
// another to fusion.outputs (Output::temp).
//
// All reductions of a kernel are over one set of axes, R; the other axes are K. Values over K alone
// may feed values over K and R (a normalization). A kernel may also have terminal reductions over
// all of K, which no value over K and R reads (norm backward: gradients of weight and bias).
// Appends the fusion breaks to `fusion_breaks`. Raises Unsupported ("kernel-size-1",
// "kernel-size-2") if one op alone exceeds the limits of a kernel.
std::vector<Segment> refine(ir::Fusion& fusion, std::vector<FusionBreak>* fusion_breaks = nullptr);

// Kernel fission: computes the stores by several kernels that need no persistent row. Values over K
// that depend on a reduction, and that values over R read, become temporaries. Empty if there are
// no temporaries and no reductions over columns.
std::vector<Refined> fission(ir::Fusion& fusion, Refined& whole);

// Merges two dependent reduction loops into one: sum((x - sum(x) / n)^2) becomes Welford, sum(exp(x
// - max(x))) becomes online softmax. nullopt if no pair of loops matches.
std::optional<Refined> single_pass(const Refined& refined);

// Limits of one kernel: values, each counted once per reduction loop that computes it; issue slots
// per element of their ops; tensor accesses. Compilers inline the code of expensive ops, and
// compile time grows faster than the code. In a kernel of max_slots the traffic of materialized
// tensors takes no extra time (machine_balance).
inline constexpr int max_values = 512;
inline constexpr int max_slots = 8192;
inline constexpr int max_buffers = 96;

// A coordinate as a linear form of the axes: coefficients, and a rest without axes. linear()
// returns nullopt if the coordinate is not linear ("irregular").
struct Linear {
  std::vector<ir::Expr> coefficients;  // by axis
  ir::Expr rest = nullptr;
};
std::optional<Linear> linear(ir::Exprs& exprs, ir::Expr coordinate, int axes);

// Returns the offset of coordinates `at` in a tensor with these strides as a linear form of the
// axes. nullopt if it is irregular. This is the only address function: vector widths, coalescing,
// collapsing, traffic and hazards all use it.
std::optional<Linear> strides(ir::Exprs& exprs, const std::vector<ir::Expr>& at,
                              const std::vector<ir::Expr>& tensor_strides, int axes);

// Recombines coordinates that are quotient and remainder of one division, in dims that are nested
// in memory. The innermost of these dims gets the divided coordinate, all outer dims get 0.
void merge_parts(ir::Exprs& exprs, std::vector<ir::Expr>& at,
                 const std::vector<ir::Expr>& tensor_strides);

}  // namespace fuser::fusion
