#include "fusion/kernel/problem.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "fusion/index/layouts.h"

namespace fuser::fusion {

using namespace ir;

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

namespace {

bool adds(Expr e) {
  return e->kind == ExprNode::Kind::Apply && (e->op == Op::add || e->op == Op::sub);
}

// Returns the axes of a coordinate that is an axis, or a sum over axes as merged dims, slices and
// parts of a cat produce. The axes are outermost first: an outer axis is multiplied by more sizes.
std::vector<AxisId> axes_in(Expr coordinate) {
  std::vector<AxisId> out;
  if (coordinate->is_symbol(Symbol::Axis)) return {coordinate->a};
  if (!adds(coordinate)) return out;
  std::vector<std::pair<int, AxisId>> found;  // number of factors that multiply the axis
  std::vector<std::pair<Expr, int>> open{{coordinate, 0}};
  while (!open.empty()) {
    const auto [e, factors] = open.back();
    open.pop_back();
    if (e->is_symbol(Symbol::Axis)) found.emplace_back(factors, e->a);
    const bool scales = e->kind == ExprNode::Kind::Apply && e->op == Op::mul;
    if (!adds(e) && !scales) continue;
    for (Expr x : e->operands()) open.emplace_back(x, factors + scales);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& x, const auto& y) { return x.first > y.first; });
  for (const auto& f : found) out.push_back(f.second);
  return out;
}

// For each axis, its rank in a tensor's memory (larger: outer), or -1 if the tensor does not
// determine it.
std::vector<int> ranks_by_axis(const std::vector<Expr>& at, const std::vector<int>& order,
                               int axes) {
  std::vector<int> rank(axes, -1);
  int next = static_cast<int>(order.size()) + axes;
  for (int d : order)
    for (AxisId a : axes_in(at[d])) rank[a] = next--;
  return rank;
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

namespace {

// Returns the axes in the order in which the dims of the outputs name them, or the dims of the
// full-rank access with the most axes.
std::vector<AxisId> logical_order(const Problem& p) {
  const auto named = [](const std::vector<Expr>& at) {
    std::vector<AxisId> out;
    for (Expr e : at)
      for (AxisId a : axes_in(e))
        if (std::find(out.begin(), out.end(), a) == out.end()) out.push_back(a);
    return out;
  };
  std::vector<AxisId> order = named(p.refined.stores[0].at);
  for (const MemoryAccess& a : p.accesses) {
    std::vector<AxisId> more = named(a.at);
    if (more.size() > order.size()) order = std::move(more);
  }
  for (int a = 0; a < static_cast<int>(p.refined.axes.size()); ++a)
    if (std::find(order.begin(), order.end(), a) == order.end()) order.push_back(a);
  return order;
}

struct Maker {
  const Fusion& fusion;
  const std::vector<LayoutClass>& layouts;
  const std::vector<bool>& in_place;
  OutputOrders& orders;
  Problem p{};
  std::map<std::pair<int, int>, int> buffers{};  // (input, output) -> buffer

  Exprs& exprs() { return p.refined.exprs; }
  bool stored_in_place(const Store& s) const {
    return s.output < static_cast<int>(in_place.size()) && in_place[s.output];
  }

  std::vector<Expr> extents(const Tensor& t) {
    std::vector<Expr> out;
    for (Expr e : t.shape) out.push_back(rewrite(exprs(), e, [](Expr) -> Expr { return nullptr; }));
    return out;
  }

  BufferUse& buffer(const Tensor* t, int input, int output, int& index) {
    const auto [it, fresh] =
        buffers.try_emplace({input, output}, static_cast<int>(p.buffers.size()));
    if (fresh) p.buffers.push_back({.tensor = t, .input = input, .output = output});
    return p.buffers[index = it->second];
  }

  int axis_count() const { return static_cast<int>(p.refined.axes.size()); }

  // Appends the reads. Returns for each the ranks that it determines (ranks_by_axis()).
  std::vector<std::vector<int>> reads() {
    const int axes = axis_count();
    std::vector<std::vector<int>> tellers;
    for (size_t v = 0; v < p.refined.values.size(); ++v) {
      const Value& value = p.refined.values[v];
      const auto* read = std::get_if<Read>(&value.how);
      if (!read) continue;
      MemoryAccess access{.store = false,
                          .index = static_cast<int>(v),
                          .buffer = 0,
                          .dtype = value.dtype,
                          .at = value.at,
                          .tensor_strides = {},
                          .strides = {},
                          .in = read->in};
      if (read->output >= 0) {
        buffer(value.tensor, -1, read->output, access.buffer).read = true;
        const std::vector<int>& order = orders.at(read->output);
        access.tensor_strides = dense_strides(exprs(), extents(*value.tensor), order);
        tellers.push_back(ranks_by_axis(value.at, order, axes));
      } else {
        const int input = std::get<Input>(value.tensor->definition).index;
        const LayoutClass& layout = layouts[input];
        if (layout.on_cpu_scalar) continue;  // a parameter, not memory
        buffer(value.tensor, input, -1, access.buffer).read = true;
        access.tensor_strides =
            input_strides(exprs(), *value.tensor, input, layout, extents(*value.tensor));
        tellers.push_back(ranks_by_axis(value.at, layout.order, axes));
      }
      p.accesses.push_back(std::move(access));
    }
    return tellers;
  }

  // Returns the dims of an allocated output, outermost first: for a result the order of
  // result_orders(), for a temporary the memory order of its axes.
  std::vector<int> store_order(const Store& s) const {
    const Tensor& t = *fusion.outputs[s.output].tensor;
    const auto known = orders.find(s.output);
    if (known != orders.end()) return known->second;
    return dims_in_order(t.rank(), s.at, p.order);
  }

  void store(size_t i) {
    const Store& s = p.refined.stores[i];
    const Output& o = fusion.outputs[s.output];
    MemoryAccess access{.store = true,
                        .index = static_cast<int>(i),
                        .buffer = 0,
                        .dtype = o.tensor->dtype,
                        .at = s.at,
                        .tensor_strides = {},
                        .strides = {},
                        .in = {}};
    std::vector<int> order;
    if (stored_in_place(s)) {
      const Tensor& target = *fusion.inputs[o.alias];
      buffer(&target, o.alias, -1, access.buffer).written = true;
      access.tensor_strides =
          input_strides(exprs(), target, o.alias, layouts[o.alias], extents(target));
    } else {
      order = store_order(s);
      orders.emplace(s.output, order);
      buffer(o.tensor, -1, s.output, access.buffer).written = true;
      access.tensor_strides = dense_strides(exprs(), extents(*o.tensor), order);
    }
    p.output_order.push_back(std::move(order));
    p.accesses.push_back(std::move(access));
  }

  // If as many tensors have a reduced axis innermost as have a kept axis innermost, then prefers
  // the reduced axis, so that results decide the order. A norm over the channels of [images,
  // channels, pixels] whose result is [images, pixels, channels] then stages an uncoalesced tile
  // (schedulers/analysis/staging_tile.h) and keeps rows on chip. With the kept axis innermost it
  // would read its input three times and copy the result.
  void prefer_rows(std::vector<std::vector<int>>& tellers) const {
    const int axes = axis_count();
    int along = 0, across = 0;
    const auto lies_along = [&](const std::vector<int>& ranks) {
      const auto near = std::min_element(ranks.begin(), ranks.end()) - ranks.begin();
      const bool all = std::find(ranks.begin(), ranks.end(), -1) == ranks.end();
      const bool rows = all && (p.reduced >> near & 1);
      along += rows;
      across += all && !rows;
      return rows;
    };
    for (const std::vector<int>& ranks : tellers) lies_along(ranks);
    std::vector<int> wanted;
    for (const Store& s : p.refined.stores) {
      const auto known = orders.find(s.output);
      if (stored_in_place(s) || known == orders.end()) continue;
      std::vector<int> ranks = ranks_by_axis(s.at, known->second, axes);
      if (lies_along(ranks) && wanted.empty()) wanted = std::move(ranks);
    }
    if (!wanted.empty() && along >= across) tellers.insert(tellers.begin(), std::move(wanted));
  }

  // axes: the memory order of the axes if it is already known, else nullptr.
  Problem make(Refined refined, const std::vector<AxisId>* axes) {
    p.refined = std::move(refined);
    const auto sets = reduction_sets(p.refined);
    FUSER_ASSERT(sets, "a kernel expects valid sets of reduced axes");
    p.reduced = sets->rows;
    p.columns = sets->columns;
    std::vector<std::vector<int>> tellers = reads();
    for (const Store& s : p.refined.stores)
      if (stored_in_place(s))
        tellers.insert(
            tellers.begin(),
            ranks_by_axis(s.at, layouts[fusion.outputs[s.output].alias].order, axis_count()));
    // Results decide about axes that no read determines, as those of an upsampled image.
    for (const Store& s : p.refined.stores)
      if (const auto known = orders.find(s.output);
          !p.reduced && known != orders.end() && !stored_in_place(s))
        tellers.push_back(ranks_by_axis(s.at, known->second, axis_count()));
    const auto told = [](const std::vector<int>& ranks) {
      return std::count_if(ranks.begin(), ranks.end(), [](int r) { return r >= 0; });
    };
    // Tensors of full rank decide before tensors of lower rank, which are read once for many
    // elements.
    if (p.reduced)
      std::stable_sort(tellers.begin(), tellers.end(),
                       [&](const auto& x, const auto& y) { return told(x) > told(y); });
    if (p.reduced && !p.columns) prefer_rows(tellers);
    p.order = axes ? *axes : memory_order(axis_count(), logical_order(p), tellers);
    if (sets->either && (p.columns >> p.order.back() & 1)) std::swap(p.reduced, p.columns);
    for (size_t i = 0; i < p.refined.stores.size(); ++i) store(i);
    for (MemoryAccess& a : p.accesses) {
      merge_parts(exprs(), a.at, a.tensor_strides);
      a.strides = strides(exprs(), a.at, a.tensor_strides, axis_count());
    }
    return std::move(p);
  }
};

}  // namespace

Problem make_problem(const Fusion& fusion, Refined refined, const std::vector<LayoutClass>& layouts,
                     const std::vector<bool>& in_place, OutputOrders& orders) {
  const auto maker = [&] {
    return Maker{.fusion = fusion, .layouts = layouts, .in_place = in_place, .orders = orders};
  };
  std::optional<Refined> shorter = single_pass(refined);
  Problem p = maker().make(std::move(refined), nullptr);
  if (!shorter) return p;
  p.single_pass = std::make_unique<Problem>(maker().make(std::move(*shorter), &p.order));
  // A launch passes the buffers of one problem, whichever form was lowered. Both forms have equal
  // buffers: the single-pass form computes fewer values, but the values that it drops read tensors
  // that remaining values read, in the same order.
  const auto same = [](const BufferUse& a, const BufferUse& b) {
    return a.input == b.input && a.output == b.output;
  };
  FUSER_ASSERT(std::equal(p.buffers.begin(), p.buffers.end(), p.single_pass->buffers.begin(),
                          p.single_pass->buffers.end(), same),
               "the two forms of a kernel have different buffers");
  return p;
}

std::vector<int> dims_in_order(int rank, const std::vector<Expr>& at,
                               const std::vector<AxisId>& order) {
  std::vector<int> dim_of_axis(order.size(), -1);  // by the innermost axis of a dim
  for (int d = 0; d < rank; ++d)
    if (const std::vector<AxisId> axes = axes_in(at[d]); !axes.empty())
      dim_of_axis[axes.back()] = d;
  std::vector<int> ordered, out;
  for (AxisId a : order)
    if (dim_of_axis[a] >= 0) ordered.push_back(dim_of_axis[a]);
  size_t next = 0;
  for (int d = 0; d < rank; ++d) out.push_back(axes_in(at[d]).empty() ? d : ordered[next++]);
  return out;
}

AxisId near_axis(const MemoryAccess& a) {
  if (!a.strides) return -1;
  AxisId nearest = -1;
  int64_t least = 0;
  for (size_t i = 0; i < a.strides->coefficients.size(); ++i) {
    Expr c = a.strides->coefficients[i];
    const int64_t distance = c->is_constant() ? std::abs(c->value.integer) : 0;
    if (distance && (nearest < 0 || distance < least)) {
      nearest = static_cast<AxisId>(i);
      least = distance;
    }
  }
  return nearest;
}

AxisSet axes_of(const Problem& problem, const MemoryAccess& access) {
  AxisSet axes = 0;
  visit(
      access.at,
      [&](Expr e) {
        if (e->is_symbol(Symbol::Axis)) axes |= AxisSet{1} << e->a;
        if (e->is_symbol(Symbol::Indirect)) axes |= problem.refined.values[e->a].axes;
      },
      ir::bit(Symbol::Axis) | ir::bit(Symbol::Indirect));
  return axes;
}

bool waits_for_reads(const Problem& problem, const MemoryAccess& store) {
  return problem.buffers[store.buffer].read;
}

bool is_loaded(const MemoryAccess& access) {
  return std::any_of(access.at.begin(), access.at.end(),
                     [](Expr e) { return e->has(Symbol::Indirect); });
}

}  // namespace fuser::fusion
