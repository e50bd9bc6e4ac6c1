// Chooses, on the Fusion and by structure alone, which mul+add pairs become one fma.
//
// Arithmetic is fixed before scheduling: kernels are compiled without contraction (--fmad=false,
// -ffp-contract=off), so that a size that becomes a constant, a removed predicate or another
// machine never moves a rounding. A mul joins the add or sub that is its only user; where both
// operands qualify the first wins. What is summed by a reduction stays a mul: how its partial
// results are combined is the reduction's own.
#include "fusion/access.h"

namespace fuser {

std::vector<int> contract(const Fusion& fusion) {
  std::vector<int> uses(fusion.tensors.size(), 0);
  for (const Tensor& t : fusion.tensors)
    for (const Tensor* a : operands(t)) ++uses[a->id];
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
