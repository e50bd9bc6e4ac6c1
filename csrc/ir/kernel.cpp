#include "ir/kernel.h"

#include <algorithm>

namespace fuser {

namespace {

template <class Access>  // Load or Write
std::array<Expr*, 6> access_fields(Access& a) {
  return {&a.offset, &a.in, &a.count, &a.column, &a.columns, &a.jump};
}

}  // namespace

// Nesting of loops is bounded by the schedule, not by the graph: recursion over bodies is shallow.
void visit(Body& body, const std::function<void(Stmt&)>& f) {
  for (Stmt& s : body) {
    f(s);
    if (auto* loop = std::get_if<For>(&s.node)) visit(loop->body, f);
  }
}

void visit(const Body& body, const std::function<void(const Stmt&)>& f) {
  for (const Stmt& s : body) {
    f(s);
    if (const auto* loop = std::get_if<For>(&s.node)) visit(loop->body, f);
  }
}

std::vector<Expr*> index_fields(Stmt& stmt) {
  std::vector<Expr*> out;
  std::visit(
      [&](auto& n) {
        using N = std::decay_t<decltype(n)>;
        if constexpr (std::is_same_v<N, Let>) {
          if (n.index) out.push_back(&n.value);
        } else if constexpr (std::is_same_v<N, Load> || std::is_same_v<N, Write>) {
          for (Expr* e : access_fields(n))
            if (*e) out.push_back(e);
        }
      },
      stmt.node);
  return out;
}

void map_expressions(Body& body, const std::function<Expr(Expr)>& f) {
  const auto map = [&](Expr& e) {
    if (e) e = f(e);
  };
  visit(body, [&](Stmt& s) {
    std::visit(
        [&](auto& n) {
          using N = std::decay_t<decltype(n)>;
          if constexpr (std::is_same_v<N, Let>) {
            map(n.value);
          } else if constexpr (std::is_same_v<N, Load> || std::is_same_v<N, Write>) {
            map(n.element);
            for (Expr* e : access_fields(n)) map(*e);
          } else if constexpr (std::is_same_v<N, Assign>) {
            map(n.element);
            map(n.value);
          } else {
            static_assert(std::is_same_v<N, For> || std::is_same_v<N, Barrier>,
                          "map_expressions() misses a statement");
          }
        },
        s.node);
  });
}

std::vector<Expr> expressions(const Stmt& s) {
  std::vector<Expr> out;
  std::visit(
      [&](const auto& n) {
        using N = std::decay_t<decltype(n)>;
        if constexpr (std::is_same_v<N, Let>) {
          out = {n.value};
        } else if constexpr (std::is_same_v<N, Load> || std::is_same_v<N, Write>) {
          out = {n.element, n.offset, n.in, n.count, n.column, n.columns, n.jump};
        } else if constexpr (std::is_same_v<N, Assign>) {
          out = {n.element, n.value};
        } else {
          static_assert(std::is_same_v<N, For> || std::is_same_v<N, Barrier>,
                        "expressions() misses a statement");
        }
      },
      s.node);
  std::erase(out, nullptr);
  return out;
}

int named_vars(const KernelIR& kernel) {
  int count = 0;
  const auto mention = [&](int var) { count = std::max(count, var + 1); };
  std::vector<Expr> roots;
  for (const LinearAxes& w : kernel.axes)
    if (w.index) roots.push_back(w.index);
  visit(kernel.body, [&](const Stmt& s) {
    if (const auto* let = std::get_if<Let>(&s.node)) mention(let->var);
    if (const auto* loop = std::get_if<For>(&s.node)) mention(loop->var);
    for (Expr e : expressions(s)) roots.push_back(e);
  });
  visit(roots, [&](Expr e) {
    if (e->is_symbol(Symbol::Var)) mention(e->a);
  });
  return count;
}

bool KernelIR::collectives() const {
  bool found = false;
  visit(body, [&](const Stmt& s) { found |= std::holds_alternative<Barrier>(s.node); });
  return found;
}

int KernelIR::argument_bytes() const {
  int bytes = static_cast<int>(buffers.size()) * 8;
  for (const Param& p : params) {
    // A 32-bit divisor is three words (device/integer.cuh: FastDiv).
    const bool fast = p.kind == Param::Kind::Divisor && p.dtype == DType::Int32;
    const int size = fast ? 12 : size_of(p.dtype), align = fast ? 4 : size;
    bytes = (bytes + align - 1) / align * align + size;
  }
  return bytes;
}

}  // namespace fuser
