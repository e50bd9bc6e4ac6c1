// Chooses, on the Fusion and by structure alone, which mul+add pairs become one fma, and which
// comparisons of floats are made of integers.
//
// Arithmetic is fixed before scheduling: kernels are compiled without contraction (--fmad=false,
// -ffp-contract=off), so that a size that becomes a constant, a removed predicate or another
// machine never moves a rounding. A mul joins the add or sub that is its only user; where both
// operands qualify the first wins. What is summed by a reduction stays a mul: how its partial
// results are combined is the reduction's own.
#include <cmath>
#include <optional>

#include "fusion/access.h"

namespace fuser {
namespace {

// A constant of a floating dtype.
std::optional<double> real_constant(const Access& a) {
  if (!a.otherwise || !a.otherwise->is_constant() || kind_of(a.otherwise->dtype) != Kind::Float)
    return {};
  return a.otherwise->value.real;
}

// x = n * unit, where n is the value of `integer` and both the conversion and the product are
// exact: an integer of at most 24 bits, and a power of two.
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

// A coin: a random number in [0, 1) against a probability.
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

std::vector<bool> wanted(const Fusion& fusion) {
  std::vector<bool> found(fusion.tensors.size(), false);
  for (const Output& o : fusion.outputs) found[o.tensor->id] = true;
  for (size_t i = fusion.tensors.size(); i-- > 0;) {
    if (!found[i]) continue;
    for (const Tensor* a : operands(fusion.tensors[i])) found[a->id] = true;
  }
  return found;
}

std::vector<int> contract(const Fusion& fusion) {
  const std::vector<bool> counts = wanted(fusion);
  std::vector<int> uses(fusion.tensors.size(), 0);
  for (const Tensor& t : fusion.tensors) {
    if (!counts[t.id]) continue;
    for (const Tensor* a : operands(t)) ++uses[a->id];
  }
  for (const Output& o : fusion.outputs) ++uses[o.tensor->id];

  std::vector<int> absorbed(fusion.tensors.size(), -1);
  for (const Tensor& t : fusion.tensors) {
    const auto* sum = std::get_if<Pointwise>(&t.definition);
    if (!sum || (sum->op != Op::add && sum->op != Op::sub)) continue;
    if (sum->compute != DType::Float32 && sum->compute != DType::Float64) continue;
    for (const Operand& a : sum->args) {
      if (!a.tensor || uses[a.tensor->id] != 1) continue;
      const auto* product = std::get_if<Pointwise>(&a.tensor->definition);
      // A mul in a narrower dtype is rounded before the add sees it.
      if (!product || product->op != Op::mul || product->compute != sum->compute) continue;
      // A product over fewer elements is cheaper than a product per element of the sum.
      if (a.tensor->shape != t.shape) continue;
      absorbed[t.id] = a.tensor->id;
      break;
    }
  }
  return absorbed;
}

}  // namespace fuser
