#include "fusion/build/rebuild.h"

#include <unordered_map>

#include "base/error.h"
#include "fusion/build/define.h"
#include "fusion/build/rules.h"

namespace fuser::fusion {

using namespace ir;

BroadcastDims dims_of_size(const Constraint& constraint, bool right) {
  const Tensor* t = right ? constraint.right_tensor : constraint.left_tensor;
  const Expr size = t->shape[right ? constraint.right_dim : constraint.left_dim];
  for (const Tensor* from = t; from; t = from ? from : t) {
    from = nullptr;
    for (const Tensor* a : ir::operands(*t))
      if (!from && rules::dim_of_size(a, size) >= 0) from = a;
  }
  BroadcastDims out;
  for (int d = 0; d < t->rank(); ++d)
    if (t->shape[d] == size) out.insert({t->id, d});
  return out;
}

namespace {

// Copies the tensors of a fusion by applying the shape rules that created them.
struct Rebuilder {
  const SizeReplacement& leaf;
  const KnownSizes& known;
  Fusion out{};
  Images images{};

  Expr mapped(Expr e) {
    const auto replace = [&](Expr n) -> Expr {
      if (n->is_symbol(Symbol::Extent)) return out.tensors[n->a].shape[n->b];
      return n->is_symbol(Symbol::Size) ? leaf(out.exprs, n) : nullptr;
    };
    return rewrite(out.exprs, e, replace, images);
  }
  std::vector<Expr> mapped(std::vector<Expr> list) {
    for (Expr& e : list)
      if (e) e = mapped(e);
    return list;
  }
  const Tensor* at(const Tensor* t) const { return &out.tensors[t->id]; }
  std::vector<const Tensor*> at(const std::vector<const Tensor*>& list) const {
    std::vector<const Tensor*> images;
    for (const Tensor* t : list) images.push_back(at(t));
    return images;
  }

  // A kind of definition without an append() does not compile.
  void tensor(const Tensor& t) {
    out.composite = t.composite;
    std::visit([&](const auto& d) { append(t, d); }, t.definition);
    FUSER_ASSERT(out.tensors.size() == static_cast<size_t>(t.id) + 1, "rebuild() lost the ids at t",
                 t.id);
    const BroadcastDims& ones = known.ones;
    for (auto one = ones.lower_bound({t.id, 0}); one != ones.end() && one->first == t.id; ++one)
      out.tensors.back().shape[one->second] = out.exprs.constant(1);
  }

  void append(const Tensor& t, const Input& d) {
    out.inputs.push_back(rules::append(out, t.dtype, mapped(t.shape), d, t.location));
  }

  void append(const Tensor& t, const Pointwise& d) {
    std::vector<Operand> args;
    for (const Operand& a : d.args)
      args.push_back(a.tensor ? Operand{.tensor = at(a.tensor)}
                              : Operand{.scalar = mapped(a.scalar)});
    pointwise(out, d.op, args, t.location);
  }

  void append(const Tensor& t, const Cast& d) { cast(out, at(d.arg), t.dtype, t.location); }

  void append(const Tensor& t, const Full& d) {
    full(out, mapped(t.shape), mapped(d.value), t.dtype, t.location);
  }

  void append(const Tensor& t, const Reduction& d) {
    reduce(out, d.op, at(d.arg), d.dims, d.identity, t.location);
  }

  void append(const Tensor& t, const Result& d) { result(out, at(d.of), d.index, t.location); }

  void append(const Tensor& t, const Iota&) { iota(out, mapped(t.shape[0]), t.location); }

  void append(const Tensor& t, const TakeAlongAxis& d) {
    take_along_axis(out, at(d.arg), at(d.index), d.dim, d.same_sizes, t.location);
  }

  template <MovementOp D>
  void append(const Tensor& t, D d) {
    d.arg = at(d.arg);
    visit_fields(d, [&]<class T>(const auto&, T& value) {
      if constexpr (std::is_same_v<T, Expr> || std::is_same_v<T, std::vector<Expr>>)
        value = mapped(value);
    });
    movement(out, std::move(d), t.location);
  }

  void append(const Tensor& t, SplitDim d) {
    const auto it = known.parts.find(t.id);
    const Expr wanted = d.sizes[0]->is_constant(-1) ? nullptr : d.sizes[0];
    if (it != known.parts.end()) d.sizes = {it->second.first, it->second.second};
    d.arg = at(d.arg);
    d.sizes = mapped(d.sizes);
    const Tensor* arg = d.arg;
    const Expr outer = d.sizes[0];
    const int64_t dim = d.dim;
    movement(out, std::move(d), t.location);
    // The known size replaces the requested one, which must be equal.
    if (it != known.parts.end() && wanted)
      rules::require(out, text("split_dim(t", arg->id, ", ", dim, ")"), arg, dim, mapped(wanted),
                     outer, rules::split_law);
  }

  void append(const Tensor& t, const Pad& d) {
    pad(out, at(d.arg), mapped(d.before), mapped(d.after), mapped(d.value), t.location);
  }

  void append(const Tensor& t, const Cat& d) { cat(out, at(d.args), d.dim, t.location); }

  void append(const Tensor& t, const Library& d) {
    library(out, d.op, at(d.args), d.attributes, mapped(d.given), t.location);
  }

  void append(const Tensor&, const std::monostate&) {}

  // Copies the outputs except temporaries and superseded ones. Output::input is copied as it is:
  // here two tensors of the definition may have become one, which must not change it.
  void outputs(const Fusion& from) {
    for (const Output& o : from.outputs) {
      if (o.temp || o.superseded) continue;
      Output made = o;
      made.tensor = at(o.tensor);
      if (o.alias >= 0) require_alias(out, *made.tensor, o.alias);
      out.outputs.push_back(made);
    }
  }
};

// Returns the rule in terms of another fusion whose tensors have equal ids. `images`: one cache per
// `leaf`.
Constraint carried_over(const Constraint& c, Fusion& to, const SizeReplacement& leaf,
                        Images& images) {
  const auto replace = [&](Expr n) -> Expr {
    return n->is_symbol(Symbol::Size) ? leaf(to.exprs, n) : nullptr;
  };
  Constraint out = c;
  out.left = rewrite(to.exprs, c.left, replace, images);
  out.right = rewrite(to.exprs, c.right, replace, images);
  out.left_tensor = &to.tensors[c.left_tensor->id];
  out.right_tensor = &to.tensors[c.right_tensor->id];
  return out;
}

// Returns whether exactly one side of the rule is a dim of size 1, which broadcasts.
bool is_of_broadcast(const Constraint& c) {
  return c.left != c.right && ((c.left_dim >= 0 && c.left->is_constant(1)) ||
                               (c.right_dim >= 0 && c.right->is_constant(1)));
}

}  // namespace

Fusion rebuild(const Fusion& fusion, const SizeReplacement& leaf, const KnownSizes& known) {
  Rebuilder of{.leaf = leaf, .known = known};
  Fusion& out = of.out;
  for (const ScalarInput& s : fusion.scalars)
    out.scalars.push_back({.dtype = s.dtype, .symbol = of.mapped(s.symbol)});
  for (const Tensor& t : fusion.tensors) of.tensor(t);
  out.composite = fusion.composite;
  out.arguments = fusion.arguments;
  out.random = fusion.random;
  of.outputs(fusion);
  return std::move(out);
}

Fusion specialize(const Fusion& fusion, const std::vector<std::vector<bool>>& ones,
                  const KnownSizes& known) {
  const auto size = [&](Exprs& target, Expr s) -> Expr {
    for (auto is = known.sizes.end(); s->is_symbol(Symbol::Size); s = is->second)
      if ((is = known.sizes.find({s->a, s->b})) == known.sizes.end()) break;
    if (s->is_constant()) return target.constant(s->value.integer);
    return ones[s->a][s->b] ? target.constant(1) : target.symbol(Symbol::Size, s->a, s->b);
  };
  Fusion first = rebuild(fusion, size, known);
  // Replace sizes that must be equal by one name: the static size if there is one, else the first
  // symbol.
  std::unordered_map<Expr, Expr> parent;
  const auto find = [&](Expr e) {
    while (parent.count(e)) e = parent.at(e);
    return e;
  };
  for (const Constraint& c : first.constraints) {
    Expr a = find(c.left), b = find(c.right);
    if (a == b) continue;
    const auto simple = [](Expr e) { return e->is_constant() || e->is_symbol(Symbol::Size); };
    if (!simple(a) || !simple(b) || (a->is_constant() && b->is_constant())) continue;
    if (b->is_constant() || (!a->is_constant() && b->id < a->id)) std::swap(a, b);
    parent[b] = a;
  }
  if (parent.empty()) return first;
  const auto named = [&](Exprs& target, Expr s) -> Expr {
    const Expr r = find(s);
    return r->is_constant() ? target.constant(r->value.integer)
                            : target.symbol(Symbol::Size, r->a, r->b);
  };
  Fusion second = rebuild(first, named, {.ones = known.ones});
  // The second fusion no longer shows the rules that made sizes equal, but they must still be
  // checked as they were. Rules in which the names make one side broadcast are dropped.
  const auto as_it_was = [](Exprs&, Expr) -> Expr { return nullptr; };
  Images by_name, unnamed;
  std::vector<Constraint> constraints;
  for (const Constraint& c : first.constraints)
    if (!is_of_broadcast(carried_over(c, second, named, by_name)))
      constraints.push_back(carried_over(c, second, as_it_was, unnamed));
  second.constraints = std::move(constraints);
  return second;
}

}  // namespace fuser::fusion
