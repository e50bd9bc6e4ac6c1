// A Fusion made again for what a call tells of sizes: dims of size 1 broadcast, equal sizes get one
// name, and reshapes only regroup dims.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "ir/fusion.h"

namespace fuser {

// Dims, by tensor id, that are computed and have size 1.
using BroadcastDims = std::set<std::pair<int, int>>;

// What is known of sizes beyond the dims of inputs that are 1.
struct KnownSizes {
  BroadcastDims ones;
  std::map<int, std::pair<Expr, Expr>> parts;  // by id of a SplitDim: sizes of its two parts
  // By input and dim, what its size is: a constant, or that of another dim.
  std::map<std::pair<int, int>, Expr> sizes;
};

// The fusion again with some of its size symbols replaced: leaf(symbol) gives an expression of
// `target`, or nullptr to keep it. Shape rules run again, so that dims that became 1 broadcast.
// Tensor ids are kept.
using SizeReplacement = std::function<Expr(Exprs& target, Expr symbol)>;
Fusion rebuild(const Fusion& fusion, const SizeReplacement& leaf, const KnownSizes& known = {});

// The fusion for inputs whose symbolic dims flagged in ones[input][dim] have size 1, with sizes
// that its constraints make equal replaced by one symbol (so that equality of extents is
// structural). The constraints stay, to be checked.
Fusion specialize(const Fusion& fusion, const std::vector<std::vector<bool>>& ones,
                  const KnownSizes& known = {});

// The dims whose size the side of a rule is, of the tensor where that size first occurs.
BroadcastDims dims_of_size(const Constraint& constraint, bool right);

// Two sizes that a call may find equal, and what is known then: a reshape regroups dims, and
// divides no coordinate.
struct Nesting {
  // A dim is split into parts that are some of the dims each that were merged to it.
  struct Parts {
    int tensor = 0;  // the SplitDim, by id
    Expr outer = nullptr, inner = nullptr;
  };
  // An input's dim has the size of the parts into which it is split, or that of another dim.
  struct Size {
    int input = 0, dim = 0;
    Expr is = nullptr;
  };
  std::variant<Parts, Size> known;
  Expr left = nullptr, right = nullptr;
};
// Those that sizes decide; the expressions are of the fusion's arena.
std::vector<Nesting> open_nestings(Fusion& fusion);

}  // namespace fuser
