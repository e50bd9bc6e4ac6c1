#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "lower/passes.h"

namespace fuser {
namespace {

// Removes the Lets whose variable nothing reads; true if one was.
bool drop_dead(Body& body, const std::unordered_set<int>& read) {
  bool changed = false;
  for (Stmt& s : body)
    if (auto* loop = std::get_if<For>(&s.node)) changed |= drop_dead(loop->body, read);
  const auto dead = [&](const Stmt& s) {
    if (const auto* let = std::get_if<Let>(&s.node)) return !read.count(let->var);
    if (const auto* loop = std::get_if<For>(&s.node)) return loop->body.empty();
    return false;
  };
  const auto end = std::remove_if(body.begin(), body.end(), dead);
  changed |= end != body.end();
  body.erase(end, body.end());
  return changed;
}

}  // namespace

void renumber(KernelIR& kernel) {
  std::unordered_set<int> read;
  do {
    read.clear();
    visit(std::as_const(kernel.body), [&](const Stmt& s) {
      visit(expressions(s), [&](Expr e) {
        if (e->is_symbol(Symbol::Var)) read.insert(e->a);
      });
    });
  } while (drop_dead(kernel.body, read));

  std::unordered_map<int, int> vars, params;
  std::vector<int> param_order;
  visit(std::as_const(kernel.body), [&](const Stmt& s) {
    visit(expressions(s), [&](Expr e) {
      if (e->is_symbol(Symbol::Param) &&
          params.try_emplace(e->a, static_cast<int>(params.size())).second)
        param_order.push_back(e->a);
    });
    if (const auto* let = std::get_if<Let>(&s.node))
      vars.try_emplace(let->var, static_cast<int>(vars.size()));
    if (const auto* loop = std::get_if<For>(&s.node))
      vars.try_emplace(loop->var, static_cast<int>(vars.size()));
  });
  map_expressions(kernel.body, [&](Expr root) {
    return rewrite(kernel.exprs, root, [&](Expr e) -> Expr {
      if (e->is_symbol(Symbol::Var))
        return kernel.exprs.symbol(Symbol::Var, vars.at(e->a), 0, e->dtype);
      if (e->is_symbol(Symbol::Param))
        return kernel.exprs.symbol(Symbol::Param, params.at(e->a), 0, e->dtype);
      return nullptr;
    });
  });
  visit(kernel.body, [&](Stmt& s) {
    if (auto* let = std::get_if<Let>(&s.node)) let->var = vars.at(let->var);
    if (auto* loop = std::get_if<For>(&s.node)) loop->var = vars.at(loop->var);
  });
  std::vector<Param> kept;
  for (int p : param_order) kept.push_back(kernel.params[p]);
  kernel.params = std::move(kept);
  kernel.vars = static_cast<int>(vars.size());
}

}  // namespace fuser
