#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "lower/passes.h"

namespace fuser::lower {

using namespace ir;

namespace {

// Removes Lets without uses and empty loops. Returns whether it removed any.
bool drop_dead(Body& body, const std::unordered_set<int>& read) {
  bool changed = false;
  for (Stmt& s : body)
    if (Body* inner = inner_body(s)) changed |= drop_dead(*inner, read);
  const auto dead = [&](const Stmt& s) {
    if (const auto* let = std::get_if<Let>(&s.node)) return !read.count(let->var);
    const Body* inner = inner_body(s);
    return inner && inner->empty();
  };
  const auto end = std::remove_if(body.begin(), body.end(), dead);
  changed |= end != body.end();
  body.erase(end, body.end());
  return changed;
}

}  // namespace

void canonicalize(KernelIR& kernel) {
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
    if (const int var = defined_var(s); var >= 0)
      vars.try_emplace(var, static_cast<int>(vars.size()));
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
    if (const int var = defined_var(s); var >= 0) set_defined_var(s, vars.at(var));
  });
  std::vector<Param> kept;
  for (int p : param_order) kept.push_back(kernel.params[p]);
  kernel.params = std::move(kept);
  kernel.vars = static_cast<int>(vars.size());
}

}  // namespace fuser::lower
