// Demanded precision: chooses, on the Fusion and by structure alone, the transcendental ops that
// may use their short form (ops.h: half_form).
//
// A float32 value that reaches memory only as a float of 16 bits or fewer need not be correct to
// the last bit. The error of a short form is less than an eighth of half a float16 ULP. On its way
// to memory the value may pass through ops that do not amplify an error beyond the size of their
// operands. If a sum cancels, its error is at most 2^-13 of its larger operand; rounding that
// operand to bfloat16 would cause an error of 2^-9.
#include "fusion/index/access.h"

namespace fuser::fusion {

using namespace ir;

namespace {

// A sum of positive values has at most the relative error of its terms.
bool sums_exponentials(const Tensor& t) {
  const auto* r = std::get_if<Reduction>(&t.definition);
  if (!r || r->op != ReduceOp::sum || r->compute != DType::Float32) return false;
  const auto* p = std::get_if<Pointwise>(&r->arg->definition);
  return p && p->op == Op::exp;
}

bool passes_on(const Tensor& t) {
  if (sums_exponentials(t)) return true;
  const auto* p = std::get_if<Pointwise>(&t.definition);
  // A log turns a relative error into an absolute one, which is small compared with the log of a
  // sum of exponentials.
  if (p && p->op == Op::log) {
    const Tensor* of = p->args[0].tensor;
    while (const auto* b = of ? std::get_if<Broadcast>(&of->definition) : nullptr) of = b->arg;
    return of && sums_exponentials(*of);
  }
  // Movement ops pass errors on. Other reductions do not, because the errors of many elements add
  // up.
  if (!p)
    return !std::holds_alternative<Input>(t.definition) &&
           !std::holds_alternative<Reduction>(t.definition) &&
           !std::holds_alternative<Result>(t.definition) &&
           !std::holds_alternative<Library>(t.definition);
  if (p->compute != DType::Float32) return false;
  switch (p->op) {
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::neg:
    case Op::truediv:
    case Op::reciprocal:
    case Op::abs:
    case Op::set:
    case Op::relu:
    case Op::minimum:
    case Op::maximum:
    case Op::where:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::vector<bool> demanded_narrow(const Fusion& fusion) {
  // Backwards: a tensor has narrow demanded precision if it has a use and every use has.
  std::vector<bool> used(fusion.tensors.size(), false), narrow(fusion.tensors.size(), true);
  for (const Output& o : fusion.outputs) {
    used[o.tensor->id] = true;
    narrow[o.tensor->id] = false;
  }
  const std::vector<bool> counts = live_tensors(fusion);
  for (size_t i = fusion.tensors.size(); i-- > 0;) {
    const Tensor& t = fusion.tensors[i];
    if (!counts[i]) continue;
    bool use_is_narrow = false;
    if (std::holds_alternative<Cast>(t.definition)) {
      use_is_narrow = kind_of(t.dtype) == Kind::Float && size_of(t.dtype) <= 2;
    } else {
      use_is_narrow = used[i] && narrow[i] && passes_on(t);
    }
    for (const Tensor* a : ir::operands(t)) {
      used[a->id] = true;
      narrow[a->id] = narrow[a->id] && use_is_narrow;
    }
  }
  for (size_t i = 0; i < narrow.size(); ++i) narrow[i] = narrow[i] && used[i];
  return narrow;
}

}  // namespace fuser::fusion
