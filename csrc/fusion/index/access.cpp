#include "fusion/index/access.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"

namespace fuser::fusion {

using namespace ir;

void visit_operands(const Value& value, const std::function<void(ValueId)>& visit_value) {
  const auto loaded = [&](Expr coordinate) {
    visit(
        coordinate,
        [&](Expr e) {
          if (e->is_symbol(Symbol::Indirect)) visit_value(e->a);
        },
        ir::bit(Symbol::Indirect));
  };
  const auto access = [&](const Access& a) {
    if (a.value >= 0) visit_value(a.value);
    for (const Pred::Bound& b : a.in.bounds) loaded(b.coord);
  };
  std::visit(
      [&](const auto& how) {
        using H = std::decay_t<decltype(how)>;
        if constexpr (std::is_same_v<H, Read>) {
          for (Expr e : value.at) loaded(e);  // coordinates of its mask are among them
          for (const GatherIndex& i : how.indices) visit_value(i.given);
        }
        if constexpr (std::is_same_v<H, Coordinate>) loaded(how.at);
        if constexpr (requires { how.args; })
          for (const Access& a : how.args) access(a);
        if constexpr (std::is_same_v<H, Convert>) access(how.arg);
        if constexpr (std::is_same_v<H, Project>) visit_value(how.reduced);
      },
      value.how);
}

AxisSet axes_of(const std::vector<Expr>& at) {
  AxisSet axes = 0;
  visit(
      at,
      [&](Expr e) {
        if (e->is_symbol(Symbol::Axis)) axes |= AxisSet{1} << e->a;
      },
      ir::bit(Symbol::Axis));
  return axes;
}

namespace {

// Copies the parts of values into another arena and renames values by `image`.
struct Copier {
  Exprs& exprs;
  const std::vector<ValueId>& image;
  Images images{};

  Expr copy(Expr e) {
    if (!e) return nullptr;
    const auto loaded = [&](Expr n) -> Expr {
      return n->is_symbol(Symbol::Indirect) ? exprs.symbol(Symbol::Indirect, image[n->a]) : nullptr;
    };
    return rewrite(exprs, e, loaded, images);
  }
  std::vector<Expr> copies(std::vector<Expr> list) {
    for (Expr& e : list) e = copy(e);
    return list;
  }
  void map(Pred& in) {
    for (Pred::Bound& b : in.bounds) b = {copy(b.coord), copy(b.lo), copy(b.hi)};
  }
  void map(Access& a) {
    if (a.value >= 0) a.value = image[a.value];
    map(a.in);
    a.otherwise = copy(a.otherwise);
  }
  void map(std::vector<Access>& args) {
    for (Access& a : args) map(a);
  }
  void map(Read& read) {
    map(read.in);
    for (GatherIndex& i : read.indices) {
      i.given = image[i.given];
      i.size = copy(i.size);
      map(i.in);
    }
  }
  void map(Apply& apply) { map(apply.args); }
  void map(Convert& convert) { map(convert.arg); }
  void map(Select& select) { map(select.args); }
  void map(Splat& splat) { splat.scalar = copy(splat.scalar); }
  void map(Coordinate& coordinate) { coordinate.at = copy(coordinate.at); }
  void map(Reduced& reduced) { map(reduced.args); }
  void map(Project& project) { project.reduced = image[project.reduced]; }
};

}  // namespace

Refined extract(const std::vector<Axis>& axes, const std::vector<Value>& values,
                const std::vector<Store>& stores, std::vector<ValueId>& image) {
  std::vector<bool> live(values.size(), false);
  for (const Store& s : stores)
    if (s.access.value >= 0) live[s.access.value] = true;
  for (size_t v = values.size(); v-- > 0;)
    if (live[v]) visit_operands(values[v], [&](ValueId a) { live[a] = true; });

  Refined out;
  image.assign(values.size(), -1);
  Copier into{.exprs = out.exprs, .image = image};
  for (const Axis& a : axes) out.axes.push_back({.extent = into.copy(a.extent)});
  for (size_t v = 0; v < values.size(); ++v) {
    if (!live[v]) continue;
    Value value = values[v];
    // Coordinates of a value that is not a read may name values that were dropped.
    const bool read = std::holds_alternative<Read>(value.how);
    bool gone = false;
    visit(
        value.at,
        [&](Expr e) { gone = gone || (e->is_symbol(Symbol::Indirect) && image[e->a] < 0); },
        ir::bit(Symbol::Indirect));
    FUSER_ASSERT(!gone || !read, "a value is used at coordinates that are not computed");
    if (gone) {
      value.tensor = nullptr;
      value.at.clear();
    }
    value.at = into.copies(std::move(value.at));
    std::visit([&](auto& how) { into.map(how); }, value.how);
    image[v] = static_cast<ValueId>(out.values.size());
    out.values.push_back(std::move(value));
  }
  for (Store s : stores) {
    into.map(s.access);
    s.at = into.copies(std::move(s.at));
    out.stores.push_back(std::move(s));
  }
  return out;
}

std::optional<Linear> linear(Exprs& exprs, Expr coordinate, int axes) {
  const auto zero = [&] {
    return Linear{std::vector<Expr>(axes, exprs.constant(0)), exprs.constant(0)};
  };
  std::unordered_map<Expr, std::optional<Linear>> memo;
  constexpr Symbols moving = ir::bit(Symbol::Axis) | ir::bit(Symbol::Indirect);
  const auto form = [&](Expr e) -> std::optional<Linear> {
    if (e->symbols & moving) return memo.at(e);
    Linear out = zero();
    out.rest = e;
    return out;
  };
  const auto note = [&](Expr e) {
    Linear out = zero();
    const auto is_free = [&](const Linear& l) {
      return std::all_of(l.coefficients.begin(), l.coefficients.end(),
                         [](Expr c) { return c->is_constant(0); });
    };
    // A loaded coordinate has unknown neighbours.
    if (e->is_symbol(Symbol::Indirect)) {
      memo[e] = std::nullopt;
      return;
    }
    if (e->is_symbol(Symbol::Axis)) {
      out.coefficients[e->a] = exprs.constant(1);
      memo[e] = std::move(out);
      return;
    }
    if (e->kind == ExprNode::Kind::Apply) {
      std::optional<Linear> x = form(e->args[0]), y = e->arity > 1 ? form(e->args[1]) : x;
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
  };
  visit(coordinate, note, moving);
  return form(coordinate);
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

namespace {

// A coordinate as (of / divisor) % modulus; modulus nullptr if there is no remainder to take.
struct Part {
  Expr of, divisor, modulus = nullptr;
};

Part part_of(Exprs& exprs, Expr e) {
  Part p{.of = e, .divisor = exprs.constant(1)};
  const auto is = [&](Op op) { return p.of->kind == ExprNode::Kind::Apply && p.of->op == op; };
  if (is(Op::mod)) {
    p.modulus = p.of->args[1];
    p.of = p.of->args[0];
  }
  while (is(Op::div)) {
    p.divisor = exprs.mul(p.divisor, p.of->args[1]);
    p.of = p.of->args[0];
  }
  return p;
}

// Replaces (x / m, x % m) in two nested dims by x in `inner` and 0 in the outer dim. Returns false
// if no outer dim matches.
bool merge_part(Exprs& exprs, std::vector<Expr>& at, const std::vector<Expr>& tensor_strides,
                size_t inner) {
  const Part p = part_of(exprs, at[inner]);
  for (size_t outer = 0; p.modulus && outer < at.size(); ++outer) {
    if (outer == inner || tensor_strides[outer] != exprs.mul(tensor_strides[inner], p.modulus))
      continue;
    const Part q = part_of(exprs, at[outer]);
    if (q.of != p.of || q.divisor != exprs.mul(p.divisor, p.modulus)) continue;
    at[inner] = exprs.div(p.of, p.divisor);
    if (q.modulus) at[inner] = exprs.mod(at[inner], exprs.mul(p.modulus, q.modulus));
    at[outer] = exprs.constant(0);
    return true;
  }
  return false;
}

}  // namespace

void merge_parts(Exprs& exprs, std::vector<Expr>& at, const std::vector<Expr>& tensor_strides) {
  for (size_t inner = at.size(); inner-- > 0;)
    while (merge_part(exprs, at, tensor_strides, inner)) {
    }
}

}  // namespace fuser::fusion
