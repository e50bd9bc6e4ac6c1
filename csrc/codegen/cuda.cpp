#include "codegen/cuda.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <unordered_map>

#include "base/error.h"
#include "base/sha256.h"
#include "codegen/device_text.h"
#include "ir/fast_div.h"

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

int fields_of(const std::optional<State>& state) { return state ? row(state->op).results : 1; }

// The type of an element.
std::string type_of(DType dtype, const std::optional<State>& state) {
  const std::string name = row(dtype).device;
  return fields_of(state) > 1 ? text(row(state->op).state, "<", name, ">") : name;
}

struct Printer {
  const KernelIR& kernel;
  const Constants& constants;
  bool in_parts = false;  // the block is that of a part (print_parts)
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
        if (in_parts) return kernel.index64 ? "(i64)block_" : "block_";
        return kernel.index64 ? "(i64)block_x()" : "block_x()";
      default:
        break;
    }
    throw Fault(FaultKind::Internal, "internal", "a final kernel holds " + to_string(e));
  }

  static bool is_fast_divisor(const Param& p) {
    return p.kind == Param::Kind::Divisor && p.dtype == DType::Int32;
  }
  bool is_fast_divisor(Expr e) const {
    return e->is_symbol(Symbol::Param) && is_fast_divisor(kernel.params[e->a]);
  }

  bool is_constant(size_t param) const {
    return param < constants.size() && constants[param].has_value();
  }

  std::string index_op(Expr e, std::span<const std::string> a) const {
    if ((e->op == Op::div || e->op == Op::mod) && is_fast_divisor(e->args[1]))
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
      case Op::bitwise_and:  // of the first of several neighbours
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
        return text(row(e->op).name, "_(", a[0], ", ", a[1], ")");
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

  void line(const std::string& s) { out += std::string(2 * depth, ' ') + s + "\n"; }

  std::string address(int buffer, Expr offset) const {
    const std::string o = expression(offset, true);
    return o == "0" ? kernel.buffers[buffer].name
                    : kernel.buffers[buffer].name + " + " + wrapped(o);
  }

  // What exists of an access: the suffix of the function, and its last arguments.
  struct Guard {
    const char* form = "";
    std::string arguments;
  };
  template <class Access>  // Load or Write
  Guard guard(const Access& s) const {
    const std::string in = s.in ? expression(s.in, true) : "";
    if (!s.count) return in.empty() ? Guard{} : Guard{.form = "_if", .arguments = text(", ", in)};
    std::string count = expression(s.count, true);
    if (s.in) count = text(wrapped(in), " ? ", wrapped(count), " : 0");
    return {.form = "_some", .arguments = text(", ", count)};
  }

  // Does the one element of a narrow access exist?
  template <class Access>
  std::string one_exists(const Access& s) const {
    std::vector<std::string> all;
    if (s.in) all.push_back(wrapped(expression(s.in, true)));
    if (s.count) all.push_back(text(wrapped(expression(s.count, true)), " > 0"));
    return all.size() == 1 && s.in ? expression(s.in, true) : joined(all, " && ");
  }

  // Arrays are passed whole, or one element as a variable of its own.
  template <class Access>  // Load or Write
  void access(const Access& s) {
    constexpr bool store = std::is_same_v<Access, Write>;
    const char* verb = store ? "store" : "load";
    const Array& a = kernel.arrays[s.array];
    const std::string at = address(s.buffer, s.offset);
    if (s.column) {
      const std::string all = text(index_type(), "(", s.width, ")");
      const std::string n = s.count ? expression(s.count, true) : all;
      line(text(verb, "_row(", store ? at : a.name, ", ", store ? a.name : at, ", ",
                expression(s.column, true), ", ", expression(s.columns, true), ", ",
                expression(s.jump, true), ", ",
                s.in ? text(wrapped(expression(s.in, true)), " ? ", wrapped(n), " : 0") : n, ");"));
      return;
    }
    const std::string element = expression(s.element, true);
    if (a.chunk) {
      const Guard g = guard(s);
      FUSER_ASSERT(!store && s.width == a.chunk, "an access of ", s.width,
                   " elements to chunks of ", a.chunk);
      if constexpr (!store)
        line(text("load_raw", g.form, s.once ? "<true>" : "", "(", a.name, "[", element, "], ", at,
                  g.arguments, ");"));
      return;
    }
    const bool state = a.state.has_value() && kernel.buffers[s.buffer].state.has_value();
    if (state) {
      FUSER_ASSERT(!s.count, "partial results move whole");
      const std::string e = text(a.name, "[", element, "]");
      const std::string some = text("partials<", s.width, ">(");
      const std::string move = s.width > 1 ? store ? text("store_", some, at, ", &", e, ");")
                                                   : text("load_", some, "&", e, ", ", at, ");")
                               : store     ? text("store_partial(", at, ", ", e, ");")
                                           : text(e, " = load_partial(", at, ");");
      line(s.in ? text("if (", expression(s.in, true), ") ", move) : move);
      return;
    }
    if constexpr (!store) {
      if (s.shifted) {
        const std::string by = s.words < 0 ? "" : text("_by<", s.words, ">");
        line(text("load_shifted", by, "(", a.name, ", ", kernel.buffers[s.buffer].name, ", ",
                  expression(s.offset, true), ");"));
        return;
      }
    }
    if (s.width > 1 || a.extent == 1) {
      const Guard g = guard(s);
      const std::string r =
          s.width == a.extent ? a.name : text("part<", s.width, ">(", a.name, ", ", element, ")");
      line(store ? text(verb, g.form, s.once ? "<true>" : "", "(", at, ", ", r, g.arguments, ");")
                 : text(verb, g.form, "(", r, ", ", at, g.arguments, ");"));
      return;
    }
    const std::string e = text(a.name, "[", element, "]");
    const std::string exists = one_exists(s);
    if (store) {
      line(exists.empty() ? text("store1(", at, ", ", e, ");")
                          : text("if (", exists, ") store1(", at, ", ", e, ");"));
    } else {
      line(exists.empty() ? text(e, " = load1(", at, ");")
                          : text(e, " = load1_if(", at, ", ", exists, ");"));
    }
  }

  const char* combine_of(int array) const { return row(kernel.arrays[array].state->op).combine; }

  void block(const std::string& head, const Body& inner) {
    line(head + " {");
    ++depth;
    body(inner);
    --depth;
    line("}");
  }

  void combine(const Combine& s) {
    constexpr int warp = 32;
    const auto each = [&](const std::function<std::string(const std::string& array,
                                                          const char* combine, size_t i)>& f) {
      for (size_t i = 0; i < s.arrays.size(); ++i)
        line(f(kernel.arrays[s.arrays[i]].name, combine_of(s.arrays[i]), i));
    };
    const int warps = s.lanes / warp;
    each([&](const std::string& r, const char* c, size_t) {
      return text(r, "[0] = reduce_lanes<", c, ", ", std::min(s.lanes, warp), ">(", r, "[0]);");
    });
    const auto slot = [&](int buffer, int size) {
      const std::string& name = kernel.buffers[buffer].name;
      return s.parity ? text(name, " + ", size, " * ", wrapped(expression(s.parity, true))) : name;
    };
    if (kernel.cluster > 1) {
      const int block = kernel.threads / warp, size = kernel.cluster * block;
      const std::string arrival =
          text(kernel.buffers[s.arrivals].name, " + ", wrapped(expression(s.arrival, true)));
      const auto bytes = [&](size_t i) {
        return element_bytes(kernel.buffers[s.cluster_slots[i]]);
      };
      const auto place = [&](size_t i) {
        return slot(s.cluster_slots[i], size * std::max(1, least_sent_bytes / bytes(i)));
      };
      int sent = 0;
      each([&](const std::string& r, const char*, size_t i) {
        sent += size * std::max(least_sent_bytes, bytes(i));
        return text("publish_cluster<", kernel.cluster, ", ", block, ">(", place(i), ", ", r,
                    "[0], ", arrival, ");");
      });
      line(text("await_cluster(", arrival, ", ", sent, ", ", expression(s.turn, true), ");"));
      each([&](const std::string& r, const char* c, size_t i) {
        return text(r, "[0] = collect_cluster<", c, ", ", size, ">(", place(i), ");");
      });
    } else if (warps > 1) {
      const int size = kernel.threads / warp;
      each([&](const std::string& r, const char*, size_t i) {
        return text("publish_warp(", slot(s.slots[i], size), ", ", r, "[0]);");
      });
      line("sync_block();");
      each([&](const std::string& r, const char* c, size_t i) {
        return text(r, "[0] = collect_warps<", c, ", ", warps, ">(", slot(s.slots[i], size), ");");
      });
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
              block(text("UNROLL for (i32 v", n.var, " = 0; v", n.var, " < ", n.extent, "; ++v",
                         n.var, ")"),
                    n.body);
            } else if constexpr (std::is_same_v<N, Serial>) {
              if (n.unroll) line(text("_Pragma(\"unroll ", n.unroll, "\")"));
              block(text("for (", index_type(), " v", n.var, " = 0; v", n.var, " < ",
                         expression(n.extent, true), "; ++v", n.var, ")"),
                    n.body);
            } else if constexpr (std::is_same_v<N, If>) {
              block(text("if (", expression(n.condition, true), ")"), n.body);
            } else if constexpr (std::is_same_v<N, Barrier>) {
              line("sync_block();");
            } else if constexpr (std::is_same_v<N, Reset>) {
              line(text("reset<", combine_of(n.array), ">(", kernel.arrays[n.array].name, ");"));
            } else if constexpr (std::is_same_v<N, Accumulate>) {
              std::string call =
                  text("accumulate_(", combine_of(n.array), "(), ", kernel.arrays[n.array].name,
                       "[", expression(n.element, true), "]");
              for (Expr e : n.values) call += text(", ", expression(e, false));
              line(n.in ? text("if (", expression(n.in, true), ") ", call, ");") : call + ");");
            } else if constexpr (std::is_same_v<N, AccumulateAll>) {
              const Array& to = kernel.arrays[n.array];
              line(text(to.extent == 1 ? "accumulate_(" : "accumulate_each(", combine_of(n.array),
                        "(), ", to.name, to.extent == 1 ? "[0], " : ", ",
                        kernel.arrays[n.values].name, ");"));
            } else if constexpr (std::is_same_v<N, Merge>) {
              const std::string to =
                  text(kernel.arrays[n.array].name, "[", expression(n.element, true), "]");
              line(text(to, " = merge_(", combine_of(n.array), "(), ", to, ", ",
                        kernel.arrays[n.other].name, "[", expression(n.other_element, true),
                        "]);"));
            } else if constexpr (std::is_same_v<N, Fold>) {
              line(text("fold<", combine_of(n.array), ">(", kernel.arrays[n.array].name, ");"));
            } else if constexpr (std::is_same_v<N, Combine>) {
              combine(n);
            } else if constexpr (std::is_same_v<N, CombineRows>) {
              for (size_t i = 0; i < n.arrays.size(); ++i)
                line(text("reduce_rows<", combine_of(n.arrays[i]), ", ", n.rows, ", ", n.columns,
                          ">(", kernel.arrays[n.arrays[i]].name, ", ",
                          kernel.buffers[n.slots[i]].name, ");"));
            } else if constexpr (std::is_same_v<N, Last>) {
              line(text("const bool v", n.var, " = last_block(", address(n.counters, n.index), ", ",
                        expression(n.count, true), ", (u32*)", kernel.buffers[n.slot].name, ");"));
            } else if constexpr (std::is_same_v<N, Copy>) {
              const std::string& shared = kernel.buffers[n.shared].name;
              line(text("copy_async<", n.width, ">(", shared, " + ",
                        wrapped(expression(n.element, true)), ", ", address(n.buffer, n.offset),
                        ", ", n.in ? expression(n.in, true) : "true", ");"));
            } else if constexpr (std::is_same_v<N, Unpack>) {
              line(text("unpack(", kernel.arrays[n.array].name, ", ", kernel.arrays[n.raw].name,
                        "[", expression(n.chunk, true), "]);"));
            } else if constexpr (std::is_same_v<N, Check>) {
              line(text(n.in ? text("if (", expression(n.in, true), ") ") : "", "check_index(",
                        expression(n.index, false), ", ", expression(n.extent, true), ", ",
                        n.number, ");"));
            } else if constexpr (std::is_same_v<N, Commit>) {
              line("commit_copies();");
            } else if constexpr (std::is_same_v<N, Wait>) {
              line(text("wait_copies<", n.pending, ">();"));
            } else if constexpr (std::is_same_v<N, SyncCluster>) {
              const Buffer* places = n.arrivals < 0 ? nullptr : &kernel.buffers[n.arrivals];
              line(!places ? "wait_cluster();"
                           : text("begin_cluster<", places->elements->value.integer, ">(",
                                  places->name, ");"));
            } else {
              static_assert(std::is_same_v<N, SyncGrid>, "print_cuda() misses a statement");
              line(text("grid_barrier(", kernel.buffers[n.counters].name, ");"));
            }
          },
          s.node);
    }
  }

  static std::string buffer_type(const Buffer& b) {
    return b.kind == Buffer::Kind::Counters ? "u32" : type_of(b.dtype, b.state);
  }

  void drawn() {
    for (size_t i = 0; i < kernel.params.size(); ++i)
      if (kernel.params[i].kind == Param::Kind::Drawn)
        line(text("const i64 p", i, " = drawn_(d", i, ");"));
  }

  // Shared memory, cut up in the order of the buffers.
  void shared() {
    int offset = 0;
    for (const Buffer& b : kernel.buffers) {
      if (b.kind != Buffer::Kind::Shared || !b.elements->is_constant()) continue;
      const std::string type = buffer_type(b);
      offset = (offset + 15) / 16 * 16;
      line(text(type, "* ", b.name, " = (", type, "*)(shared_memory()",
                offset ? text(" + ", offset) : "", ");"));
      offset += element_bytes(b) * static_cast<int>(b.elements->value.integer);
    }
    for (const Buffer& b : kernel.buffers) {
      if (b.kind != Buffer::Kind::Shared || b.elements->is_constant()) continue;
      const std::string type = buffer_type(b);
      const int behind = kernel.shared_bytes();
      line(text(type, "* ", b.name, " = (", type, "*)(shared_memory()",
                behind ? text(" + ", behind) : "", ");"));
    }
  }

  static std::string param_type(const Param& p) {
    if (p.kind == Param::Kind::Drawn) return "Drawn";
    return is_fast_divisor(p) ? "FastDiv" : row(p.dtype).device;
  }

  struct Argument {
    std::string type, qualifier, name;
  };
  std::vector<Argument> arguments() const {
    std::vector<Argument> args;
    for (const Buffer& b : kernel.buffers)
      if (b.kind != Buffer::Kind::Shared)
        args.push_back({.type = text(b.written ? "" : "const ", buffer_type(b), "*"),
                        .qualifier = b.restrict_ ? "__restrict__ " : "",
                        .name = b.name});
    for (size_t i = 0; i < kernel.params.size(); ++i)
      if (!is_constant(i))
        args.push_back({.type = param_type(kernel.params[i]),
                        .qualifier = "",
                        .name = text(kernel.params[i].kind == Param::Kind::Drawn ? "d" : "p", i)});
    return args;
  }

  // What the kernel does, its arguments in variables of their names.
  void statements() {
    constant_params();
    drawn();
    shared();
    for (const Array& a : kernel.arrays) {
      const std::string type = a.chunk ? text("Raw<", row(a.dtype).device, ", ", a.chunk, ">")
                                       : type_of(a.dtype, a.state);
      line(text(type, " ", a.name, "[", a.extent, "];"));
    }
    body(kernel.body);
  }

  void constant_params() {
    for (size_t i = 0; i < kernel.params.size(); ++i) {
      if (!is_constant(i)) continue;
      const Param& p = kernel.params[i];
      std::string value = literal(p.dtype, *constants[i]);
      if (is_fast_divisor(p)) {
        const FastDiv d = make_fast_div(static_cast<uint32_t>(constants[i]->integer));
        value = text("{", d.divisor, "u, ", d.magic, "u, ", d.shift, "u}");
      }
      line(text("const ", param_type(p), " p", i, " = ", value, ";"));
    }
  }
};

// `before`: what stands in front of the function; `signature`: its arguments.
KernelText finished(const KernelIR& kernel, const std::string& before, const std::string& signature,
                    const std::string& statements) {
  const std::string rest = text("(", signature, ") {\n", statements, "}\n");
  const std::string bounds = kernel.min_blocks
                                 ? text("KERNEL2(", kernel.threads, ", ", kernel.min_blocks, ")")
                                 : text("KERNEL(", kernel.threads, ")");
  const std::string head = before + bounds + " void ";
  const std::string helpers = device_text(head + rest);
  const Digest digest = sha256(helpers + head + rest);
  const std::string name = text(kernel.name, "_", hex(digest).substr(0, 8));
  return {.name = name,
          .text = helpers + head + name + rest,
          .digest = digest,
          .collectives = kernel.collectives(),
          .threads = kernel.threads,
          .shared_bytes = kernel.shared_bytes(),
          .shared_grows = kernel.shared_rows != nullptr,
          .cluster = kernel.cluster,
          .cooperative = kernel.cooperative};
}

}  // namespace

KernelText print_cuda(const KernelIR& kernel, const Constants& constants) {
  Printer printer{.kernel = kernel, .constants = constants, .out = {}};
  printer.statements();
  std::vector<std::string> signature;
  for (const Printer::Argument& a : printer.arguments())
    signature.push_back(text(a.type, " ", a.qualifier, a.name));
  return finished(kernel, "", joined(signature), printer.out);
}

KernelText renamed(KernelText kernel, const std::string& name) {
  if (kernel.name == name) return kernel;
  kernel.text.replace(kernel.text.rfind(kernel.name + "("), kernel.name.size(), name);
  kernel.name = name;
  return kernel;
}

PartsLayout parts_layout(const KernelIR& kernel) {
  const auto shares_grid = [](const Buffer& b) {
    return b.kind == Buffer::Kind::Workspace || b.kind == Buffer::Kind::Counters;
  };
  // A struct of both compilers: nothing in it is aligned to more than 8 bytes.
  const auto wide = [](const Param& p) { return size_of(p.dtype) > 8; };
  if (kernel.cooperative || kernel.cluster > 1 ||
      std::any_of(kernel.buffers.begin(), kernel.buffers.end(), shares_grid) ||
      std::any_of(kernel.params.begin(), kernel.params.end(), wide))
    return {};
  constexpr int room = 4096;  // of the arguments of a launch
  PartsLayout out;
  out.part_bytes = (kernel.argument_bytes() + 7) / 8 * 8;
  out.most = (room - 12) / (out.part_bytes + 4);
  out.part_offset = ((out.most + 1) * 4 + 7) / 8 * 8;
  return out;
}

KernelText print_parts(const KernelIR& kernel) {
  const int most = parts_layout(kernel).most;
  const Constants none;
  Printer printer{.kernel = kernel, .constants = none, .in_parts = true, .out = {}};
  std::string fields;
  printer.line(text("const i32 place_ = part_at_(parts.first, ", most, ");"));
  printer.line("const Part& part_ = parts.part[place_];");
  printer.line("const i32 block_ = block_x() - parts.first[place_];");
  for (const Printer::Argument& a : printer.arguments()) {
    fields += text("  ", a.type, " ", a.name, ";\n");
    printer.line(text(a.type, " ", a.qualifier, a.name, " = part_.", a.name, ";"));
  }
  printer.statements();
  const std::string structs = text("struct Part {\n", fields, "};\nstruct Parts {\n  i32 first[",
                                   most + 1, "];\n  Part part[", most, "];\n};\n");
  return finished(kernel, structs, "PARTS Parts parts", printer.out);
}

}  // namespace fuser
