#include "codegen/cuda_expr.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <unordered_map>

#include "base/error.h"

namespace fuser::codegen {

using namespace ir;

namespace {

std::string bits_literal(uint64_t bits, const char* suffix) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "0x%llx%s", static_cast<unsigned long long>(bits), suffix);
  return buffer;
}

std::string real_literal(double v, DType dtype) {
  const bool single = dtype == DType::Float32;
  if (!std::isfinite(v)) {
    const uint64_t bits =
        single ? std::bit_cast<uint32_t>(static_cast<float>(v)) : std::bit_cast<uint64_t>(v);
    return text("float_((", single ? "u32" : "u64", ")", bits_literal(bits, single ? "u" : "ull"),
                ")");
  }
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, single ? "%.9g" : "%.17g", v);
  std::string s = buffer;
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  return single ? s + "f" : s;
}

// Returns whether the text can be an operand without parentheses.
bool is_atom(std::string_view s) {
  if (s.empty() || s[0] == '-' || s[0] == '(') return false;
  int depth = 0;
  for (char c : s) {
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
    if (depth == 0 && c == ' ') return false;
  }
  return true;
}

}  // namespace

std::string fill(std::string_view pattern, std::span<const std::string> args) {
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '$') {
      out += wrapped(args[pattern[++i] - '0']);
    } else {
      out += pattern[i];
    }
  }
  return out;
}

std::string literal(DType dtype, const Number& v) {
  switch (kind_of(dtype)) {
    case Kind::Bool:
      return v.integer ? "true" : "false";
    case Kind::Int:
      // The most negative integers have no literal, because C++ parses a minus sign and a number
      // that is too large.
      if (dtype == DType::Int32)
        return v.integer == INT32_MIN ? "(-2147483647 - 1)" : text(v.integer);
      if (dtype != DType::Int64) return text("(", row(dtype).device, ")", v.integer);
      return v.integer == INT64_MIN ? "(-9223372036854775807ll - 1)" : text(v.integer, "ll");
    case Kind::Float:
      if (dtype == DType::Float32 || dtype == DType::Float64) return real_literal(v.real, dtype);
      return text("to<", row(dtype).device, ">(", real_literal(v.real, DType::Float32), ")");
    case Kind::Complex: {
      const DType part = real_type(dtype);
      return text("complex_(", real_literal(v.real, part), ", ", real_literal(v.imag, part), ")");
    }
  }
  return {};
}

std::string wrapped(const std::string& s) { return is_atom(s) ? s : "(" + s + ")"; }

int fields_of(const std::optional<State>& state) { return state ? row(state->op).results() : 1; }

bool is_fast_divisor(const Param& p) {
  return p.kind == Param::Kind::Divisor && p.dtype == DType::Int32;
}

std::string ExprPrinter::symbol(Expr e) const {
  switch (e->symbol) {
    case Symbol::Var:
      return text("v", e->a);
    case Symbol::Param:
      return text("p", e->a);
    case Symbol::Thread:
      return kernel.index64 ? "(i64)thread_x()" : "thread_x()";
    case Symbol::Block:
      if (in_parts) return kernel.index64 ? "(i64)block_" : "block_";
      return kernel.index64 ? "(i64)block_x()" : "block_x()";
    default:
      break;
  }
  throw Fault(FaultKind::Internal, "internal", "a final kernel contains " + to_string(e));
}

bool ExprPrinter::by_fast_divisor(Expr division) const {
  const Expr by = division->args[1];
  return by->is_symbol(Symbol::Param) && is_fast_divisor(kernel.params[by->a]);
}

std::string ExprPrinter::index_op(Expr e, std::span<const std::string> a) const {
  if ((e->op == Op::div || e->op == Op::mod) && by_fast_divisor(e))
    return text(e->op == Op::div ? "fast_div_(" : "fast_mod_(", a[0], ", ", a[1], ")");
  switch (e->op) {
    case Op::add:
      return text(wrapped(a[0]), " + ", wrapped(a[1]));
    case Op::sub:
      return text(wrapped(a[0]), " - ", wrapped(a[1]));
    case Op::neg:
      return text("-", wrapped(a[0]));
    case Op::mul:
      return text(wrapped(a[0]), " * ", wrapped(a[1]));
    case Op::div:
      return text(wrapped(a[0]), " / ", wrapped(a[1]));
    case Op::mod:
      return text(wrapped(a[0]), " % ", wrapped(a[1]));
    case Op::remainder:  // an operand that may be negative: for a power of two a mask is one
                         // instruction
      FUSER_ASSERT(e->args[1]->is_constant() &&
                       std::has_single_bit(static_cast<uint64_t>(e->args[1]->value.integer)),
                   "a remainder by ", a[1], ", expected a power of two");
      return text(wrapped(a[0]), " & ", e->args[1]->value.integer - 1);
    case Op::bitwise_and:  // first of several neighbours
      return text("aligned_(", a[0], ", ", a[1], ")");
    case Op::lt:
      return text(wrapped(a[0]), " < ", wrapped(a[1]));
    case Op::eq:
      return text(wrapped(a[0]), " == ", wrapped(a[1]));
    case Op::logical_and:
      return text(wrapped(a[0]), " && ", wrapped(a[1]));
    case Op::logical_not:
      return text("!", wrapped(a[0]));
    case Op::where:
      return text("(", wrapped(a[0]), " ? ", a[1], " : ", a[2], ")");
    case Op::minimum:
    case Op::maximum:
      // Without <i64>, a constant operand would be an int.
      return text(row(e->op).name, kernel.index64 ? "_<i64>(" : "_(", a[0], ", ", a[1], ")");
    default:
      break;
  }
  throw Fault(FaultKind::Internal, "internal", text("index arithmetic by ", row(e->op).name));
}

std::string ExprPrinter::expression(Expr root, bool index) const {
  std::unordered_map<Expr, std::string> memo;
  visit(root, [&](Expr e) {
    std::string& s = memo[e];
    std::vector<std::string> args;
    for (Expr a : e->operands()) args.push_back(memo[a]);
    switch (e->kind) {
      case ExprNode::Kind::Constant:
        s = index ? text(e->value.integer) : literal(e->dtype, e->value);
        break;
      case ExprNode::Kind::Symbol:
        s = symbol(e);
        break;
      case ExprNode::Kind::Element:
        // An index is printed as index arithmetic, even inside a value.
        s = element(e->a, e->args[0]);
        if (fields_of(kernel.arrays[e->a].state) > 1) s += text(".f", e->b);
        break;
      case ExprNode::Kind::Cast:
        s = text("to<", row(e->dtype).device, ">(", args[0], ")");
        break;
      case ExprNode::Kind::Apply:
        s = index ? index_op(e, args) : fill(op_text(e->op, compute_dtype(e)), args);
        break;
    }
  });
  return memo[root];
}

std::string ExprPrinter::element(int array, Expr at) const {
  return text(kernel.arrays[array].name, "[", index(at), "]");
}

}  // namespace fuser::codegen
