#include "ir/kernel.h"

#include <algorithm>

namespace fuser::ir {

namespace {

// Returns the body of a statement, or nullptr.
template <class S>
auto* body_of(S& s) {
  using B = std::conditional_t<std::is_const_v<S>, const Body, Body>;
  return std::visit(
      [](auto& n) -> B* {
        if constexpr (requires { n.body; })
          return &n.body;
        else
          return nullptr;
      },
      s.node);
}

// Calls index(e) for each field of index arithmetic of a statement, and value(e) for each other
// expression. Excludes its body; fields may be nullptr.
template <class S, class Index, class Value>
void fields(S& s, Index index, Value value) {
  std::visit(
      [&](auto& n) {
        using N = std::decay_t<decltype(n)>;
        if constexpr (std::is_same_v<N, Let>) {
          n.index ? index(n.value) : value(n.value);
        } else if constexpr (std::is_same_v<N, Load> || std::is_same_v<N, Write>) {
          value(n.element);
          for (auto* e : {&n.offset, &n.in, &n.count, &n.column, &n.columns, &n.jump}) index(*e);
        } else if constexpr (std::is_same_v<N, Assign>) {
          value(n.element);
          value(n.value);
        } else if constexpr (std::is_same_v<N, Serial>) {
          index(n.extent);
        } else if constexpr (std::is_same_v<N, If>) {
          index(n.condition);
        } else if constexpr (std::is_same_v<N, Accumulate>) {
          value(n.element);
          for (auto& e : n.values) value(e);
          index(n.in);
        } else if constexpr (std::is_same_v<N, Merge>) {
          value(n.element);
          value(n.other_element);
        } else if constexpr (std::is_same_v<N, BlockReduce>) {
          for (auto* e : {&n.parity, &n.arrival, &n.turn}) index(*e);
        } else if constexpr (std::is_same_v<N, IsLastBlock>) {
          index(n.index);
          index(n.count);
        } else if constexpr (std::is_same_v<N, AsyncCopy>) {
          for (auto* e : {&n.element, &n.offset, &n.in}) index(*e);
        } else if constexpr (std::is_same_v<N, Unpack>) {
          value(n.chunk);
        } else if constexpr (std::is_same_v<N, AssertIndex>) {
          value(n.index);
          index(n.extent);
          index(n.in);
        } else {
          static_assert(std::is_same_v<N, For> || std::is_same_v<N, Barrier> ||
                            std::is_same_v<N, AccumulateAll> || std::is_same_v<N, InitState> ||
                            std::is_same_v<N, ThreadReduce> || std::is_same_v<N, LaneReduce> ||
                            std::is_same_v<N, LaneTranspose> ||
                            std::is_same_v<N, BlockReduceColumns> ||
                            std::is_same_v<N, AsyncCommit> || std::is_same_v<N, AsyncWait> ||
                            std::is_same_v<N, SyncCluster> || std::is_same_v<N, SyncGrid>,
                        "fields() misses a statement");
        }
      },
      s.node);
}

}  // namespace

// The schedule bounds the nesting of loops, so recursion over bodies is shallow.
void visit(Body& body, const std::function<void(Stmt&)>& f) {
  for (Stmt& s : body) {
    f(s);
    if (Body* inner = body_of(s)) visit(*inner, f);
  }
}

void visit(const Body& body, const std::function<void(const Stmt&)>& f) {
  for (const Stmt& s : body) {
    f(s);
    if (const Body* inner = body_of(s)) visit(*inner, f);
  }
}

Body* inner_body(Stmt& s) { return body_of(s); }
const Body* inner_body(const Stmt& s) { return body_of(s); }

int defined_var(const Stmt& s) {
  return std::visit(
      [](const auto& n) {
        if constexpr (requires { n.var; })
          return n.var;
        else
          return -1;
      },
      s.node);
}

void set_defined_var(Stmt& s, int var) {
  std::visit(
      [&](auto& n) {
        if constexpr (requires { n.var; }) n.var = var;
      },
      s.node);
}

bool is_collective(const Stmt& s) {
  return std::holds_alternative<Barrier>(s.node) || std::holds_alternative<LaneReduce>(s.node) ||
         std::holds_alternative<LaneTranspose>(s.node) ||
         std::holds_alternative<BlockReduce>(s.node) ||
         std::holds_alternative<BlockReduceColumns>(s.node) ||
         std::holds_alternative<IsLastBlock>(s.node) ||
         std::holds_alternative<SyncCluster>(s.node) || std::holds_alternative<SyncGrid>(s.node);
}

std::vector<Expr*> index_fields(Stmt& stmt) {
  std::vector<Expr*> out;
  fields(
      stmt,
      [&](Expr& e) {
        if (e) out.push_back(&e);
      },
      [](Expr&) {});
  return out;
}

std::vector<Expr*> value_fields(Stmt& stmt) {
  std::vector<Expr*> out;
  fields(
      stmt, [](Expr&) {},
      [&](Expr& e) {
        if (e) out.push_back(&e);
      });
  return out;
}

void map_expressions(Body& body, const std::function<Expr(Expr)>& f) {
  const auto map = [&](Expr& e) {
    if (e) e = f(e);
  };
  visit(body, [&](Stmt& s) { fields(s, map, map); });
}

std::vector<Expr> expressions(const Stmt& s) {
  std::vector<Expr> out;
  const auto add = [&](const Expr& e) {
    if (e) out.push_back(e);
  };
  fields(s, add, add);
  return out;
}

int named_vars(const KernelIR& kernel) {
  int count = 0;
  const auto mention = [&](int var) { count = std::max(count, var + 1); };
  std::vector<Expr> roots;
  for (const LinearAxes& w : kernel.axes)
    if (w.index) roots.push_back(w.index);
  visit(kernel.body, [&](const Stmt& s) {
    mention(defined_var(s));
    for (Expr e : expressions(s)) roots.push_back(e);
  });
  visit(roots, [&](Expr e) {
    if (e->is_symbol(Symbol::Var)) mention(e->a);
  });
  return count;
}

bool KernelIR::collectives() const {
  bool found = false;
  visit(body, [&](const Stmt& s) { found |= is_collective(s); });
  return found;
}

int element_bytes(const Buffer& b) {
  return b.state ? state_bytes(b.state->op, b.dtype) : size_of(b.dtype);
}

int KernelIR::shared_bytes() const {
  int bytes = 0;
  for (const Buffer& b : buffers) {
    if (b.kind != Buffer::Kind::Shared || !b.elements->is_constant()) continue;
    bytes = (bytes + 15) / 16 * 16 + element_bytes(b) * static_cast<int>(b.elements->value.integer);
  }
  // Asynchronous copies write complete lines of shared memory only if source and destination have
  // equal alignment.
  constexpr int line = 128;
  return shared_rows ? (bytes + line - 1) / line * line : bytes;
}

int KernelIR::argument_bytes() const {
  int bytes = 0;
  for (const Buffer& b : buffers) bytes += b.kind == Buffer::Kind::Shared ? 0 : 8;
  for (const Param& p : params) {
    // A 32-bit divisor is three words (device/fast_div.cuh: FastDiv).
    const bool fast = p.kind == Param::Kind::Divisor && p.dtype == DType::Int32;
    const int align = fast ? 4 : size_of(p.dtype);
    // A number and an address (device/random.cuh: Drawn).
    const int size = fast ? 12 : p.kind == Param::Kind::RngOffset ? 16 : align;
    bytes = (bytes + align - 1) / align * align + size;
  }
  return bytes;
}

}  // namespace fuser::ir
