#include "codegen/cpp_expr.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"

namespace fuser::codegen {

using namespace ir;

LanePrinter::LanePrinter(const KernelIR& of) : ExprPrinter{.kernel = of, .in_parts = true} {
  vars.resize(named_vars(of));
  varying.resize(of.arrays.size());
}

Expr LanePrinter::copy(Expr e) {
  return rewrite(
      scratch, e, [](Expr) -> Expr { return nullptr; }, images);
}

bool LanePrinter::become(int array, bool vary) {
  if (!vary || varying[array]) return false;
  varying[array] = true;
  return true;
}

bool LanePrinter::collect(const Body& body) {
  bool changed = false;
  visit(body, [&](const Stmt& stmt) {
    const auto lanes = [&](Expr e, bool is_index) { return !is_uniform(e, is_index); };
    if (const auto* s = std::get_if<Let>(&stmt.node)) {
      LaneShape now = shape(s->value, s->index);
      changed |= now.kind != vars[s->var].kind;
      vars[s->var] = std::move(now);
    } else if (const auto* s = std::get_if<Load>(&stmt.node)) {
      changed |= become(s->array, lanes(s->offset, true) || lanes(s->in, true));
    } else if (const auto* s = std::get_if<Assign>(&stmt.node)) {
      changed |= become(s->array, lanes(s->value, false));
    } else if (const auto* s = std::get_if<Accumulate>(&stmt.node)) {
      bool vary = lanes(s->in, true);
      for (Expr e : s->values) vary |= lanes(e, false);
      changed |= become(s->array, vary);
    } else if (const auto* s = std::get_if<Merge>(&stmt.node)) {
      changed |= become(s->array, varying[s->other]);
    } else if (const auto* s = std::get_if<LaneReduce>(&stmt.node)) {
      changed |= become(s->other, true);
    } else if (const auto* s = std::get_if<LaneTranspose>(&stmt.node)) {
      changed |= become(s->array, true);
    }
  });
  // A partial sum of lanes is merged into one of lanes, and the reverse.
  visit(body, [&](const Stmt& stmt) {
    const auto* s = std::get_if<Merge>(&stmt.node);
    if (s && varying[s->array]) changed |= become(s->other, true);
  });
  return changed;
}

void LanePrinter::analyse(const Body& body) {
  if (kernel.threads == 1) return;
  while (collect(body)) {
  }
}

std::string LanePrinter::vector_type(const std::string& element) const {
  return text("Vec<", element, ", ", kernel.threads, ">");
}

std::string LanePrinter::first(Expr e) {
  const Expr at = rewrite(scratch, copy(e), [&](Expr n) -> Expr {
    return n->is_symbol(Symbol::Thread) ? scratch.constant(0) : nullptr;
  });
  return text_of(at, true);
}

std::string LanePrinter::vector_value(Expr e) {
  const std::string s = lane_value(e);
  return is_uniform(e, false) ? text(vector_type(row(e->dtype).device), "(", s, ")") : s;
}

std::string order_of(const std::vector<int64_t>& offsets) {
  std::string out;
  for (int64_t o : offsets) out += text(out.empty() ? "" : ", ", o);
  return text("Order_<", out, ">");
}

std::string LanePrinter::range_text(Expr e) {
  e = copy(e);
  if (e->is_symbol(Symbol::Var)) return symbol(e);
  if (is_uniform(e, true)) return wrapped(first(e));
  if (e->op == Op::logical_and)
    return text(wrapped(range_text(e->args[0])), " && ", wrapped(range_text(e->args[1])));
  const LaneShape left = shape(e->args[0], true), right = shape(e->args[1], true);
  const int64_t step = (right.kind == LaneShape::Linear ? right.step->value.integer : 0) -
                       (left.kind == LaneShape::Linear ? left.step->value.integer : 0);
  const std::string size = std::to_string(kernel.threads);
  if (step < 0)
    return text("lanes_below<", size, ">(", first(scratch.sub(e->args[1], e->args[0])), ")");
  const Expr from = scratch.sub(scratch.add(e->args[0], scratch.constant(1)), e->args[1]);
  return text("lanes_from<", size, ">(", first(from), ")");
}

std::string LanePrinter::vector_index(Expr e) {
  const LaneShape s = shape(e, true);
  if (!s.is_scalar()) return lane_index(e);
  const std::string type = index_type();
  if (s.kind == LaneShape::Pattern)
    return text("pattern<", type, ">(", first(e), ", ", order_of(s.offsets), "())");
  if (s.kind == LaneShape::Uniform)
    return text(vector_type(e->dtype == DType::Bool ? "bool" : type), "(", first(e), ")");
  return text("iota<", type, ", ", kernel.threads, ">(", first(e),
              s.step->is_constant(1) ? "" : text(", ", first(s.step)), ")");
}

std::string LanePrinter::leaf(Expr e, bool is_index) {
  if (kernel.threads == 1 && e->is_symbol(Symbol::Thread)) return "0";
  if (e->is_symbol(Symbol::Thread))
    return text("iota<", index_type(), ", ", kernel.threads, ">(0)");
  if (!e->is_symbol(Symbol::Var)) return symbol(e);
  const LaneShape& s = vars[e->a];
  const std::string name = symbol(e);
  if (s.kind == LaneShape::Uniform) return name;
  if (s.kind == LaneShape::Range) return name + ".mask()";
  const bool whole = e->dtype == DType::Int64;
  const std::string type = is_index ? index_type() : "i64";
  if (s.kind == LaneShape::Linear)
    return text("iota<", type, ", ", kernel.threads, ">(", name,
                s.step->is_constant(1) ? "" : text(", ", first(s.step)), ")");
  if (s.kind == LaneShape::Pattern)
    return text("pattern<", type, ">(", name, ", ", order_of(s.offsets), "())");
  // An index may be a loaded value, and a value may be an index.
  return whole ? text("to<", type, ">(", name, ")") : name;
}

std::string LanePrinter::varying_index_op(Expr e, std::span<const std::string> args) {
  if (e->op == Op::where) {
    if (!is_uniform(e->args[0], true))
      return text("where_(", args[0], ", ", args[1], ", ", args[2], ")");
    const std::string type = vector_type(e->dtype == DType::Bool ? "bool" : index_type());
    return text("(", wrapped(args[0]), " ? ", type, "(", args[1], ") : ", type, "(", args[2], "))");
  }
  if (e->op == Op::minimum || e->op == Op::maximum) {
    const std::string type = vector_type(index_type());
    return text(row(e->op).name, "_(", type, "(", args[0], "), ", type, "(", args[1], "))");
  }
  return index_op(e, args);
}

// Returns the text of an op within an expression that varies: a vector unless it is uniform.
std::string LanePrinter::lane_op(Expr e, std::span<const std::string> args) {
  const LaneShape s = shape(e, true);
  if (s.kind == LaneShape::Uniform) return wrapped(first(e));
  if (s.kind == LaneShape::Range) return text(wrapped(range_text(e)), ".mask()");
  if (s.kind == LaneShape::Pattern) return vector_index(e);
  if (!s.offsets.empty()) return text("constant_mask(", order_of(s.offsets), "())");
  return varying_index_op(e, args);
}

// A function that rounds has one result for equal operands, in any number of lanes: a uniform value
// is lane 0 of a vector.
std::string LanePrinter::value_op(Expr e, std::span<const std::string> args) {
  const char* pattern = op_text(e->op, compute_dtype(e));
  if (e->op == Op::where && e->args[0]->is_symbol(Symbol::Var) &&
      vars[e->args[0]->a].kind == LaneShape::Range)
    return fill(pattern, std::vector<std::string>{symbol(e->args[0]), args[1], args[2]});
  const bool rounds = row(e->op).ulp > 0.f && kind_of(compute_dtype(e)) == Kind::Float;
  if (!rounds || !is_uniform(e, false)) return fill(pattern, args);
  constexpr int fewest = 4;
  std::vector<std::string> vectors;
  for (size_t i = 0; i < args.size(); ++i)
    vectors.push_back(text("Vec<", row(e->args[i]->dtype).device, ", ",
                           std::max(fewest, kernel.threads), ">(", args[i], ")"));
  return text("(", fill(pattern, vectors), ")[0]");
}

std::string LanePrinter::text_of(Expr root, bool is_index) {
  root = copy(root);
  std::unordered_map<Expr, std::string> memo;
  // A linear index is printed as lane 0 where it is a scalar: first() has no lane symbol.
  const LaneShape all = shape(root, is_index);
  if (is_index && all.kind == LaneShape::Range) return text(wrapped(range_text(root)), ".mask()");
  const bool scalar = is_index && all.is_scalar();
  visit(root, [&](Expr e) {
    std::string& s = memo[e];
    std::vector<std::string> args;
    for (Expr a : e->operands()) args.push_back(memo[a]);
    switch (e->kind) {
      case ExprNode::Kind::Constant:
        s = is_index ? text(e->value.integer) : literal(e->dtype, e->value);
        break;
      case ExprNode::Kind::Symbol:
        s = scalar && !e->is_symbol(Symbol::Thread) ? symbol(e) : leaf(e, is_index);
        break;
      case ExprNode::Kind::Element: {
        s = text(kernel.arrays[e->a].name, "[", first(e->args[0]), "]");
        if (fields_of(kernel.arrays[e->a].state) > 1) s += text(".f", e->b);
        if (is_index && varying[e->a]) s = text("to<", index_type(), ">(", s, ")");
        break;
      }
      case ExprNode::Kind::Cast:
        s = text("to<", row(e->dtype).device, ">(", args[0], ")");
        break;
      case ExprNode::Kind::Apply:
        s = !is_index ? value_op(e, args) : scalar ? index_op(e, args) : lane_op(e, args);
        break;
    }
  });
  return memo[root];
}

}  // namespace fuser::codegen
