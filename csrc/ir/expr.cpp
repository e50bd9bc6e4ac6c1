#include "ir/expr.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace fuser::ir {
namespace {

uint64_t mix(uint64_t h, uint64_t v) {
  h ^= v + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
  return h * 0xff51afd7ed558ccdull;
}

bool is_index(Expr e) { return e->dtype == DType::Int64; }

// Strict order by structure: computed nodes before symbols, constants last. Two distinct nodes of
// one arena are never equal, so a single path down to the first difference suffices.
bool before(Expr x, Expr y) {
  while (x != y) {
    if (x->kind != y->kind) return x->kind > y->kind;
    const auto key = [](Expr e) {
      return std::tuple(e->op, e->symbol, e->a, e->b, e->dtype, e->arity, e->value.integer,
                        std::bit_cast<uint64_t>(e->value.real),
                        std::bit_cast<uint64_t>(e->value.imag));
    };
    if (key(x) != key(y)) return key(x) < key(y);
    int i = 0;
    while (x->args[i] == y->args[i]) ++i;
    const Expr x_arg = x->args[i], y_arg = y->args[i];
    x = x_arg;
    y = y_arg;
  }
  return false;
}

DType result_dtype(Op op, std::span<const Expr> args) {
  switch (row(op).rule) {
    case ResultRule::Same:
    case ResultRule::Common:
    case ResultRule::Float:
      return args[0]->dtype;
    case ResultRule::Predicate:
      return DType::Bool;
    case ResultRule::Real:
      return real_type(args[0]->dtype);
    case ResultRule::Complex:
      return complex_type(args[0]->dtype);
    case ResultRule::Condition:
      return args[1]->dtype;
  }
  return args[0]->dtype;
}

// Integer ops that IntProgram and folding support. They wrap as on the device.
int64_t apply_integer(Op op, int64_t x, int64_t y) {
  const auto ux = static_cast<uint64_t>(x), uy = static_cast<uint64_t>(y);
  switch (op) {
    case Op::add:
      return static_cast<int64_t>(ux + uy);
    case Op::sub:
      return static_cast<int64_t>(ux - uy);
    case Op::mul:
      return static_cast<int64_t>(ux * uy);
    case Op::div:
      return y == 0 ? -1 : y == -1 ? static_cast<int64_t>(-ux) : x / y;
    case Op::mod:
      return y == 0 ? x : y == -1 ? 0 : x % y;
    case Op::floor_divide:
    case Op::ceil_div:
    case Op::remainder: {
      const int64_t quotient = apply_integer(Op::div, x, y), rest = apply_integer(Op::mod, x, y);
      const bool between = y != 0 && rest != 0, below = (rest < 0) != (y < 0);
      if (op == Op::remainder) return between && below ? rest + y : rest;
      if (op == Op::floor_divide) return between && below ? quotient - 1 : quotient;
      return between && !below ? quotient + 1 : quotient;
    }
    case Op::maximum:
      return std::max(x, y);
    case Op::minimum:
      return std::min(x, y);
    case Op::neg:
      return static_cast<int64_t>(-ux);
    default:
      break;
  }
  throw Fault(
      FaultKind::Unsupported, "size-arithmetic-1",
      text(
          "a size may be computed with add, sub, mul, div, mod, floor_divide, ceil_div, remainder, "
          "minimum, maximum and neg; got ",
          row(op).name, "; compute it in Python and pass it as a scalar input"));
}

bool folds(Op op) {
  return op == Op::add || op == Op::sub || op == Op::mul || op == Op::div || op == Op::mod ||
         op == Op::floor_divide || op == Op::ceil_div || op == Op::remainder || op == Op::maximum ||
         op == Op::minimum;
}

}  // namespace

bool Number::operator==(const Number& o) const {
  return integer == o.integer && std::bit_cast<uint64_t>(real) == std::bit_cast<uint64_t>(o.real) &&
         std::bit_cast<uint64_t>(imag) == std::bit_cast<uint64_t>(o.imag);
}

size_t Exprs::Hash::operator()(Expr e) const {
  uint64_t h = mix(static_cast<uint64_t>(e->kind), static_cast<uint64_t>(e->dtype));
  h = mix(h, static_cast<uint64_t>(e->op));
  h = mix(h, static_cast<uint64_t>(e->symbol));
  h = mix(h, static_cast<uint64_t>(static_cast<uint32_t>(e->a)));
  h = mix(h, static_cast<uint64_t>(static_cast<uint32_t>(e->b)));
  h = mix(h, static_cast<uint64_t>(e->value.integer));
  h = mix(h, std::bit_cast<uint64_t>(e->value.real));
  h = mix(h, std::bit_cast<uint64_t>(e->value.imag));
  for (Expr a : e->operands()) h = mix(h, a->id);
  return h;
}

bool Exprs::Equal::operator()(Expr x, Expr y) const {
  return x->kind == y->kind && x->dtype == y->dtype && x->op == y->op && x->symbol == y->symbol &&
         x->a == y->a && x->b == y->b && x->arity == y->arity && x->value == y->value &&
         x->args == y->args;
}

Exprs Exprs::on_top_of(const Exprs& base) {
  Exprs out;
  out.base_ = &base;
  out.first_ = base.first_ + static_cast<uint32_t>(base.nodes_.size());
  return out;
}

Expr Exprs::find(const ExprNode& node) const {
  if (base_)
    if (Expr e = base_->find(node); e && e->id < first_) return e;
  const auto it = table_.find(&node);
  return it == table_.end() ? nullptr : *it;
}

Expr Exprs::intern(ExprNode node) {
  if (Expr e = find(node)) return e;
  node.id = first_ + static_cast<uint32_t>(nodes_.size());
  if (node.kind == ExprNode::Kind::Symbol) node.symbols = bit(node.symbol);
  for (Expr a : node.operands()) node.symbols |= a->symbols;
  nodes_.push_back(node);
  Expr e = &nodes_.back();
  table_.insert(e);
  return e;
}

Expr Exprs::constant(DType dtype, Number value) {
  return intern({.kind = ExprNode::Kind::Constant, .dtype = dtype, .value = value});
}

Expr Exprs::symbol(Symbol symbol, int a, int b, DType dtype) {
  return intern({.kind = ExprNode::Kind::Symbol, .dtype = dtype, .symbol = symbol, .a = a, .b = b});
}

Expr Exprs::element(int array, Expr index, DType dtype, int field) {
  return intern({.kind = ExprNode::Kind::Element,
                 .dtype = dtype,
                 .arity = 1,
                 .a = array,
                 .b = field,
                 .args = {index}});
}

Expr Exprs::cast(DType dtype, Expr value) {
  if (value->dtype == dtype) return value;
  if (value->is_constant()) {
    const Kind from = kind_of(value->dtype), to = kind_of(dtype);
    const Number& v = value->value;
    const bool integer = from == Kind::Bool || from == Kind::Int;
    const double real = integer ? static_cast<double>(v.integer) : v.real;
    if (dtype == DType::Float64 && from != Kind::Complex) return constant(dtype, {.real = real});
    if (dtype == DType::Float32 && from != Kind::Complex) {
      // Convert int64 to float32 directly: a conversion through float64 would round twice.
      const float f = integer ? static_cast<float>(v.integer) : static_cast<float>(real);
      return constant(dtype, {.real = f});
    }
    if (to == Kind::Bool && integer) return constant(dtype, {.integer = v.integer != 0});
    if (dtype == DType::Int64 && integer) return constant(dtype, {.integer = v.integer});
    if (dtype == DType::Int64 && from == Kind::Float && std::abs(real) < 0x1p63)
      return constant(dtype, {.integer = static_cast<int64_t>(real)});
  }
  return intern({.kind = ExprNode::Kind::Cast, .dtype = dtype, .arity = 1, .args = {value}});
}

Expr Exprs::fold_integer(Op op, Expr a, Expr b) {
  if (a->is_constant() && b->is_constant() && folds(op))
    return constant(apply_integer(op, a->value.integer, b->value.integer));
  switch (op) {
    case Op::add:
      if (a->is_constant(0)) return b;
      if (b->is_constant(0)) return a;
      break;
    case Op::sub:
      if (b->is_constant(0)) return a;
      if (a == b) return constant(0);
      break;
    case Op::mul:
      if (a->is_constant(1)) return b;
      if (b->is_constant(1)) return a;
      if (a->is_constant(0) || b->is_constant(0)) return constant(0);
      break;
    case Op::div:
    case Op::floor_divide:
    case Op::ceil_div:
      if (b->is_constant(1)) return a;
      if (b->is_constant(0)) return constant(-1);
      break;
    case Op::mod:
    case Op::remainder:
      if (b->is_constant(1)) return constant(0);
      if (b->is_constant(0)) return a;
      break;
    case Op::maximum:
    case Op::minimum:
      if (a == b) return a;
      break;
    default:
      break;
  }
  return nullptr;
}

Expr Exprs::apply(Op op, std::span<const Expr> args) {
  FUSER_ASSERT(args.size() == row(op).arity, row(op).name, " expects ", int(row(op).arity),
               " operands, got ", args.size());
  ExprNode node{.kind = ExprNode::Kind::Apply,
                .dtype = result_dtype(op, args),
                .arity = static_cast<uint8_t>(args.size()),
                .op = op};
  std::copy(args.begin(), args.end(), node.args.begin());
  if (args.size() == 2 && is_index(args[0]) && is_index(args[1])) {
    if (Expr folded = fold_integer(op, args[0], args[1])) return folded;
    if (op == Op::mul || op == Op::add) return in_order(op, args[0], args[1]);
  }
  return intern(node);
}

namespace {

bool is_apply(Expr e, Op op) { return e->kind == ExprNode::Kind::Apply && e->op == op; }

// `times` copies of `what`; a constant is that many copies of nullptr. The constant of a product is
// last.
struct Term {
  Expr what;
  uint64_t times = 1;
};

Term term_of(Expr e) {
  if (e->is_constant()) return {nullptr, static_cast<uint64_t>(e->value.integer)};
  if (!is_apply(e, Op::mul) || !e->args[1]->is_constant()) return {e};
  return {e->args[0], static_cast<uint64_t>(e->args[1]->value.integer)};
}

bool has_term(Expr sum, Expr what) {
  for (; is_apply(sum, Op::add); sum = sum->args[0])
    if (term_of(sum->args[1]).what == what) return true;
  return term_of(sum).what == what;
}

// Returns the factors from left to right; empty if there are too many, not counting constants. A
// product of products of itself has as many factors as there are paths to its leaves.
std::vector<Expr> few_factors(std::initializer_list<Expr> of) {
  constexpr size_t most = 256;
  size_t count = 0;
  std::vector<Expr> out, open(std::rbegin(of), std::rend(of));
  while (!open.empty()) {
    const Expr e = open.back();
    open.pop_back();
    if (is_apply(e, Op::mul)) {
      open.insert(open.end(), {e->args[1], e->args[0]});
    } else {
      if (!e->is_constant() && ++count > most) return {};
      out.push_back(e);
    }
  }
  return out;
}

// Returns the summands, each once. A summand with multiplicity 1 may turn out to be a sum itself.
std::vector<Term> terms(Expr a, Expr b) {
  std::vector<Term> out;
  std::unordered_map<Expr, size_t> place;
  std::vector<Expr> open{b, a};
  while (!open.empty()) {
    const Expr e = open.back();
    open.pop_back();
    if (is_apply(e, Op::add)) {
      open.insert(open.end(), {e->args[1], e->args[0]});
      continue;
    }
    const Term term = term_of(e);
    const auto [at, is_new] = place.emplace(term.what, out.size());
    if (is_new)
      out.push_back(term);
    else
      out[at->second].times += term.times;
    if (!open.empty()) continue;
    for (Term& t : out)
      if (t.what && t.times == 1 && is_apply(t.what, Op::add)) {
        open.push_back(t.what);
        t.times = 0;
      }
  }
  return out;
}

}  // namespace

// A sum or product leans left, its terms in the order of before(), one constant last. Equal
// summands are one term with a multiplicity: repeated doubling v + v would otherwise give as many
// terms as paths to its leaves.
Expr Exprs::in_order(Op op, Expr a, Expr b) {
  const auto pair = [&](Expr x, Expr y) {
    return intern({.kind = ExprNode::Kind::Apply,
                   .dtype = DType::Int64,
                   .arity = 2,
                   .op = op,
                   .args = {x, y}});
  };
  // The common case keeps the construction of a long sum linear: the new term is last.
  const Expr last = is_apply(a, op) ? a->args[1] : a;
  if (!is_apply(b, op) && !last->is_constant() && !before(b, last) &&
      (op == Op::mul || b->is_constant() || !has_term(a, term_of(b).what)))
    return pair(a, b);

  std::vector<Expr> parts;
  int64_t constant_part = op == Op::mul ? 1 : 0;
  if (op == Op::add) {
    for (const Term& t : terms(a, b)) {
      if (!t.what)
        constant_part = static_cast<int64_t>(t.times);
      else if (t.times != 0)
        parts.push_back(mul(t.what, constant(static_cast<int64_t>(t.times))));
    }
  } else {
    parts = few_factors({a, b});
    for (const Expr e : parts.empty() ? std::vector{a, b} : std::exchange(parts, {})) {
      const Term term = term_of(e);
      constant_part = apply_integer(op, constant_part, static_cast<int64_t>(term.times));
      if (term.what) parts.push_back(term.what);
    }
    if (constant_part == 0) return constant(0);
  }
  std::stable_sort(parts.begin(), parts.end(), before);
  if (constant_part != (op == Op::mul ? 1 : 0)) parts.push_back(constant(constant_part));
  if (parts.empty())
    return constant(0);  // an empty sum; a product of two constants was folded
                         // before
  Expr result = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) result = pair(result, parts[i]);
  return result;
}

Expr Exprs::ceil_div(Expr a, int64_t b) {
  return b == 1 ? a : div(add(a, constant(b - 1)), constant(b));
}

Expr Exprs::product(std::span<const Expr> factors) {
  Expr result = constant(1);
  for (Expr f : factors) result = mul(result, f);
  return result;
}

std::vector<Expr> factors(Expr product) {
  std::vector<Expr> out = few_factors({product});
  return out.empty() ? std::vector{product} : out;
}

DType compute_dtype(Expr e) {
  return row(e->op).rule == ResultRule::Condition ? e->args[1]->dtype : e->args[0]->dtype;
}

namespace {

// Set of visited nodes. Most traversals visit a few nodes, for which a hash table would be slow.
class Seen {
 public:
  bool count(Expr e) const {
    if (count_ > few) return all_.count(e);
    return std::find(first_.begin(), first_.begin() + count_, e) != first_.begin() + count_;
  }
  void insert(Expr e) {
    if (count_ == few) all_.insert(first_.begin(), first_.end());
    if (count_ < few)
      first_[count_] = e;
    else
      all_.insert(e);
    ++count_;
  }

 private:
  static constexpr int few = 16;
  std::array<Expr, few> first_;
  int count_ = 0;
  std::unordered_set<Expr> all_;
};

}  // namespace

void visit(std::span<const Expr> roots, const std::function<void(Expr)>& f,
           std::optional<Symbols> holding) {
  const auto wanted = [&](Expr e) { return !holding || (e->symbols & *holding); };
  if (roots.size() == 1 && roots[0]->arity == 0) {  // most traversals have one leaf
    if (wanted(roots[0])) f(roots[0]);
    return;
  }
  Seen done;
  std::vector<std::pair<Expr, bool>> open;
  for (auto it = roots.rbegin(); it != roots.rend(); ++it)
    if (wanted(*it)) open.emplace_back(*it, false);
  while (!open.empty()) {
    auto [e, expanded] = open.back();
    open.pop_back();
    if (done.count(e)) continue;
    if (expanded || e->arity == 0) {
      done.insert(e);
      f(e);
      continue;
    }
    open.emplace_back(e, true);
    for (int i = e->arity - 1; i >= 0; --i)
      if (wanted(e->args[i]) && !done.count(e->args[i])) open.emplace_back(e->args[i], false);
  }
}

Expr rewrite(Exprs& target, Expr root, const std::function<Expr(Expr)>& replace, Images& image) {
  std::vector<std::pair<Expr, bool>> open{{root, false}};
  while (!open.empty()) {
    auto [e, expanded] = open.back();
    open.pop_back();
    if (image.count(e)) continue;
    if (!expanded) {
      if (Expr r = replace(e)) {
        image[e] = r;
        continue;
      }
      open.emplace_back(e, true);
      for (Expr a : e->operands()) open.emplace_back(a, false);
      continue;
    }
    std::array<Expr, 3> args{};
    for (int i = 0; i < e->arity; ++i) args[i] = image.at(e->args[i]);
    switch (e->kind) {
      case ExprNode::Kind::Constant:
        image[e] = target.constant(e->dtype, e->value);
        break;
      case ExprNode::Kind::Symbol:
        image[e] = target.symbol(e->symbol, e->a, e->b, e->dtype);
        break;
      case ExprNode::Kind::Element:
        image[e] = target.element(e->a, args[0], e->dtype, e->b);
        break;
      case ExprNode::Kind::Apply:
        image[e] = target.apply(e->op, {args.data(), e->arity});
        break;
      case ExprNode::Kind::Cast:
        image[e] = target.cast(e->dtype, args[0]);
        break;
    }
  }
  return image.at(root);
}

int IntProgram::add(Expr root) {
  if (const auto known = slots_.find(root); known != slots_.end()) return known->second;
  visit(root, [&](Expr e) {
    if (slots_.count(e)) return;
    const bool integer = kind_of(e->dtype) == Kind::Bool || kind_of(e->dtype) == Kind::Int;
    FUSER_CHECK(integer, Unsupported, "size-arithmetic-1",
                "a size may be computed with integers only; got ", row(e->dtype).torch, " in ",
                to_string(root), "; compute it in Python and pass it as a scalar input");
    Step step{.kind = e->kind,
              .dtype = e->dtype,
              .op = e->op,
              .symbol = e->symbol,
              .a = e->a,
              .b = e->b,
              .value = e->value.integer};
    if (e->kind == ExprNode::Kind::Apply || e->kind == ExprNode::Kind::Cast) {
      step.a = slots_.at(e->args[0]);
      step.b = e->arity > 1 ? slots_.at(e->args[1]) : step.a;
    }
    slots_[e] = static_cast<int>(steps_.size());
    steps_.push_back(step);
  });
  return slots_.at(root);
}

void IntProgram::run(const Leaf& leaf, std::vector<int64_t>& values) const {
  values.clear();
  resume(leaf, values);
}

void IntProgram::resume(const Leaf& leaf, std::vector<int64_t>& values) const {
  const size_t first = values.size();
  values.resize(steps_.size());
  for (size_t i = first; i < steps_.size(); ++i) {
    const Step& s = steps_[i];
    switch (s.kind) {
      case ExprNode::Kind::Constant:
        values[i] = s.value;
        break;
      case ExprNode::Kind::Symbol:
        values[i] = leaf(s.symbol, s.a, s.b);
        break;
      case ExprNode::Kind::Cast:
        values[i] = wrap(s.dtype, values[s.a]);
        break;
      case ExprNode::Kind::Apply:
        values[i] = wrap(s.dtype, apply_integer(s.op, values[s.a], values[s.b]));
        break;
      case ExprNode::Kind::Element:
        throw Fault(FaultKind::Internal, "internal", "an integer program reads a register array");
    }
  }
}

}  // namespace fuser::ir
