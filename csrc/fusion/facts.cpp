#include "fusion/facts.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "base/error.h"

namespace fuser {
namespace {

// The input's strides as expressions: 0, 1, products of inner sizes where contiguous, else a
// symbol.
std::vector<Expr> input_strides(Exprs& exprs, const Tensor& tensor, int input,
                                const LayoutClass& layout, const std::vector<Expr>& extents) {
  std::vector<Expr> strides(tensor.rank(), exprs.constant(0));
  Expr inner = exprs.constant(1);
  for (size_t i = layout.order.size(); i-- > 0;) {
    const int d = layout.order[i];
    strides[d] = layout.contiguous[i] ? inner : exprs.symbol(Symbol::Stride, input, d);
    inner = exprs.mul(strides[d], extents[d]);
  }
  return strides;
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

// For each axis, how far out it lies in a tensor's memory (larger: outer), or -1 where the tensor
// does not tell.
std::vector<int> ranks_by_axis(const std::vector<Expr>& at, const std::vector<int>& order,
                               int axes) {
  std::vector<int> rank(axes, -1);
  for (size_t i = 0; i < order.size(); ++i) {
    Expr coordinate = at[order[i]];
    if (coordinate->is_symbol(Symbol::Axis))
      rank[coordinate->a] = static_cast<int>(order.size() - i);
  }
  return rank;
}

// torch's rule for the layout of a pointwise result: go through the operands in order; the first
// one in which both axes have a stride decides which of the two is inner.
std::vector<AxisId> memory_order(int axes, const std::vector<AxisId>& logical,
                                 const std::vector<std::vector<int>>& tellers) {
  std::vector<AxisId> order = logical;
  const auto outer_first = [&](AxisId x, AxisId y) {  // 1: x is outer, -1: y is, 0: nobody tells
    for (const auto& rank : tellers)
      if (rank[x] >= 0 && rank[y] >= 0 && rank[x] != rank[y]) return rank[x] > rank[y] ? 1 : -1;
    return 0;
  };
  // Insertion sort, as torch's: with "nobody tells" between, the relation is no order for
  // std::sort.
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

}  // namespace

LayoutClass layout_class(std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  const int rank = static_cast<int>(sizes.size());
  LayoutClass out;
  out.one.resize(rank);
  out.expanded.resize(rank);
  for (int d = 0; d < rank; ++d) {
    out.one[d] = sizes[d] == 1;
    out.expanded[d] = !out.one[d] && strides[d] == 0;
    if (!out.one[d] && !out.expanded[d]) out.order.push_back(d);
  }
  std::stable_sort(out.order.begin(), out.order.end(),
                   [&](int a, int b) { return strides[a] > strides[b]; });
  int64_t expected = 1;
  out.contiguous.resize(out.order.size());
  for (size_t i = out.order.size(); i-- > 0;) {
    const int d = out.order[i];
    out.contiguous[i] = strides[d] == expected;
    expected = strides[d] * sizes[d];
  }
  return out;
}

void append_key(const LayoutClass& l, std::vector<uint64_t>& key) {
  uint64_t one = l.on_cpu_scalar ? uint64_t{1} << 63 : 0, expanded = 0, contiguous = 0;
  for (size_t d = 0; d < l.one.size(); ++d) {
    one |= uint64_t{l.one[d]} << d;
    expanded |= uint64_t{l.expanded[d]} << d;
  }
  for (size_t i = 0; i < l.contiguous.size(); ++i) contiguous |= uint64_t{l.contiguous[i]} << i;
  key.insert(key.end(), {one, expanded, contiguous});
  for (int d : l.order) key.push_back(static_cast<uint64_t>(d));
}

std::string to_string(const LayoutClass& l) {
  std::vector<std::string> parts(l.one.size());
  for (size_t d = 0; d < parts.size(); ++d) parts[d] = l.one[d] ? "1" : l.expanded[d] ? "0" : "";
  for (size_t i = 0; i < l.order.size(); ++i)
    parts[l.order[i]] = text(i, l.contiguous[i] ? "c" : "s");
  return text("[", joined(parts, " "), l.on_cpu_scalar ? " cpu]" : "]");
}

Problem make_problem(const Fusion& fusion, Refined refined, const std::vector<LayoutClass>& layouts,
                     const std::vector<bool>& in_place) {
  Problem p{.refined = std::move(refined),
            .order = {},
            .buffers = {},
            .accesses = {},
            .output_order = {}};
  Exprs& exprs = p.refined.exprs;
  const int axes = static_cast<int>(p.refined.axes.size());
  const auto extents = [&](const Tensor& t) {
    std::vector<Expr> out;
    for (Expr e : t.shape) out.push_back(rewrite(exprs, e, [](Expr) -> Expr { return nullptr; }));
    return out;
  };
  std::unordered_map<int, int> buffer_of_input;
  const auto input_buffer = [&](const Tensor* t, int input) {
    const auto [it, fresh] = buffer_of_input.try_emplace(input, static_cast<int>(p.buffers.size()));
    if (fresh) p.buffers.push_back({.tensor = t, .input = input});
    return it->second;
  };

  std::vector<std::vector<int>> tellers;
  for (size_t v = 0; v < p.refined.values.size(); ++v) {
    const Value& value = p.refined.values[v];
    if (!std::holds_alternative<Read>(value.how)) continue;
    const int input = std::get<Input>(value.tensor->definition).index;
    const LayoutClass& layout = layouts[input];
    if (layout.on_cpu_scalar) continue;  // a parameter, not memory
    const int b = input_buffer(value.tensor, input);
    p.buffers[b].read = true;
    p.accesses.push_back({.store = false,
                          .index = static_cast<int>(v),
                          .buffer = b,
                          .dtype = value.dtype,
                          .at = value.at,
                          .tensor_strides = input_strides(exprs, *value.tensor, input, layout,
                                                          extents(*value.tensor)),
                          .strides = {}});
    tellers.push_back(ranks_by_axis(value.at, layout.order, axes));
  }
  for (const Store& s : p.refined.stores) {
    const Output& o = fusion.outputs[s.output];
    if (in_place[s.output])
      tellers.insert(tellers.begin(), ranks_by_axis(s.at, layouts[o.alias].order, axes));
  }

  std::vector<AxisId> logical;
  for (Expr e : p.refined.stores[0].at)
    if (e->is_symbol(Symbol::Axis)) logical.push_back(e->a);
  p.order = memory_order(axes, logical, tellers);

  for (size_t i = 0; i < p.refined.stores.size(); ++i) {
    const Store& s = p.refined.stores[i];
    const Output& o = fusion.outputs[s.output];
    MemoryAccess access{.store = true,
                        .index = static_cast<int>(i),
                        .buffer = 0,
                        .dtype = o.tensor->dtype,
                        .at = s.at,
                        .tensor_strides = {},
                        .strides = {}};
    std::vector<int> order;
    if (in_place[s.output]) {
      access.buffer = input_buffer(fusion.inputs[o.alias], o.alias);
      p.buffers[access.buffer].written = true;
      access.tensor_strides = input_strides(exprs, *fusion.inputs[o.alias], o.alias,
                                            layouts[o.alias], extents(*fusion.inputs[o.alias]));
    } else {
      // The dims in the order of their axes; dims of size 1 stay where they are.
      if (const auto* wanted = std::get_if<StrideOrder>(&o.tensor->definition)) {
        order.resize(o.tensor->rank());
        for (int d = 0; d < o.tensor->rank(); ++d)
          order[o.tensor->rank() - 1 - wanted->order[d]] = d;
      } else {
        std::vector<int> dim_of_axis(axes, -1);
        for (int d = 0; d < o.tensor->rank(); ++d)
          if (s.at[d]->is_symbol(Symbol::Axis)) dim_of_axis[s.at[d]->a] = d;
        size_t next = 0;
        for (int d = 0; d < o.tensor->rank(); ++d)
          order.push_back(s.at[d]->is_symbol(Symbol::Axis) ? dim_of_axis[p.order[next++]] : d);
      }
      access.buffer = static_cast<int>(p.buffers.size());
      p.buffers.push_back({.tensor = o.tensor, .output = s.output, .written = true});
      access.tensor_strides = dense_strides(exprs, extents(*o.tensor), order);
    }
    p.output_order.push_back(std::move(order));
    p.accesses.push_back(std::move(access));
  }
  for (MemoryAccess& a : p.accesses) a.strides = strides(exprs, a.at, a.tensor_strides, axes);
  return p;
}

bool Hints::divides(Expr value, int64_t divisor) const {
  if (divisor == 1 || value->is_constant(0)) return true;
  if (value->is_constant()) return value->value.integer % divisor == 0;
  for (size_t i = 0; i < facts.size(); ++i)
    if (facts[i].value == value && facts[i].divisor == divisor) return truth[i];
  throw Fault(FaultKind::Internal, "internal",
              text("a plan asks whether ", divisor, " divides ", to_string(value),
                   ", which match() did not collect"));
}

}  // namespace fuser
