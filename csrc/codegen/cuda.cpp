#include "codegen/cuda.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <unordered_map>

#include "base/error.h"
#include "base/sha256.h"
#include "codegen/device_text.h"

namespace fuser {
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

std::string literal(DType dtype, const Number& v) {
  switch (kind_of(dtype)) {
    case Kind::Bool:
      return v.integer ? "true" : "false";
    case Kind::Int:
      // The most negative integers have no literal: C++ reads a minus before a number that is too
      // large.
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

// May it stand as an operand without parentheses?
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

std::string wrapped(const std::string& s) { return is_atom(s) ? s : "(" + s + ")"; }

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

struct Printer {
  const KernelIR& kernel;
  std::string out;
  int depth = 1;

  const char* index_type() const { return kernel.index64 ? "i64" : "i32"; }

  std::string symbol(Expr e) const {
    switch (e->symbol) {
      case Symbol::Var:
        return text("v", e->a);
      case Symbol::Param:
        return text("p", e->a);
      case Symbol::Thread:
        return kernel.index64 ? "(i64)thread_x()" : "thread_x()";
      case Symbol::Block:
        return kernel.index64 ? "(i64)block_x()" : "block_x()";
      default:
        break;
    }
    throw Fault(FaultKind::Internal, "internal", "a final kernel holds " + to_string(e));
  }

  bool is_fast_divisor(Expr e) const {
    return e->is_symbol(Symbol::Param) && kernel.params[e->a].kind == Param::Kind::Divisor &&
           kernel.params[e->a].dtype == DType::Int32;
  }

  std::string index_op(Expr e, std::span<const std::string> a) const {
    if ((e->op == Op::div || e->op == Op::mod) && is_fast_divisor(e->args[1]))
      return text(e->op == Op::div ? "fast_div_(" : "fast_mod_(", a[0], ", ", a[1], ")");
    switch (e->op) {
      case Op::add:
        return text(wrapped(a[0]), " + ", wrapped(a[1]));
      case Op::sub:
        return text(wrapped(a[0]), " - ", wrapped(a[1]));
      case Op::mul:
        return text(wrapped(a[0]), " * ", wrapped(a[1]));
      case Op::div:
        return text(wrapped(a[0]), " / ", wrapped(a[1]));
      case Op::mod:
        return text(wrapped(a[0]), " % ", wrapped(a[1]));
      case Op::lt:
        return text(wrapped(a[0]), " < ", wrapped(a[1]));
      default:
        break;
    }
    throw Fault(FaultKind::Internal, "internal", text("index arithmetic by ", row(e->op).name));
  }

  // Index expressions are kept in the kernel's index type and print as plain C; values by their
  // op's row.
  std::string expression(Expr root, bool index) const {
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
          // The index was printed as a value of type int64 when it stands in a value.
          s = text(kernel.arrays[e->a].name, "[", expression(e->args[0], true), "]");
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

  void line(const std::string& s) { out += std::string(2 * depth, ' ') + s + "\n"; }

  std::string address(int buffer, Expr offset) const {
    const std::string o = expression(offset, true);
    return o == "0" ? kernel.buffers[buffer].name
                    : kernel.buffers[buffer].name + " + " + wrapped(o);
  }

  // Arrays are passed whole, or one element as a variable of its own.
  template <class Access>  // Load or Write
  void access(const Access& s) {
    constexpr bool store = std::is_same_v<Access, Write>;
    const char* verb = store ? "store" : "load";
    const Array& a = kernel.arrays[s.array];
    const std::string at = address(s.buffer, s.offset);
    const Expr in = s.in, count = s.count;
    if (s.column) {
      const std::string all = text(index_type(), "(", s.width, ")");
      const std::string n = count ? expression(count, true) : all;
      line(text(verb, "_row(", store ? at : a.name, ", ", store ? a.name : at, ", ",
                expression(s.column, true), ", ", expression(s.columns, true), ", ",
                expression(s.jump, true), ", ",
                in ? text(wrapped(expression(in, true)), " ? ", wrapped(n), " : 0") : n, ");"));
      return;
    }
    const std::string predicate = count ? (in ? text(wrapped(expression(in, true)), " ? ",
                                                     wrapped(expression(count, true)), " : 0")
                                              : expression(count, true))
                                  : in  ? expression(in, true)
                                        : "";
    const char* form = count ? "_some" : in ? "_if" : "";
    if (s.width == a.extent) {
      const std::string p = predicate.empty() ? "" : ", " + predicate;
      line(store ? text(verb, form, "(", at, ", ", a.name, p, ");")
                 : text(verb, form, "(", a.name, ", ", at, p, ");"));
      return;
    }
    FUSER_ASSERT(s.width == 1, "an access of ", s.width, " elements to an array of ", a.extent);
    const std::string e = text(a.name, "[", expression(s.element, true), "]");
    const std::string guard = count ? (in ? text(wrapped(expression(in, true)), " && ",
                                                 wrapped(expression(count, true)), " > 0")
                                          : text(wrapped(expression(count, true)), " > 0"))
                                    : predicate;
    if (store) {
      line(guard.empty() ? text("store1(", at, ", ", e, ");")
                         : text("if (", guard, ") store1(", at, ", ", e, ");"));
    } else {
      const std::string type = row(a.dtype).device;
      line(guard.empty() ? text(e, " = load1(", at, ");") : text(e, " = ", type, "{};"));
      if (!guard.empty()) line(text("if (", guard, ") ", e, " = load1(", at, ");"));
    }
  }

  void body(const Body& statements) {
    for (const Stmt& s : statements) {
      std::visit(
          [&](const auto& n) {
            using N = std::decay_t<decltype(n)>;
            if constexpr (std::is_same_v<N, Let>) {
              const char* type = !n.index                        ? row(n.value->dtype).device
                                 : n.value->dtype == DType::Bool ? "bool"
                                                                 : index_type();
              line(text("const ", type, " v", n.var, " = ", expression(n.value, n.index), ";"));
            } else if constexpr (std::is_same_v<N, Load>) {
              access(n);
            } else if constexpr (std::is_same_v<N, Write>) {
              access(n);
            } else if constexpr (std::is_same_v<N, Assign>) {
              line(text(kernel.arrays[n.array].name, "[", expression(n.element, true),
                        "] = ", expression(n.value, false), ";"));
            } else if constexpr (std::is_same_v<N, For>) {
              line(text("UNROLL for (i32 v", n.var, " = 0; v", n.var, " < ", n.extent, "; ++v",
                        n.var, ") {"));
              ++depth;
              body(n.body);
              --depth;
              line("}");
            } else {
              static_assert(std::is_same_v<N, Barrier>, "print_cuda() misses a statement");
              line("sync_block();");
            }
          },
          s.node);
    }
  }

  std::string signature() const {
    std::vector<std::string> args;
    for (const Buffer& b : kernel.buffers)
      args.push_back(text(b.written ? "" : "const ", row(b.dtype).device, "* ",
                          b.restrict_ ? "__restrict__ " : "", b.name));
    for (size_t i = 0; i < kernel.params.size(); ++i) {
      const Param& p = kernel.params[i];
      const bool fast = p.kind == Param::Kind::Divisor && p.dtype == DType::Int32;
      args.push_back(text(fast ? "FastDiv" : row(p.dtype).device, " p", i));
    }
    return joined(args);
  }
};

}  // namespace

KernelText print_cuda(const KernelIR& kernel) {
  Printer printer{.kernel = kernel, .out = {}};
  for (const Array& a : kernel.arrays)
    printer.line(text(row(a.dtype).device, " ", a.name, "[", a.extent, "];"));
  printer.body(kernel.body);
  const std::string rest = text("(", printer.signature(), ") {\n", printer.out, "}\n");
  const std::string head = text("KERNEL(", kernel.threads, ") void ");
  const std::string helpers = device_text(head + rest);
  const std::string name =
      text(kernel.name, "_", hex(sha256(helpers + head + kernel.name + rest)).substr(0, 8));
  return {.name = name,
          .text = helpers + head + name + rest,
          .collectives = kernel.collectives(),
          .threads = kernel.threads};
}

}  // namespace fuser
