#include "fusion/access.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/error.h"

namespace fuser {
namespace {

struct Point {
  const Tensor* tensor;
  std::vector<Expr> at;
  bool operator<(const Point& o) const {
    if (tensor->id != o.tensor->id) return tensor->id < o.tensor->id;
    return std::lexicographical_compare(at.begin(), at.end(), o.at.begin(), o.at.end(),
                                        [](Expr x, Expr y) { return x->id < y->id; });
  }
};

bool is_movement(const Tensor& t) {
  return std::holds_alternative<Broadcast>(t.definition) ||
         std::holds_alternative<Expand>(t.definition) ||
         std::holds_alternative<Squeeze>(t.definition) ||
         std::holds_alternative<Permute>(t.definition) ||
         std::holds_alternative<StrideOrder>(t.definition);
}

// One step of a movement op: where its operand is read.
Point step(Exprs& exprs, const Point& p) {
  return std::visit(
      [&](const auto& d) -> Point {
        using D = std::decay_t<decltype(d)>;
        std::vector<Expr> at;
        if constexpr (std::is_same_v<D, Broadcast>) {
          for (size_t i = 0; i < d.is_broadcast.size(); ++i)
            if (!d.is_broadcast[i]) at.push_back(p.at[i]);
          return {d.arg, std::move(at)};
        } else if constexpr (std::is_same_v<D, Expand>) {
          for (int i = 0; i < d.arg->rank(); ++i)
            at.push_back(d.arg->shape[i]->is_constant(1) ? exprs.constant(0) : p.at[i]);
          return {d.arg, std::move(at)};
        } else if constexpr (std::is_same_v<D, Squeeze>) {
          size_t next = 0;
          for (int i = 0; i < d.arg->rank(); ++i)
            at.push_back(std::binary_search(d.dims.begin(), d.dims.end(), i) ? exprs.constant(0)
                                                                             : p.at[next++]);
          return {d.arg, std::move(at)};
        } else if constexpr (std::is_same_v<D, Permute>) {
          at.resize(d.dims.size());
          for (size_t i = 0; i < d.dims.size(); ++i) at[d.dims[i]] = p.at[i];
          return {d.arg, std::move(at)};
        } else if constexpr (std::is_same_v<D, StrideOrder>) {
          return {d.arg, p.at};
        } else {
          FUSER_ASSERT(false, "t", p.tensor->id, " does not move elements");
        }
      },
      p.tensor->definition);
}

// An operand of a pointwise op: the same coordinates, 0 along its dims of size 1.
Point operand(Exprs& exprs, const Tensor* arg, const std::vector<Expr>& at) {
  Point p{arg, at};
  for (int d = 0; d < arg->rank(); ++d)
    if (arg->shape[d]->is_constant(1)) p.at[d] = exprs.constant(0);
  while (is_movement(*p.tensor)) p = step(exprs, p);
  return p;
}

// A group under construction.
struct Group {
  const Fusion& fusion;
  const std::vector<int>& absorbed;
  const std::vector<bool>& narrow;
  Refined refined;
  std::map<Point, ValueId> known;
  std::unordered_map<Expr, Expr> imported;
  std::map<int, std::vector<Expr>> read_at;  // first coordinates at which each input is read
  int component = 0;                         // of the connected component it belongs to
  std::vector<Expr> shape;                   // of its first output, in the fusion's arena
  std::vector<Expr> shape_at;

  Expr import(Expr e) {
    Expr& image = imported[e];
    if (!image) image = rewrite(refined.exprs, e, [](Expr) -> Expr { return nullptr; });
    return image;
  }

  ValueId append(const Point& p, DType dtype, decltype(Value::how) how, AxisSet axes) {
    const auto id = static_cast<ValueId>(refined.values.size());
    refined.values.push_back(
        {.tensor = p.tensor, .at = p.at, .dtype = dtype, .how = std::move(how), .axes = axes});
    known.emplace(p, id);
    return id;
  }

  AxisSet axes_of(const std::vector<Expr>& at) const {
    AxisSet axes = 0;
    visit(at, [&](Expr e) {
      if (e->is_symbol(Symbol::Axis)) axes |= AxisSet{1} << e->a;
    });
    return axes;
  }

  // The points that the value at p is computed from; fma operands in place of an absorbed product.
  std::vector<Point> needs(const Point& p) {
    std::vector<Point> out;
    if (const auto* d = std::get_if<Pointwise>(&p.tensor->definition)) {
      for (const Operand& a : d->args) {
        if (!a.tensor) continue;
        if (a.tensor->id == absorbed[p.tensor->id]) {
          for (const Operand& f : std::get<Pointwise>(a.tensor->definition).args)
            if (f.tensor) out.push_back(operand(refined.exprs, f.tensor, p.at));
        } else {
          out.push_back(operand(refined.exprs, a.tensor, p.at));
        }
      }
    } else if (const auto* c = std::get_if<Cast>(&p.tensor->definition)) {
      out.push_back(operand(refined.exprs, c->arg, p.at));
    }
    return out;
  }

  Access access(const Operand& a, const std::vector<Expr>& at) {
    if (!a.tensor) return {.otherwise = import(a.scalar)};
    return {.value = known.at(operand(refined.exprs, a.tensor, at))};
  }

  AxisSet axes_of(std::span<const Access> args) const {
    AxisSet axes = 0;
    for (const Access& a : args)
      if (a.value >= 0) axes |= refined.values[a.value].axes;
    return axes;
  }

  // Appends a value that stands for no tensor of its own: a negated operand of an fma.
  Access negated(const Access& a, DType compute) {
    if (a.value < 0)
      return {.otherwise =
                  refined.exprs.apply(Op::neg, {refined.exprs.cast(compute, a.otherwise)})};
    const Value& v = refined.values[a.value];
    refined.values.push_back({.tensor = v.tensor,
                              .at = v.at,
                              .dtype = compute,
                              .how = Apply{.op = Op::neg, .compute = compute, .args = {a}},
                              .axes = v.axes});
    return {.value = static_cast<ValueId>(refined.values.size()) - 1};
  }

  void compute(const Point& p) {
    const Tensor& t = *p.tensor;
    if (std::holds_alternative<Input>(t.definition)) {
      read_at.try_emplace(t.id, p.at);
      append(p, t.dtype, Read{}, axes_of(p.at));
    } else if (const auto* f = std::get_if<Full>(&t.definition)) {
      append(p, t.dtype, Uniform{refined.exprs.cast(t.dtype, import(f->value))}, 0);
    } else if (const auto* c = std::get_if<Cast>(&t.definition)) {
      const Access a = access({.tensor = c->arg}, p.at);
      append(p, t.dtype, Convert{a}, axes_of({&a, 1}));
    } else if (const auto* d = std::get_if<Pointwise>(&t.definition)) {
      const bool short_form = narrow[t.id] && d->compute == DType::Float32;
      Apply how{.op = short_form ? half_form(d->op) : d->op, .compute = d->compute, .args = {}};
      if (absorbed[t.id] >= 0) {
        const bool first = d->args[0].tensor && d->args[0].tensor->id == absorbed[t.id];
        const auto& product = std::get<Pointwise>(d->args[first ? 0 : 1].tensor->definition);
        Access x = access(product.args[0], p.at), y = access(product.args[1], p.at);
        Access z = access(d->args[first ? 1 : 0], p.at);
        if (d->op == Op::sub) {  // x * y - z, or z - x * y
          if (first)
            z = negated(z, d->compute);
          else
            x = negated(x, d->compute);
        }
        how.op = Op::fma;
        how.args = {x, y, z};
      } else {
        for (const Operand& a : d->args) how.args.push_back(access(a, p.at));
      }
      const AxisSet axes = axes_of(how.args);
      append(p, t.dtype, std::move(how), axes);
    } else {
      FUSER_ASSERT(false, "t", t.id, " has no value of its own");
    }
  }

  // Computes the value at `root` and everything it needs; iterative.
  ValueId demand(const Point& root) {
    std::vector<std::pair<Point, bool>> open{{root, false}};
    while (!open.empty()) {
      auto [p, expanded] = std::move(open.back());
      open.pop_back();
      if (known.count(p)) continue;
      if (expanded) {
        compute(p);
        continue;
      }
      std::vector<Point> next = needs(p);
      open.emplace_back(std::move(p), true);
      for (auto it = next.rbegin(); it != next.rend(); ++it)
        if (!known.count(*it)) open.emplace_back(std::move(*it), false);
    }
    return known.at(root);
  }

  void add_store(int output, const std::vector<Expr>& at) {
    const Tensor* t = fusion.outputs[output].tensor;
    const ValueId v = demand(operand(refined.exprs, t, at));
    refined.stores.push_back({.output = output, .access = {.value = v}, .at = at});
  }
};

// Where the largest operand chain of `t` ends: an input, and for each of its dims the dim of `t`
// that indexes it
// (-1: none). One path, so that the cost does not grow with the graph's width.
struct Anchor {
  const Tensor* input = nullptr;
  std::vector<int> dims;
};

Anchor anchor(const Tensor* t) {
  Exprs exprs;
  Point p{t, {}};
  for (int d = 0; d < t->rank(); ++d) p.at.push_back(exprs.symbol(Symbol::Axis, d));
  const auto extent_count = [](const Tensor* x) {
    return std::count_if(x->shape.begin(), x->shape.end(),
                         [](Expr e) { return !e->is_constant(1); });
  };
  while (true) {
    if (is_movement(*p.tensor)) {
      p = step(exprs, p);
      continue;
    }
    const std::vector<const Tensor*> args = operands(*p.tensor);
    if (args.empty()) break;
    const Tensor* best = *std::max_element(
        args.begin(), args.end(),
        [&](const Tensor* x, const Tensor* y) { return extent_count(x) < extent_count(y); });
    for (int d = 0; d < best->rank(); ++d)
      if (best->shape[d]->is_constant(1)) p.at[d] = exprs.constant(0);
    p.tensor = best;
  }
  Anchor a;
  if (!std::holds_alternative<Input>(p.tensor->definition)) return a;
  a.input = p.tensor;
  for (Expr e : p.at) a.dims.push_back(e->is_symbol(Symbol::Axis) ? e->a : -1);
  return a;
}

// Coordinates for the dims of `t` in an existing group, or nothing when no offer holds.
std::optional<std::vector<Expr>> join(Group& group, const Tensor* t, const Anchor& anchor) {
  std::vector<Expr> at(t->rank(), nullptr);
  for (int d = 0; d < t->rank(); ++d)
    if (t->shape[d]->is_constant(1)) at[d] = group.refined.exprs.constant(0);
  const auto complete = [&] {
    AxisSet used = 0;
    for (int d = 0; d < t->rank(); ++d) {
      if (!at[d]) return false;
      if (!at[d]->is_symbol(Symbol::Axis)) continue;
      const AxisSet bit = AxisSet{1} << at[d]->a;
      if ((used & bit) || group.refined.axes[at[d]->a].extent != group.import(t->shape[d]))
        return false;
      used |= bit;
    }
    return static_cast<size_t>(__builtin_popcountll(used)) == group.refined.axes.size();
  };
  if (anchor.input) {
    const auto it = group.read_at.find(anchor.input->id);
    if (it != group.read_at.end()) {
      for (size_t d = 0; d < anchor.dims.size(); ++d)
        if (anchor.dims[d] >= 0 && it->second[d]->is_symbol(Symbol::Axis))
          at[anchor.dims[d]] = it->second[d];
      if (complete()) return at;
    }
  }
  if (t->shape != group.shape) return std::nullopt;
  return group.shape_at;
}

// Connected components of the graph, inputs included: fusions that share nothing are separate
// kernels.
std::vector<int> components(const Fusion& fusion) {
  std::vector<int> parent(fusion.tensors.size());
  for (size_t i = 0; i < parent.size(); ++i) parent[i] = static_cast<int>(i);
  const auto find = [&](int x) {
    while (parent[x] != x) x = parent[x] = parent[parent[x]];
    return x;
  };
  for (const Tensor& t : fusion.tensors)
    for (const Tensor* a : operands(t)) parent[find(t.id)] = find(a->id);
  std::vector<int> out(parent.size());
  for (size_t i = 0; i < parent.size(); ++i) out[i] = find(static_cast<int>(i));
  return out;
}

int buffers(const Refined& r) {
  int reads = 0;
  for (const Value& v : r.values) reads += std::holds_alternative<Read>(v.how);
  return reads + static_cast<int>(r.stores.size());
}

}  // namespace

std::vector<Refined> refine(const Fusion& fusion) {
  const std::vector<int> absorbed = contract(fusion);
  const std::vector<bool> narrow = ends_narrow(fusion);
  const std::vector<int> component = components(fusion);
  std::deque<Group> groups;
  for (size_t o = 0; o < fusion.outputs.size(); ++o) {
    const Tensor* t = fusion.outputs[o].tensor;
    const Anchor at_input = anchor(t);
    bool placed = false;
    // The newest group of the component takes it or a new one is opened: linear in the number of
    // outputs.
    for (auto g = groups.rbegin(); g != groups.rend() && !placed; ++g) {
      if (g->component != component[t->id]) continue;
      const bool full = static_cast<int>(g->refined.values.size()) > max_values / 2 ||
                        buffers(g->refined) > max_buffers / 2;
      if (full) break;
      if (const auto at = join(*g, t, at_input)) {
        g->add_store(static_cast<int>(o), *at);
        placed = true;
      }
    }
    if (placed) continue;
    Group& g = groups.emplace_back(Group{.fusion = fusion,
                                         .absorbed = absorbed,
                                         .narrow = narrow,
                                         .refined = {},
                                         .known = {},
                                         .imported = {},
                                         .read_at = {},
                                         .component = component[t->id],
                                         .shape = t->shape,
                                         .shape_at = {}});
    for (int d = 0; d < t->rank(); ++d) {
      if (t->shape[d]->is_constant(1)) {
        g.shape_at.push_back(g.refined.exprs.constant(0));
        continue;
      }
      g.shape_at.push_back(
          g.refined.exprs.symbol(Symbol::Axis, static_cast<int>(g.refined.axes.size())));
      g.refined.axes.push_back({.extent = g.import(t->shape[d])});
    }
    g.add_store(static_cast<int>(o), g.shape_at);
  }
  std::vector<Refined> out;
  for (Group& g : groups) {
    FUSER_CHECK(
        static_cast<int>(g.refined.values.size()) <= max_values, Unsupported, "kernel-size-1",
        "kernel too large: ", g.refined.values.size(), " statements are needed for output t",
        fusion.outputs[g.refined.stores[0].output].tensor->id, ", a kernel holds ", max_values,
        "\n  hint: split the definition in two, handing over an intermediate tensor");
    FUSER_CHECK(buffers(g.refined) <= max_buffers, Unsupported, "kernel-size-2",
                "kernel too large: ", buffers(g.refined),
                " tensor accesses are needed, a kernel holds ", max_buffers,
                "\n  hint: split the definition in two, handing over an intermediate tensor");
    out.push_back(std::move(g.refined));
  }
  return out;
}

std::optional<Linear> linear(Exprs& exprs, Expr coordinate, int axes) {
  const auto zero = [&] {
    return Linear{std::vector<Expr>(axes, exprs.constant(0)), exprs.constant(0)};
  };
  std::unordered_map<Expr, std::optional<Linear>> memo;
  visit(coordinate, [&](Expr e) {
    Linear out = zero();
    const auto is_free = [&](const Linear& l) {
      return std::all_of(l.coefficients.begin(), l.coefficients.end(),
                         [](Expr c) { return c->is_constant(0); });
    };
    if (e->is_symbol(Symbol::Axis)) {
      out.coefficients[e->a] = exprs.constant(1);
      memo[e] = std::move(out);
      return;
    }
    if (e->kind == ExprNode::Kind::Apply) {
      std::optional<Linear> x = memo[e->args[0]], y = e->arity > 1 ? memo[e->args[1]] : x;
      if (!x || !y) {
        memo[e] = std::nullopt;
        return;
      }
      const bool free = is_free(*x) && is_free(*y);
      if (!free && (e->op == Op::add || e->op == Op::sub)) {
        for (int a = 0; a < axes; ++a)
          out.coefficients[a] = exprs.apply(e->op, {x->coefficients[a], y->coefficients[a]});
        out.rest = exprs.apply(e->op, {x->rest, y->rest});
        memo[e] = std::move(out);
        return;
      }
      if (!free && e->op == Op::mul && (is_free(*x) || is_free(*y))) {
        if (is_free(*x)) std::swap(x, y);
        for (int a = 0; a < axes; ++a) out.coefficients[a] = exprs.mul(x->coefficients[a], y->rest);
        out.rest = exprs.mul(x->rest, y->rest);
        memo[e] = std::move(out);
        return;
      }
      if (!free) {
        memo[e] = std::nullopt;
        return;
      }
    }
    out.rest = e;
    memo[e] = std::move(out);
  });
  return memo[coordinate];
}

std::optional<Linear> strides(Exprs& exprs, const std::vector<Expr>& at,
                              const std::vector<Expr>& tensor_strides, int axes) {
  Linear out{std::vector<Expr>(axes, exprs.constant(0)), exprs.constant(0)};
  for (size_t d = 0; d < at.size(); ++d) {
    const auto l = linear(exprs, at[d], axes);
    if (!l) return std::nullopt;
    for (int a = 0; a < axes; ++a)
      out.coefficients[a] =
          exprs.add(out.coefficients[a], exprs.mul(l->coefficients[a], tensor_strides[d]));
    out.rest = exprs.add(out.rest, exprs.mul(l->rest, tensor_strides[d]));
  }
  return out;
}

}  // namespace fuser
