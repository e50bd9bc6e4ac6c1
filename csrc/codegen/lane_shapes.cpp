// How expressions of CPU kernels vary over lanes. Offsets between lanes are constants if an index
// is divided by constants and lane 0 is known modulo them: a load is contiguous then, and a shuffle
// moves its elements into lanes.
#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "codegen/cpp_expr.h"

namespace fuser::codegen {

using namespace ir;

namespace {

LaneShape varies() { return {.kind = LaneShape::Varying}; }

Congruence normal(int64_t modulus, int64_t residue) {
  constexpr int64_t most = int64_t{1} << 31;  // products of two are exact
  if (std::abs(modulus) >= most || std::abs(residue) >= most) return {};
  if (modulus == 0) return {0, residue};
  modulus = std::abs(modulus);
  return {modulus, (residue % modulus + modulus) % modulus};
}

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

// Returns whether the quotient by `by` is known. C++ rounds towards zero, and a lane in front of an
// operand of a cat has a negative coordinate, so a remainder is known of exact numbers alone.
bool divides(Congruence a, int64_t by) {
  return by > 0 && a.modulus % by == 0 &&
         (a.residue % by == 0 || (a.modulus == 0 && a.residue >= 0));
}

// Returns the congruence of an op's result.
Congruence congruence_of(Expr e, const std::vector<LaneShape>& operands) {
  const Congruence a = operands[0].first;
  const Congruence b = operands.size() > 1 ? operands[1].first : Congruence{};
  switch (e->op) {
    case Op::add:
      return normal(std::gcd(a.modulus, b.modulus), a.residue + b.residue);
    case Op::sub:
      return normal(std::gcd(a.modulus, b.modulus), a.residue - b.residue);
    case Op::neg:
      return normal(a.modulus, -a.residue);
    case Op::mul: {
      const int64_t others = std::gcd(a.modulus * b.residue, b.modulus * a.residue);
      return normal(std::gcd(a.modulus * b.modulus, others), a.residue * b.residue);
    }
    case Op::div:
    case Op::mod: {
      const int64_t by = b.residue;
      if (b.modulus || !divides(a, by)) return {};
      if (e->op == Op::mod) return normal(0, a.residue % by);
      return normal(a.modulus / by, a.residue / by);
    }
    default:
      return {};
  }
}

LaneShape of_offsets(Exprs& exprs, std::vector<int64_t> offsets, Congruence first) {
  const int64_t step = offsets.size() > 1 ? offsets[1] : 0;
  bool linear = true;
  for (size_t i = 0; i < offsets.size(); ++i)
    linear &= offsets[i] == static_cast<int64_t>(i) * step;
  if (linear && step == 0) return {.first = first};
  if (linear) return {.kind = LaneShape::Linear, .step = exprs.constant(step), .first = first};
  return {.kind = LaneShape::Pattern, .offsets = std::move(offsets), .first = first};
}

}  // namespace

std::vector<int64_t> LanePrinter::offsets_of(const LaneShape& s) const {
  if (s.kind == LaneShape::Pattern) return s.offsets;
  std::vector<int64_t> out;
  const bool linear = s.kind == LaneShape::Linear && s.step->is_constant();
  if (s.kind != LaneShape::Uniform && !linear) return out;
  for (int i = 0; i < kernel.threads; ++i) out.push_back(linear ? i * s.step->value.integer : 0);
  return out;
}

// Shape of an op on indices that are not all uniform.
LaneShape LanePrinter::index_shape(Expr e, const std::vector<LaneShape>& operands) {
  bool linear = true, range = true, scalar = true;
  for (const LaneShape& s : operands) {
    linear &= s.kind == LaneShape::Uniform || s.kind == LaneShape::Linear;
    range &= s.kind == LaneShape::Uniform || s.kind == LaneShape::Range;
    scalar &= s.is_scalar();
  }
  if (e->op == Op::logical_and && range) return {.kind = LaneShape::Range};
  if (!scalar || operands.size() > 2) return varies();
  const Congruence first = congruence_of(e, operands);
  const auto step = [&](int i) {
    return operands[i].kind == LaneShape::Linear ? operands[i].step : scratch.constant(0);
  };
  const auto by_step = [&](Expr of) {
    return LaneShape{.kind = LaneShape::Linear, .step = of, .first = first};
  };
  const bool sum = e->op == Op::add || e->op == Op::sub;
  if (linear && sum)
    return by_step(e->op == Op::add ? scratch.add(step(0), step(1))
                                    : scratch.sub(step(0), step(1)));
  if (linear && e->op == Op::neg) return by_step(scratch.sub(scratch.constant(0), step(0)));
  if (linear && e->op == Op::mul) {
    const bool second = operands[0].kind == LaneShape::Uniform;
    if (operands[second ? 0 : 1].kind != LaneShape::Uniform) return varies();
    return by_step(scratch.mul(step(second ? 1 : 0), e->args[second ? 0 : 1]));
  }
  std::vector<int64_t> a = offsets_of(operands[0]);
  std::vector<int64_t> b = operands.size() > 1 ? offsets_of(operands[1]) : a;
  if (e->op == Op::lt && linear) {
    const Expr between = scratch.sub(step(1), step(0));
    if (step(0)->is_constant() && step(1)->is_constant() && std::abs(between->value.integer) == 1)
      return {.kind = LaneShape::Range};
  }
  if (a.empty() || b.empty()) return varies();
  const Congruence of_a = operands[0].first, of_b = operands.back().first;
  const bool constant = operands.size() > 1 && operands[1].kind == LaneShape::Uniform &&
                        of_b.modulus == 0 && of_b.residue > 0;
  const int64_t by = of_b.residue;
  switch (e->op) {
    case Op::neg:
      for (int64_t& o : a) o = -o;
      break;
    case Op::add:
    case Op::sub:
      for (size_t i = 0; i < a.size(); ++i) a[i] += e->op == Op::add ? b[i] : -b[i];
      break;
    case Op::mul:
      if (!constant) return varies();
      for (int64_t& o : a) o *= by;
      break;
    case Op::div:
    case Op::mod: {
      if (!constant || !divides(of_a, by)) return varies();
      const int64_t at = of_a.residue % by;
      for (int64_t& o : a) {
        const int64_t quotient = floor_div(at + o, by);
        o = e->op == Op::div ? quotient : o - quotient * by;
      }
      break;
    }
    case Op::lt: {
      if (of_a.modulus || of_b.modulus) return varies();
      for (size_t i = 0; i < a.size(); ++i) a[i] = of_a.residue + a[i] < of_b.residue + b[i];
      return {.kind = LaneShape::Varying, .offsets = std::move(a)};
    }
    default:
      return varies();
  }
  return of_offsets(scratch, std::move(a), first);
}

LaneShape LanePrinter::shape(Expr root, bool is_index) {
  if (!root || kernel.threads == 1) return {};
  root = copy(root);
  std::unordered_map<Expr, LaneShape> shapes;
  const auto apply = [&](Expr e) -> LaneShape {
    bool uniform = true;
    std::vector<LaneShape> operands;
    for (Expr a : e->operands()) {
      operands.push_back(shapes[a]);
      uniform &= operands.back().kind == LaneShape::Uniform;
    }
    if (uniform) return {.first = is_index ? congruence_of(e, operands) : Congruence{}};
    return is_index ? index_shape(e, operands) : varies();
  };
  visit(root, [&](Expr e) {
    LaneShape& s = shapes[e];
    switch (e->kind) {
      case ExprNode::Kind::Constant:
        if (is_index) s.first = normal(0, e->value.integer);
        break;
      case ExprNode::Kind::Symbol:
        if (e->is_symbol(Symbol::Thread))
          s = {.kind = LaneShape::Linear, .step = scratch.constant(1), .first = {0, 0}};
        if (e->is_symbol(Symbol::Var)) s = vars[e->a];
        break;
      case ExprNode::Kind::Element:
        if (varying[e->a]) s = varies();
        break;
      case ExprNode::Kind::Cast:
        if (shapes[e->args[0]].kind != LaneShape::Uniform) s = varies();
        break;
      case ExprNode::Kind::Apply:
        s = apply(e);
        break;
    }
  });
  LaneShape s = shapes[root];
  if (s.kind == LaneShape::Linear && s.step->is_constant(0)) return {.first = s.first};
  return is_index || s.kind == LaneShape::Uniform ? s : varies();
}

}  // namespace fuser::codegen
