#include "fusion/index/layouts.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "fusion/movement/movement_rules.h"

namespace fuser::fusion {

using namespace ir;

std::vector<int> memory_order(int axes, const std::vector<int>& logical,
                              const std::vector<std::vector<int>>& tellers) {
  std::vector<int> order = logical;
  const auto outer_first = [&](int x, int y) {  // 1: x is outer, -1: y is outer, 0: undetermined
    for (const auto& rank : tellers)
      if (rank[x] >= 0 && rank[y] >= 0 && rank[x] != rank[y]) return rank[x] > rank[y] ? 1 : -1;
    return 0;
  };
  // Insertion sort, as in torch. Undetermined pairs make the relation unfit for std::sort.
  for (int i = 1; i < axes; ++i) {
    int at = i;
    for (int j = i - 1; j >= 0; --j) {
      const int c = outer_first(order[j], order[at]);
      if (c > 0) break;
      if (c < 0) {
        std::swap(order[j], order[at]);
        at = j;
      }
    }
  }
  return order;
}

std::vector<int> row_major(int rank) {
  std::vector<int> order(rank);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<Expr> dense_strides(Exprs& exprs, const std::vector<Expr>& extents,
                                const std::vector<int>& order) {
  std::vector<Expr> strides(extents.size(), exprs.constant(0));
  Expr next = exprs.constant(1);
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = next;
    next = exprs.mul(next, extents[order[i]]);
  }
  return strides;
}

Ranks row_major_ranks(int rank) {
  Ranks out(rank);
  for (int d = 0; d < rank; ++d) out[d] = rank - 1 - d;
  return out;
}

namespace {

Ranks ranks_of(const std::vector<int>& outermost_first, int rank) {
  Ranks out(rank, -1);
  int next = static_cast<int>(outermost_first.size());
  for (int d : outermost_first) out[d] = --next;
  return out;
}

}  // namespace

Ranks elementwise_ranks(const Tensor& t, const std::vector<Ranks>& tellers) {
  const auto tells_all = [&](const Ranks& r) {
    for (int d = 0; d < t.rank(); ++d)
      if (r[d] < 0 && !t.shape[d]->is_constant(1)) return false;
    return true;
  };
  const auto tells_any = [](const Ranks& r) {
    return std::any_of(r.begin(), r.end(), [](int n) { return n >= 0; });
  };
  if (!tellers.empty() && tells_all(tellers[0])) return tellers[0];
  if (std::none_of(tellers.begin(), tellers.end(), tells_any)) return Ranks(t.rank(), -1);
  return ranks_of(memory_order(t.rank(), row_major(t.rank()), tellers), t.rank());
}

namespace {

// Layout of a copy that torch makes in the memory format that all operands suggest.
Ranks in_memory_format(int rank, const std::vector<Ranks>& operands) {
  const auto channels_last = [&](const Ranks& r) {
    int outer = std::numeric_limits<int>::max();
    bool spatial = false;
    for (int d = 0; d < rank; ++d) {
      if (d == 1 || r[d] < 0) continue;
      if (r[d] > outer || r[d] < r[1]) return false;
      outer = r[d];
      spatial = spatial || d > 1;
    }
    return r[1] >= 0 && spatial;
  };
  const bool all =
      (rank == 4 || rank == 5) && std::all_of(operands.begin(), operands.end(), channels_last);
  if (!all) return row_major_ranks(rank);
  Ranks out(rank, 0);
  for (int d = 0; d < rank; ++d) out[d] = d == 0 ? rank - 1 : d == 1 ? 0 : rank - d;
  return out;
}

}  // namespace

Ranks split_ranks(int64_t dim, const Ranks& of) {
  Ranks out = of;
  const int whole = of[dim];
  for (int& r : out)
    if (r > whole && whole >= 0) ++r;
  out.insert(out.begin() + dim, whole < 0 ? -1 : whole + 1);
  return out;
}

namespace {

// Returns the operand of a broadcast that added dim `dim` and no other; nullptr if `t` is another
// op or adds further dims.
const Tensor* unsqueezed(const Tensor& t, int64_t dim) {
  const auto* d = std::get_if<Broadcast>(&t.definition);
  const bool is = d && d->is_broadcast[dim] && t.rank() == d->arg->rank() + 1;
  return is ? d->arg : nullptr;
}

// A cat along a dim that broadcasts added to all operands is a stack. torch implements a stack as a
// cat along the next dim, followed by a split.
Ranks cat(const Cat& d, int rank, const std::vector<Ranks>& known) {
  std::vector<Ranks> operands, stacked;
  for (const Tensor* a : d.args) {
    operands.push_back(known[a->id]);
    if (const Tensor* x = unsqueezed(*a, d.dim)) stacked.push_back(known[x->id]);
  }
  if (stacked.size() < operands.size()) return in_memory_format(rank, operands);
  if (d.dim + 1 == rank) return row_major_ranks(rank);
  return split_ranks(d.dim, in_memory_format(rank - 1, stacked));
}

Ranks ranks(const Tensor& t, const std::vector<LayoutClass>& layouts,
            const std::vector<Ranks>& known) {
  const auto of = [&](const Tensor* arg) -> const Ranks& { return known[arg->id]; };
  return std::visit(
      [&](const auto& d) -> Ranks {
        using D = std::decay_t<decltype(d)>;
        if constexpr (std::is_same_v<D, Input>) {
          return ranks_of(layouts[d.index].order, t.rank());
        } else if constexpr (std::is_same_v<D, Pointwise>) {
          std::vector<Ranks> tellers;
          for (const Operand& a : d.args)
            if (a.tensor) tellers.push_back(of(a.tensor));
          return elementwise_ranks(t, tellers);
        } else if constexpr (std::is_same_v<D, Cast>) {
          return elementwise_ranks(t, {of(d.arg)});
        } else if constexpr (MovementOp<D>) {
          return MovementRules<D>::layout(d, t, of(d.arg));
        } else if constexpr (std::is_same_v<D, Pad>) {
          return in_memory_format(t.rank(), {of(d.arg)});
        } else if constexpr (std::is_same_v<D, Cat>) {
          return cat(d, t.rank(), known);
        } else if constexpr (std::is_same_v<D, Iota>) {
          return {-1};
        } else {
          static_assert(std::is_same_v<D, Full> || std::is_same_v<D, Reduction> ||
                            std::is_same_v<D, Result> || std::is_same_v<D, TakeAlongAxis> ||
                            std::is_same_v<D, Library> || std::is_same_v<D, std::monostate>,
                        "ranks() misses an op");
          return row_major_ranks(t.rank());
        }
      },
      t.definition);
}

}  // namespace

OutputOrders result_orders(const Fusion& fusion, const std::vector<LayoutClass>& layouts) {
  std::vector<Ranks> known;
  known.reserve(fusion.tensors.size());
  for (const Tensor& t : fusion.tensors) {
    Ranks& rank = known.emplace_back(ranks(t, layouts, known));
    if (std::holds_alternative<StrideOrder>(t.definition)) continue;
    for (int d = 0; d < t.rank(); ++d)
      if (t.shape[d]->is_constant(1)) rank[d] = -1;
  }
  OutputOrders out;
  for (size_t o = 0; o < fusion.outputs.size(); ++o) {
    const Output& output = fusion.outputs[o];
    if (output.temp || output.view || output.alias >= 0) continue;
    const Ranks& rank = known[output.tensor->id];
    // Dims of unknown rank keep their positions.
    std::vector<int> order(rank.size()), told;
    for (size_t d = 0; d < rank.size(); ++d)
      if (rank[d] >= 0) told.push_back(static_cast<int>(d));
    std::stable_sort(told.begin(), told.end(), [&](int a, int b) { return rank[a] > rank[b]; });
    size_t next = 0;
    for (size_t d = 0; d < rank.size(); ++d)
      order[d] = rank[d] < 0 ? static_cast<int>(d) : told[next++];
    out.emplace(static_cast<int>(o), std::move(order));
  }
  return out;
}

}  // namespace fuser::fusion
