// Rebuilds a Fusion with the size facts of a call: dims of size 1 become broadcast dims, equal
// sizes get one name, and reshapes only regroup dims.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "ir/fusion.h"

namespace fuser::fusion {

// Computed dims of size 1, by tensor id and dim.
using BroadcastDims = std::set<std::pair<int, int>>;

// Known sizes, besides the dims of inputs that are 1.
struct KnownSizes {
  BroadcastDims ones;
  std::map<int, std::pair<ir::Expr, ir::Expr>> parts;  // by id of a SplitDim: sizes of its two dims
  // By input and dim: its size, a constant or the symbol of another dim.
  std::map<std::pair<int, int>, ir::Expr> sizes;
};

// Rebuilds the fusion with some size symbols replaced: leaf(symbol) returns an expression of
// `target`, or nullptr to keep the symbol. Shape rules run again, so that dims that became 1
// broadcast. Tensor ids are kept.
using SizeReplacement = std::function<ir::Expr(ir::Exprs& target, ir::Expr symbol)>;
ir::Fusion rebuild(const ir::Fusion& fusion, const SizeReplacement& leaf,
                   const KnownSizes& known = {});

// Specializes the fusion for inputs whose symbolic dims flagged in ones[input][dim] have size 1.
// Sizes that its constraints make equal are replaced by one symbol, so that equal extents are
// structurally equal. The constraints stay, to be checked.
ir::Fusion specialize(const ir::Fusion& fusion, const std::vector<std::vector<bool>>& ones,
                      const KnownSizes& known = {});

// Returns the dims that have the size on one side of a rule, in the tensor in which that size first
// occurs.
BroadcastDims dims_of_size(const ir::Constraint& constraint, bool right);

// Two sizes that a call may find equal, and the fact that follows from it. With these facts a
// reshape regroups dims and divides no coordinate.
struct Nesting {
  // A split whose two dims each consist of some of the dims that were merged before.
  struct Parts {
    int tensor = 0;  // id of the SplitDim
    ir::Expr outer = nullptr, inner = nullptr;
  };
  // A dim of an input whose size follows from the dims into which it is split, or is another dim's
  // size.
  struct Size {
    int input = 0, dim = 0;
    ir::Expr is = nullptr;
  };
  std::variant<Parts, Size> known;
  ir::Expr left = nullptr, right = nullptr;
};
// Returns the pairs of sizes that are not known to be equal yet; expressions are of the fusion's
// arena.
std::vector<Nesting> open_nestings(ir::Fusion& fusion);

}  // namespace fuser::fusion
