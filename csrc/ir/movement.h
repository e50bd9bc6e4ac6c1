// Movement ops: tensors that hold elements of one operand at other coordinates. ONE STRUCT PER OP.
//
// The fields of a struct are the arguments that a definition gives. The Python text, the rebuild,
// the binding and the structural key of an op follow from `fields`. fusion/movement/NAME.cpp has
// the rules of the op: shape, coordinates, axis sources, layout and view.
//
// A movement op takes its struct here with its name in WithMovementOps, its rules, its reference
// in fuser/ops/reference.py and a method of fd.ops.
#pragma once

#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "ir/expr.h"

namespace fuser::ir {

struct Tensor;

// An argument of a movement op: its keyword in Python, and the member that holds it.
template <class D, class T>
struct MovementField {
  const char* name;
  T D::*member;
  bool optional = false;  // omitted in text if it is false or -1
};

struct Broadcast {  // adds dims of size 1 where is_broadcast
  static constexpr const char* name = "broadcast";
  const Tensor* arg = nullptr;
  std::vector<bool> is_broadcast;

  static constexpr auto fields() {
    return std::tuple(MovementField{"is_broadcast_dim", &Broadcast::is_broadcast});
  }
};
struct Expand {  // enlarges dims of size 1, at no cost
  static constexpr const char* name = "expand";
  const Tensor* arg = nullptr;
  std::vector<Expr> shape;  // requested sizes; -1 keeps the size of arg

  static constexpr auto fields() { return std::tuple(MovementField{"shape", &Expand::shape}); }
};
struct Squeeze {
  static constexpr const char* name = "squeeze";
  const Tensor* arg = nullptr;
  std::vector<int64_t> dims;      // sorted
  bool squeeze_expanded = false;  // drops dims of any size: takes their element 0

  static constexpr auto fields() {
    return std::tuple(MovementField{"dims", &Squeeze::dims},
                      MovementField{"squeeze_expanded", &Squeeze::squeeze_expanded, true});
  }
};
struct Permute {  // dim d of the result is dim dims[d] of arg
  static constexpr const char* name = "permute";
  const Tensor* arg = nullptr;
  std::vector<int64_t> dims;

  static constexpr auto fields() { return std::tuple(MovementField{"dims", &Permute::dims}); }
};
struct StrideOrder {  // arg with a memory order for outputs (0 = innermost)
  static constexpr const char* name = "stride_order";
  const Tensor* arg = nullptr;
  std::vector<int64_t> order;

  static constexpr auto fields() {
    return std::tuple(MovementField{"stride_order", &StrideOrder::order});
  }
};
struct SplitDim {  // splits dim into dim and dim + 1: i becomes (i / inner, i % inner), inner being
                   // the size of the second
  static constexpr const char* name = "split_dim";
  const Tensor* arg = nullptr;
  int64_t dim = 0;
  // Requested outer and inner size; -1 for at most one: derived from the other.
  std::vector<Expr> sizes;

  static constexpr auto fields() {
    return std::tuple(MovementField{"dim", &SplitDim::dim},
                      MovementField{"sizes", &SplitDim::sizes});
  }
};
struct MergeDims {  // merges dims dim and dim + 1: (o, i) becomes o * inner + i
  static constexpr const char* name = "merge_dims";
  const Tensor* arg = nullptr;
  int64_t dim = 0;
  Expr size = nullptr;  // requested size; -1: the product

  static constexpr auto fields() {
    return std::tuple(MovementField{"dim", &MergeDims::dim},
                      MovementField{"size", &MergeDims::size, true});
  }
};
struct Slice {  // element i of a dim is element first + i * step of arg
  static constexpr const char* name = "slice";
  static constexpr bool makes_dims = true;
  const Tensor* arg = nullptr;
  std::vector<Expr> starts, ends;  // as requested: negative ones count from the end
  std::vector<int64_t> steps;
  std::vector<Expr> first;  // starts, clamped to the range; set by the shape rule

  static constexpr auto fields() {
    return std::tuple(MovementField{"start_indices", &Slice::starts},
                      MovementField{"end_indices", &Slice::ends},
                      MovementField{"strides", &Slice::steps});
  }
};
struct Flip {  // reverses these dims
  static constexpr const char* name = "flip";
  static constexpr bool makes_dims = true;
  const Tensor* arg = nullptr;
  std::vector<int64_t> dims;  // sorted

  static constexpr auto fields() { return std::tuple(MovementField{"dims", &Flip::dims}); }
};
struct Unfold {  // windows of `size` elements of dim, `step` apart; their elements are the last dim
  static constexpr const char* name = "unfold";
  static constexpr bool makes_dims = true;
  const Tensor* arg = nullptr;
  int64_t dim = 0, size = 1, step = 1;

  static constexpr auto fields() {
    return std::tuple(MovementField{"dim", &Unfold::dim}, MovementField{"size", &Unfold::size},
                      MovementField{"step", &Unfold::step});
  }
};

// The variant of these alternatives and all movement ops.
template <class... Others>
using WithMovementOps = std::variant<Others..., Broadcast, Expand, Squeeze, Permute, StrideOrder,
                                     SplitDim, MergeDims, Slice, Flip, Unfold>;
using Movement = WithMovementOps<>;

template <class D>
concept MovementOp = requires {
  D::fields();
};

// True if the op gives its result dims that no operand has, besides dims of size 1.
template <class D>
inline constexpr bool makes_dims = requires {
  D::makes_dims;
};

// Calls visit(field, value) for each argument of the op, in order.
template <class D, class Visitor>
void visit_fields(D& op, const Visitor& visit) {
  std::apply([&](const auto&... field) { (visit(field, op.*field.member), ...); },
             std::remove_const_t<D>::fields());
}

// Calls visit.template operator()<D>() for each movement op D.
template <class Visitor>
void visit_movement_ops(const Visitor& visit) {
  [&]<class... D>(std::type_identity<std::variant<D...>>) {
    (visit.template operator()<D>(), ...);
  }(std::type_identity<Movement>{});
}

}  // namespace fuser::ir
