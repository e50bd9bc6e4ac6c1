// Chooses, on the Fusion and by structure alone, the products that become part of an fma, and the
// float comparisons that become integer comparisons.
//
// Arithmetic is fixed before scheduling. Kernels are compiled without contraction (--fmad=false,
// -ffp-contract=off), so that a constant size, a removed predicate or another machine never changes
// a rounding. A mul joins the add, sub or sum that is its only user, as a * b in a * b + c, under
// three rules. The rules keep expressions equal that are equal if every product is rounded.
//
// A rounded product is a product, quotient or power, or a sum that contains one. So is the result
// of exact operations on one: rows of 0 ULP in the op table, casts, moves and reductions. A
// difference is a sub, or an add of operands of which one contains a negation or subtraction.
//
// 1. No mul joins the difference of two rounded products: a * b - c * d is 0 if both are equal. 2.
// No mul joins a sum of two rounded products, or a reduction, that becomes an operand of a
// difference as in rule 1 by exact operations: x * x + y * y - 2 * x * y is 0 if x is y. Another
// example is mean(x * x) - mean(x) * mean(x). 3. Expressions of one form, regardless of the order
// of operands, are treated alike. If one cannot be an fma, by these rules or because its product
// has other users or fewer elements, then no expression of that form is. If two products have one
// form, neither joins; else the forms determine which one joins.
//
// Allowed are a * b + c, with c an input, a constant, the result of a function, or a sum of these;
// f(a) * b + c * d; and sums of products over elements.
#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_set>

#include "fusion/index/access.h"

namespace fuser::fusion {

using namespace ir;

namespace {

// Returns a constant of a floating dtype, nullopt if the operand is not one.
std::optional<double> real_constant(const Access& a) {
  if (!a.otherwise || !a.otherwise->is_constant() || kind_of(a.otherwise->dtype) != Kind::Float)
    return {};
  return a.otherwise->value.real;
}

// x = n * unit, with n the value of `integer`. Conversion and product are exact: the integer has at
// most 24 bits, and the unit is a power of two.
struct Scaled {
  ValueId integer = -1;
  double unit = 0.0;
};

std::optional<Scaled> scaled_integer(const std::vector<Value>& values, ValueId x) {
  constexpr int exact_bits = 24;
  const auto* product = x < 0 ? nullptr : std::get_if<Apply>(&values[x].how);
  if (!product || product->op != Op::mul || product->compute != DType::Float32) return {};
  const std::optional<double> unit = real_constant(product->args[1]);
  if (product->args[0].value < 0 || !unit) return {};
  const auto* convert = std::get_if<Convert>(&values[product->args[0].value].how);
  if (!convert || convert->arg.value < 0) return {};
  const Value& integer = values[convert->arg.value];
  const auto* shift = std::get_if<Apply>(&integer.how);
  if (!shift || shift->op != Op::logical_right_shift || integer.dtype != DType::Int32) return {};
  const Expr bits = shift->args[1].otherwise;
  if (!bits || !bits->is_constant() || bits->value.integer < 32 - exact_bits) return {};
  int exponent = 0;
  if (std::frexp(*unit, &exponent) != 0.5 || std::abs(exponent) > 60) return {};
  return Scaled{.integer = convert->arg.value, .unit = *unit};
}

}  // namespace

// A Bernoulli draw compares a random number in [0, 1) with a probability.
void compare_integers(Exprs& exprs, const std::vector<Value>& values, Apply& comparison) {
  const Op op = comparison.op;
  const bool up = op == Op::ge || op == Op::lt;
  if (!up && op != Op::gt && op != Op::le) return;
  const std::optional<double> limit = real_constant(comparison.args[1]);
  if (comparison.compute != DType::Float32 || !limit) return;
  const auto x = scaled_integer(values, comparison.args[0].value);
  if (!x) return;
  const double units = static_cast<double>(static_cast<float>(*limit)) / x->unit;
  if (!(std::abs(units) < 0x1p30)) return;
  const double n = up ? std::ceil(units) : std::floor(units);
  comparison.compute = DType::Int32;
  comparison.args = {{.value = x->integer},
                     {.otherwise = exprs.cast(DType::Int32, exprs.constant(int64_t(n)))}};
}

std::vector<bool> live_tensors(const Fusion& fusion) {
  std::vector<bool> found(fusion.tensors.size(), false);
  for (const Output& o : fusion.outputs) found[o.tensor->id] = true;
  for (size_t i = fusion.tensors.size(); i-- > 0;) {
    if (!found[i]) continue;
    for (const Tensor* a : ir::operands(fusion.tensors[i])) found[a->id] = true;
  }
  return found;
}

namespace {

// Returns whether the result of the op may be the value of an operand.
bool is_exact(const Pointwise& p) {
  return row(p.op).ulp == 0 && row(p.op).rule != ResultRule::Predicate;
}

// By tensor: True if it may be a rounded product, or a sum that contains one.
std::vector<bool> rounded_products(const Fusion& fusion) {
  std::vector<bool> found(fusion.tensors.size(), false);
  for (const Tensor& t : fusion.tensors) {
    const auto* p = std::get_if<Pointwise>(&t.definition);
    const auto* r = std::get_if<Reduction>(&t.definition);
    found[t.id] = r ? row(r->op).multiplies()
                    : p && (p->op == Op::mul || p->op == Op::truediv || p->op == Op::div ||
                            p->op == Op::reciprocal || p->op == Op::pow);
    if ((p && !is_exact(*p)) || std::holds_alternative<Library>(t.definition)) continue;
    for (const Tensor* a : ir::operands(t)) found[t.id] = found[t.id] || found[a->id];
  }
  return found;
}

bool is_sum(const Pointwise& p) { return p.op == Op::add || p.op == Op::sub; }

// By tensor: True if it contains a negation or subtraction.
std::vector<bool> negated_parts(const Fusion& fusion) {
  std::vector<bool> found(fusion.tensors.size(), false);
  for (const Tensor& t : fusion.tensors) {
    const auto* p = std::get_if<Pointwise>(&t.definition);
    if ((p && !is_exact(*p)) || std::holds_alternative<Library>(t.definition)) continue;
    found[t.id] = p && (p->op == Op::neg || p->op == Op::sub);
    if (p)
      for (const Operand& a : p->args)
        if (!a.tensor && a.scalar->is_constant() && kind_of(a.scalar->dtype) == Kind::Float)
          found[t.id] = found[t.id] || a.scalar->value.real < 0;
    for (const Tensor* a : ir::operands(t)) found[t.id] = found[t.id] || found[a->id];
  }
  return found;
}

// Returns whether t is a sum or difference of two rounded products.
bool sums_products(const Tensor& t, const std::vector<bool>& products) {
  const auto* p = std::get_if<Pointwise>(&t.definition);
  const std::vector<const Tensor*> args = ir::operands(t);
  return p && is_sum(*p) && args.size() == 2 && products[args[0]->id] && products[args[1]->id];
}

// By tensor: True if it is a difference of two rounded products, or becomes an operand of one by
// exact operations or multiplication by a number.
std::vector<bool> compared_products(const Fusion& fusion, const std::vector<bool>& products) {
  const std::vector<bool> negated = negated_parts(fusion);
  std::vector<bool> found(fusion.tensors.size(), false);
  for (size_t i = fusion.tensors.size(); i-- > 0;) {
    const Tensor& t = fusion.tensors[i];
    const std::vector<const Tensor*> args = ir::operands(t);
    const auto* p = std::get_if<Pointwise>(&t.definition);
    if (sums_products(t, products) && negated[i]) found[i] = true;
    if (!found[i] || (p && !is_exact(*p))) continue;
    if (p && p->op == Op::mul && args.size() > 1) continue;
    const bool quotient = p && (p->op == Op::truediv || p->op == Op::div);
    for (const Tensor* a : args)
      if (!quotient || a == p->args[0].tensor) found[a->id] = true;
  }
  return found;
}

// By tensor: a hash of the form of its expression. The form ignores which inputs and numbers occur,
// the order of operands, signs, shapes and movement ops.
std::vector<uint64_t> forms(const Fusion& fusion) {
  constexpr uint64_t leaf = 0x9E3779B97F4A7C15;
  const auto mixed = [](uint64_t h, uint64_t x) {
    h = (h ^ x) * 0xBF58476D1CE4E5B9;
    return h ^ (h >> 29);
  };
  std::vector<uint64_t> out(fusion.tensors.size(), leaf);
  for (const Tensor& t : fusion.tensors) {
    std::vector<uint64_t> args;
    if (const auto* p = std::get_if<Pointwise>(&t.definition)) {
      for (const Operand& a : p->args) args.push_back(a.tensor ? out[a.tensor->id] : leaf);
      const bool any_order =
          is_sum(*p) || p->op == Op::mul || p->op == Op::minimum || p->op == Op::maximum;
      if (any_order) std::sort(args.begin(), args.end());
      if (p->op == Op::neg) {
        out[t.id] = args[0];
        continue;
      }
      uint64_t h = mixed(static_cast<uint64_t>(p->op == Op::sub ? Op::add : p->op) + 2,
                         static_cast<uint64_t>(p->compute) + 1);
      for (uint64_t a : args) h = mixed(h, a);
      out[t.id] = h;
    } else if (const auto* c = std::get_if<Cast>(&t.definition)) {
      out[t.id] = mixed(mixed(1000, static_cast<uint64_t>(t.dtype) + 1), out[c->arg->id]);
    } else if (const auto* r = std::get_if<Reduction>(&t.definition)) {
      out[t.id] = mixed(mixed(1001, static_cast<uint64_t>(r->op) + 1), out[r->arg->id]);
    } else if (const auto* further = std::get_if<Result>(&t.definition)) {
      out[t.id] = mixed(mixed(1002, static_cast<uint64_t>(further->index)), out[further->of->id]);
    } else if (const auto* taken = std::get_if<TakeAlongAxis>(&t.definition)) {
      out[t.id] = out[taken->arg->id];
    } else if (!std::holds_alternative<Library>(t.definition)) {
      for (const Tensor* a : ir::operands(t)) args.push_back(out[a->id]);
      std::sort(args.begin(), args.end());
      args.erase(std::unique(args.begin(), args.end()), args.end());
      if (args.size() == 1) out[t.id] = args[0];
      if (args.size() < 2) continue;
      for (uint64_t a : args) out[t.id] = mixed(out[t.id], a);
    }
  }
  return out;
}

bool is_float(DType d) { return d == DType::Float32 || d == DType::Float64; }

// Returns the products that t sums up and that are rounded to its compute type first.
std::vector<const Tensor*> summed_products(const Tensor& t) {
  std::vector<const Tensor*> out;
  const auto take = [&](const Tensor* a, DType compute) {
    const auto* p = a && is_float(compute) ? std::get_if<Pointwise>(&a->definition) : nullptr;
    if (p && p->op == Op::mul && p->compute == compute) out.push_back(a);
  };
  const auto* r = std::get_if<Reduction>(&t.definition);
  const auto* p = std::get_if<Pointwise>(&t.definition);
  if (r && row(r->op).adds()) take(r->arg, r->compute);
  if (p && is_sum(*p))
    for (const Operand& a : p->args) take(a.tensor, p->compute);
  return out;
}

}  // namespace

std::vector<int> contract(const Fusion& fusion) {
  const std::vector<bool> counts = live_tensors(fusion);
  std::vector<int> uses(fusion.tensors.size(), 0);
  for (const Tensor& t : fusion.tensors) {
    if (!counts[t.id]) continue;
    for (const Tensor* a : ir::operands(t)) ++uses[a->id];
  }
  for (const Output& o : fusion.outputs) ++uses[o.tensor->id];

  const std::vector<bool> rounded = rounded_products(fusion);
  const std::vector<bool> compared = compared_products(fusion, rounded);
  const std::vector<uint64_t> form = forms(fusion);
  std::vector<int> absorbed(fusion.tensors.size(), -1);
  std::unordered_set<uint64_t> separate;
  for (const Tensor& t : fusion.tensors) {
    if (!counts[t.id]) continue;
    const std::vector<const Tensor*> products = summed_products(t);
    if (products.empty()) continue;
    const bool sums_up = std::holds_alternative<Reduction>(t.definition);
    const Tensor* first = products[0];
    bool joins = !compared[t.id] || !(sums_up || sums_products(t, rounded));
    if (products.size() > 1) {
      joins = joins && form[first->id] != form[products[1]->id];
      if (form[first->id] < form[products[1]->id]) first = products[1];
    }
    // A product over fewer elements is cheaper than one product per element of the sum.
    if (joins && uses[first->id] == 1 && (sums_up || first->shape == t.shape))
      absorbed[t.id] = first->id;
    else
      separate.insert(form[t.id]);
  }
  for (size_t i = 0; i < absorbed.size(); ++i)
    if (separate.count(form[i])) absorbed[i] = -1;
  return absorbed;
}

}  // namespace fuser::fusion
