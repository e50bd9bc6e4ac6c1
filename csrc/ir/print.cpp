// Text of expressions and of kernels; the grammar is at the top of parse.cpp. No function recurses
// on the depth of an expression.
#include <bit>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "ir/kernel.h"

namespace fuser::ir {
namespace {

constexpr uint64_t kPlainNan = 0x7ff8000000000000;

// Returns the shortest digits that read back as equal bits.
std::string real_text(double v) {
  const uint64_t bits = std::bit_cast<uint64_t>(v);
  char buffer[40];
  if (std::isnan(v)) {
    if (bits == kPlainNan) return "nan";
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, bits, 16).ptr;
    return text("nan(0x", std::string_view(buffer, end - buffer), ")");
  }
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  std::string out(buffer, std::to_chars(buffer, buffer + sizeof buffer, v).ptr);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

std::string constant_text(DType dtype, const Number& v) {
  switch (kind_of(dtype)) {
    case Kind::Bool:
      return v.integer ? "true" : "false";
    case Kind::Int:
      return text(v.integer);
    case Kind::Float:
      return real_text(v.real);
    case Kind::Complex:
      return text("{", real_text(v.real), ", ", real_text(v.imag), "}");
  }
  return {};
}

struct Infix {
  const char* text;
  int level;  // precedence, higher binds tighter; 0: not infix
};

// Only int64 is written infix, so that the text alone determines every dtype.
Infix infix(Expr e) {
  if (e->arity != 2 || e->args[0]->dtype != DType::Int64 || e->args[1]->dtype != DType::Int64)
    return {nullptr, 0};
  switch (e->op) {
    case Op::lt:
      return {" < ", 1};
    case Op::add:
      return {" + ", 2};
    case Op::sub:
      return {" - ", 2};
    case Op::mul:
      return {" * ", 3};
    case Op::div:
      return {" / ", 3};
    case Op::mod:
      return {" % ", 3};
    default:
      return {nullptr, 0};
  }
}

// Writes expressions. With a kernel: its text, which parses back. Without a kernel: text for
// messages, which names tensors as all messages do and omits dtypes of constants.
struct Writer {
  const KernelIR* kernel;
  std::string out{};

  // Items still to be written, the next at the end: an expression in a context of precedence
  // `level`, a literal, or a field of the preceding element.
  struct Item {
    Expr expr = nullptr;
    int level = 0;
    const char* literal = "";
    int field = -1;
  };
  std::vector<Item> open{};

  void expr(Expr root, int level = 0) {
    open.push_back({root, level});
    while (!open.empty()) {
      const Item item = open.back();
      open.pop_back();
      if (!item.expr) {
        out += item.field < 0 ? item.literal : text(".f", item.field);
        continue;
      }
      switch (item.expr->kind) {
        case ExprNode::Kind::Constant:
          constant(item.expr);
          break;
        case ExprNode::Kind::Symbol:
          symbol(item.expr);
          break;
        case ExprNode::Kind::Element:
          array(item.expr->a);
          out += "[";
          if (has_fields(item.expr)) open.push_back({.field = item.expr->b});
          list(item.expr, "]");
          break;
        case ExprNode::Kind::Cast:
          out += text(row(item.expr->dtype).device, "(");
          list(item.expr, ")");
          break;
        case ExprNode::Kind::Apply:
          apply(item.expr, item.level);
          break;
      }
    }
  }

  void list(Expr e, const char* close) {
    open.push_back({.literal = close});
    for (int i = e->arity - 1; i >= 0; --i) {
      open.push_back({e->args[i], 0});
      if (i > 0) open.push_back({.literal = ", "});
    }
  }

  void apply(Expr e, int level) {
    const Infix in = infix(e);
    if (!in.level) {
      out += text(row(e->op).name, "(");
      list(e, ")");
      return;
    }
    if (in.level < level) {
      out += "(";
      open.push_back({.literal = ")"});
    }
    open.push_back({e->args[1], in.level + 1});
    open.push_back({.literal = in.text});
    open.push_back({e->args[0], in.level});
  }

  void constant(Expr e) {
    out += constant_text(e->dtype, e->value);
    if (kernel && e->dtype != DType::Int64) out += text(":", row(e->dtype).device);
  }

  void symbol(Expr e) {
    const char* tensor = kernel ? "" : "t";
    switch (e->symbol) {
      case Symbol::Size:
        out += text("size(", tensor, e->a, ", ", e->b, ")");
        return;
      case Symbol::Stride:
        out += text("stride(", tensor, e->a, ", ", e->b, ")");
        return;
      case Symbol::Scalar:
        input("scalar", "s", e);
        return;
      case Symbol::RngOffset:
        input("rng_offset", "s", e);
        return;
      case Symbol::Value:
        input("value", "t", e);
        return;
      case Symbol::Axis:
        out += text("a", e->a);
        return;
      case Symbol::Var:
        out += text("v", e->a);
        return;
      case Symbol::Param:
        out += text("p", e->a);
        return;
      case Symbol::Thread:
        out += "thread";
        return;
      case Symbol::Block:
        out += "block";
        return;
      case Symbol::Indirect:
        out += text("indirect(", e->a, ")");
        return;
      case Symbol::Extent:
        out += text("size(t", e->a, ", ", e->b, ")");
        return;
    }
  }

  void input(const char* word, const char* in_messages, Expr e) {
    out += kernel ? text(word, "(", e->a, ")") : text(in_messages, e->a);
    if (kernel && e->dtype != DType::Int64) out += text(":", row(e->dtype).device);
  }

  // Also prints statements that verify() rejects, because its messages quote them.
  const Array* array_at(int i) const {
    const bool known = kernel && i >= 0 && i < static_cast<int>(kernel->arrays.size());
    return known ? &kernel->arrays[i] : nullptr;
  }
  void array(int i) {
    const Array* a = array_at(i);
    out += a ? a->name : text("array", i);
  }
  // Returns whether the text must name the field of a partial result.
  bool has_fields(Expr element) const {
    const Array* a = array_at(element->a);
    return element->b > 0 || (a && a->state && row(a->state->op).results() > 1);
  }

  void buffer(int i) {
    const bool known = i >= 0 && i < static_cast<int>(kernel->buffers.size());
    out += known ? kernel->buffers[i].name : text("buffer", i);
  }

  void clause(const char* word, Expr e) {
    if (!e) return;
    out += word;
    expr(e);
  }

  template <class At>
  void subscript(void (Writer::*name)(int), int i, At at) {
    (this->*name)(i);
    out += "[";
    expr(at);
    out += "]";
  }

  template <class Access>
  void guards(const Access& a) {
    clause(" in ", a.in);
    if constexpr (requires { a.count; }) clause(" count ", a.count);
    if constexpr (requires { a.column; }) {
      clause(" column ", a.column);
      clause(" of ", a.columns);
      clause(" jump ", a.jump);
    }
    if constexpr (requires { a.cache; })
      if (a.cache != CachePolicy{}) out += text(" ", row(a.cache).word);
    if constexpr (requires { a.unaligned; })
      if (a.unaligned) out += a.words < 0 ? " unaligned" : text(" unaligned by ", a.words);
  }

  void names(const char* before, void (Writer::*name)(int), const std::vector<int>& numbers) {
    for (int i : numbers) {
      out += before;
      (this->*name)(i);
      before = ", ";
    }
    out += ")";
  }

  // Writes the line of a statement; a kind without a line() overload does not compile.
  void statement(const Stmt& s) {
    std::visit([this](const auto& n) { line(n); }, s.node);
  }

  void line(const Let& n) {
    out += text("v", n.var);
    if (!n.index) out += text(" : ", row(n.value->dtype).device);
    clause(" = ", n.value);
  }

  void line(const Load& n) {
    out += "load ";
    subscript(&Writer::array, n.array, n.element);
    out += text(" width ", n.width, " ");
    subscript(&Writer::buffer, n.buffer, n.offset);
    guards(n);
  }

  void line(const Assign& n) {
    subscript(&Writer::array, n.array, n.element);
    clause(" = ", n.value);
  }

  void line(const Write& n) {
    out += "write ";
    subscript(&Writer::buffer, n.buffer, n.offset);
    out += text(" width ", n.width, " ");
    subscript(&Writer::array, n.array, n.element);
    guards(n);
  }

  void line(const For& n) { out += text("for v", n.var, " < ", n.extent); }

  void line(const Serial& n) {
    out += text("serial v", n.var);
    clause(" < ", n.extent);
    if (n.unroll) out += text(" unroll ", n.unroll);
  }

  void line(const If& n) { clause(n.uniform ? "if uniform " : "if ", n.condition); }

  void line(const Barrier&) { out += "barrier"; }

  void line(const InitState& n) {
    out += "init_state ";
    array(n.array);
  }

  void line(const Accumulate& n) {
    out += "accumulate ";
    subscript(&Writer::array, n.array, n.element);
    const char* before = " (";
    for (Expr e : n.values) {
      clause(before, e);
      before = ", ";
    }
    out += ")";
    clause(" in ", n.in);
  }

  void line(const AccumulateAll& n) {
    out += "accumulate_all ";
    array(n.array);
    out += " ";
    array(n.values);
    if (n.positions < 0) return;
    out += " at ";
    array(n.positions);
  }

  void line(const Merge& n) {
    out += "merge ";
    subscript(&Writer::array, n.array, n.element);
    out += " ";
    subscript(&Writer::array, n.other, n.other_element);
  }

  void line(const ThreadReduce& n) {
    out += "thread_reduce ";
    array(n.array);
  }

  void line(const LaneReduce& n) {
    out += "lane_reduce ";
    array(n.array);
    out += ' ';
    array(n.other);
  }

  void line(const LaneTranspose& n) {
    out += "lane_transpose ";
    array(n.array);
  }

  void line(const BlockReduce& n) {
    names("block_reduce (", &Writer::array, n.arrays);
    out += text(" group ", n.group);
    if (!n.slots.empty()) names(" slots (", &Writer::buffer, n.slots);
    if (!n.cluster_slots.empty()) names(" cluster (", &Writer::buffer, n.cluster_slots);
    clause(" parity ", n.parity);
    if (n.arrival) {
      out += " arrival ";
      subscript(&Writer::buffer, n.arrivals, n.arrival);
      clause(" turn ", n.turn);
    }
  }

  void line(const BlockReduceColumns& n) {
    names("block_reduce_columns (", &Writer::array, n.arrays);
    out += text(" threads_y ", n.threads_y, " threads_x ", n.threads_x);
    if (!n.slots.empty()) names(" slots (", &Writer::buffer, n.slots);
  }

  void line(const IsLastBlock& n) {
    out += text("v", n.var, " = is_last_block ");
    subscript(&Writer::buffer, n.counters, n.index);
    clause(" of ", n.count);
    out += " slot ";
    buffer(n.slot);
  }

  void line(const AsyncCopy& n) {
    out += "async_copy ";
    subscript(&Writer::buffer, n.shared, n.element);
    out += text(" width ", n.width, " ");
    subscript(&Writer::buffer, n.buffer, n.offset);
    guards(n);
  }

  void line(const Unpack& n) {
    out += "unpack ";
    array(n.array);
    out += " ";
    subscript(&Writer::array, n.raw, n.chunk);
  }

  void line(const AssertIndex& n) {
    out += text("assert_index ", n.number);
    clause(" ", n.index);
    clause(" of ", n.extent);
    clause(" in ", n.in);
  }

  void line(const AsyncCommit&) { out += "async_commit"; }

  void line(const AsyncWait& n) { out += text("async_wait ", n.pending); }

  void line(const SyncCluster& n) {
    const bool arrive = n.part == SyncCluster::Part::Arrive;
    out += arrive ? "arrive_cluster " : "wait_cluster";
    if (arrive) buffer(n.arrivals);
  }

  void line(const SyncGrid& n) {
    out += "sync_grid ";
    buffer(n.counters);
  }

  void body(const Body& statements, const std::string& indent) {
    for (const Stmt& s : statements) {
      out += indent;
      statement(s);
      if (const Body* inner = inner_body(s)) {
        out += " {\n";
        body(*inner, indent + "  ");
        out += indent + "}";
      }
      out += "\n";
    }
  }

  void state(const std::optional<State>& s) {
    if (s) out += text(" state ", row(s->op).name);
  }

  void memory(const Buffer& b) {
    static constexpr const char* kinds[] = {"", " workspace ", " counters ", " shared "};
    out += text("  buffer ", b.name, " ", row(b.dtype).device);
    state(b.state);
    clause(kinds[static_cast<int>(b.kind)], b.elements);
    out += text(b.read ? " read" : "", b.written ? " written" : "",
                b.restrict_ ? " restrict\n" : "\n");
  }

  void param(const Param& p, size_t index) {
    out += text("  param p", index, " : ", row(p.dtype).device);
    switch (p.kind) {
      case Param::Kind::Int:
        clause(" int ", p.value);
        break;
      case Param::Kind::Divisor:
        clause(" divisor ", p.value);
        break;
      case Param::Kind::Real:
        clause(p.inverse ? " inverse " : " real ", p.value);
        break;
      case Param::Kind::Scalar:
        out += text(" scalar ", p.index);
        break;
      case Param::Kind::RngOffset:
        out += text(" rng_offset ", p.index);
        break;
      case Param::Kind::Value:
        out += text(" value ", p.index);
        break;
    }
    out += "\n";
  }

  void axes(const LinearAxes& w) {
    const char* between = "  axes [";
    if (w.axes.empty()) out += between;
    for (int a : w.axes) {
      out += text(between, "a", a);
      between = " ";
    }
    between = "] extents [";
    if (w.extents.empty()) out += between;
    for (Expr e : w.extents) {
      clause(between, e);
      between = ", ";
    }
    out += "]";
    clause(" index ", w.index);
    out += text(w.vector ? " vector" : "", w.whole ? " whole\n" : "\n");
  }

  void declarations() {
    for (const Buffer& b : kernel->buffers) memory(b);
    for (size_t i = 0; i < kernel->params.size(); ++i) param(kernel->params[i], i);
    for (const Array& a : kernel->arrays) {
      out += text("  array ", a.name, " ", row(a.dtype).device, " ", a.extent);
      state(a.state);
      out += a.chunk ? text(" chunk ", a.chunk, "\n") : "\n";
    }
    for (const LinearAxes& w : kernel->axes) axes(w);
    clause("  blocks ", kernel->blocks);
    if (kernel->blocks) out += "\n";
    clause("  shared_rows ", kernel->shared_rows);
    if (kernel->shared_rows) out += "\n";
  }
};

}  // namespace

std::string to_string(Expr e) {
  Writer writer{.kernel = nullptr};
  writer.expr(e);
  return std::move(writer.out);
}

std::string to_text(const KernelIR& kernel, const Stmt& stmt) {
  Writer writer{.kernel = &kernel};
  writer.statement(stmt);
  return std::move(writer.out);
}

std::string to_text(const KernelIR& k) {
  Writer writer{.kernel = &k};
  writer.out = text("kernel ", k.name, " threads ", k.threads, " min_blocks ", k.min_blocks,
                    " index ", k.index64 ? 64 : 32);
  if (k.cluster != 1) writer.out += text(" cluster ", k.cluster);
  if (k.cooperative) writer.out += " cooperative";
  if (k.vars != named_vars(k)) writer.out += text(" vars ", k.vars);
  writer.out += " {\n";
  writer.declarations();
  writer.body(k.body, "  ");
  writer.out += "}\n";
  return std::move(writer.out);
}

}  // namespace fuser::ir
