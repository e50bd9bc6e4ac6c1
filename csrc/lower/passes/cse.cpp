#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "lower/passes.h"

namespace fuser::lower {

using namespace ir;

namespace {

// Returns whether `e` is index arithmetic: integers and predicates over variables, parameters,
// thread and block.
bool is_index_arithmetic(Expr e, const std::unordered_set<int>& index_vars) {
  if (e->kind != ExprNode::Kind::Apply) return false;
  bool ok = true;
  visit(e, [&](Expr n) {
    if (n->kind == ExprNode::Kind::Element || n->kind == ExprNode::Kind::Cast) ok = false;
    if (n->is_symbol(Symbol::Var) && !index_vars.count(n->a)) ok = false;
    if (n->is_symbol(Symbol::Param) && n->dtype != DType::Int64) ok = false;
  });
  return ok;
}

struct CommonSubexpressions {
  KernelIR& kernel;
  std::unordered_set<int> index_vars;    // Lets marked index, and loop variables
  std::unordered_map<Expr, int> uses;    // number of uses by statements and by distinct parents
  std::unordered_map<Expr, Expr> named;  // expression -> its variable, in scope
  std::unordered_set<int> known_vars;    // index variables in scope

  // Returns whether `e` reads a variable that is defined further in.
  bool reads_unknown(Expr e) {
    bool found = false;
    visit(e, [&](Expr n) { found |= n->is_symbol(Symbol::Var) && !known_vars.count(n->a); });
    return found;
  }

  void count(Body& body) {
    std::unordered_set<Expr> parents;
    visit(body, [&](Stmt& s) {
      for (Expr* field : index_fields(s)) {
        ++uses[*field];
        visit(*field, [&](Expr e) {
          if (parents.insert(e).second)
            for (Expr a : e->operands()) ++uses[a];
        });
      }
    });
  }

  bool reads(Expr e, int variable) {
    bool found = false;
    visit(e, [&](Expr n) { found |= n->is_symbol(Symbol::Var) && n->a == variable; });
    return found;
  }

  // Rewrites an expression in terms of named variables, and names in `out` each subexpression with
  // several uses. Loop-invariant subexpressions were named by hoist() before.
  Expr name(Expr root, Body& out, bool root_is_let) {
    std::unordered_map<Expr, Expr> image;
    visit(root, [&](Expr e) {
      const auto it = named.find(e);
      if (it != named.end()) {
        image[e] = it->second;
        return;
      }
      Expr r = rewrite(kernel.exprs, e, [&](Expr n) -> Expr {
        if (n == e) return nullptr;
        const auto found = image.find(n);
        return found == image.end() ? nullptr : found->second;
      });
      const bool worth =
          uses[e] > 1 && e->kind == ExprNode::Kind::Apply && is_index_arithmetic(e, index_vars);
      if (worth && !(root_is_let && e == root)) {
        const int v = kernel.vars++;
        index_vars.insert(v);
        known_vars.insert(v);
        out.push_back({Let{.var = v, .value = r, .index = true}});
        r = kernel.exprs.symbol(Symbol::Var, v, 0, e->dtype);
        named[e] = r;
      }
      image[e] = r;
    });
    return image.at(root);
  }

  // Names the largest loop-invariant subexpressions of a loop's index arithmetic in front of the
  // loop.
  void hoist(Body& body, int var, Body& out) {
    visit(body, [&](Stmt& s) {
      for (Expr* field : index_fields(s)) {
        std::vector<Expr> open{*field};
        while (!open.empty()) {
          Expr e = open.back();
          open.pop_back();
          if (e->kind != ExprNode::Kind::Apply) continue;
          if (reads(e, var) || reads_unknown(e)) {
            for (Expr a : e->operands()) open.push_back(a);
          } else if (!named.count(e)) {
            uses[e] = std::max(uses[e], 2);
            name(e, out, false);
          }
        }
      }
    });
  }

  Body run(Body body) {
    Body out;
    for (Stmt& s : body) {
      if (Body* inner = inner_body(s)) {
        for (Expr* field : index_fields(s)) *field = name(*field, out, false);
        const int var = defined_var(s);
        if (var >= 0) {
          index_vars.insert(var);
          known_vars.insert(var);
          hoist(*inner, var, out);
        }
        const auto outer = named;
        const auto outer_vars = known_vars;
        *inner = run(std::move(*inner));
        named = outer;
        known_vars = outer_vars;
        if (var >= 0) known_vars.erase(var);
      } else if (auto* let = std::get_if<Let>(&s.node); let && let->index) {
        index_vars.insert(let->var);
        known_vars.insert(let->var);
        Expr original = let->value;
        let->value = name(original, out, true);
        named.emplace(original, kernel.exprs.symbol(Symbol::Var, let->var, 0, original->dtype));
      } else {
        for (Expr* field : index_fields(s)) *field = name(*field, out, false);
        if (std::holds_alternative<IsLastBlock>(s.node)) {
          index_vars.insert(defined_var(s));
          known_vars.insert(defined_var(s));
        }
      }
      out.push_back(std::move(s));
    }
    return out;
  }
};

// Depth of nested parentheses that every compiler accepts.
constexpr int kNesting = 32;

// Names arithmetic on values that reads only parameters and constants, at the top of the kernel.
// Names it only if it has several uses or would nest too deep. Without names the text would double
// with each scalar that is used twice.
void name_scalars(KernelIR& kernel) {
  struct Scalar {
    Expr image;
    int nesting;  // depth of parentheses in the text; 0 if it has a name or is a leaf
  };
  std::vector<Expr> roots;
  std::unordered_map<Expr, int> uses;
  visit(kernel.body, [&](Stmt& s) {
    for (Expr* field : value_fields(s)) {
      roots.push_back(*field);
      ++uses[*field];
    }
  });
  visit(roots, [&](Expr e) {
    for (Expr a : e->operands()) ++uses[a];
  });

  Body named;
  std::unordered_map<Expr, Scalar> scalars;  // expressions that read a parameter
  visit(roots, [&](Expr e) {
    if (e->is_symbol(Symbol::Param)) scalars[e] = {e, 0};
    if (e->kind != ExprNode::Kind::Apply && e->kind != ExprNode::Kind::Cast) return;
    int nesting = 0;
    bool is_scalar = false;
    for (Expr a : e->operands()) {
      const auto known = scalars.find(a);
      if (known == scalars.end() && !a->is_constant()) return;
      if (known == scalars.end()) continue;
      is_scalar = true;
      nesting = std::max(nesting, known->second.nesting);
    }
    if (!is_scalar) return;
    Expr image = rewrite(kernel.exprs, e, [&](Expr n) -> Expr {
      const auto known = n == e ? scalars.end() : scalars.find(n);
      return known == scalars.end() ? nullptr : known->second.image;
    });
    if (uses[e] > 1 || ++nesting == kNesting) {
      nesting = 0;
      const int v = kernel.vars++;
      named.push_back({Let{.var = v, .value = image}});
      image = kernel.exprs.symbol(Symbol::Var, v, 0, e->dtype);
    }
    scalars[e] = {image, nesting};
  });
  if (named.empty()) return;
  visit(kernel.body, [&](Stmt& s) {
    for (Expr* field : value_fields(s))
      *field = rewrite(kernel.exprs, *field, [&](Expr n) -> Expr {
        const auto known = scalars.find(n);
        return known == scalars.end() ? nullptr : known->second.image;
      });
  });
  kernel.body.insert(kernel.body.begin(), std::make_move_iterator(named.begin()),
                     std::make_move_iterator(named.end()));
}

}  // namespace

void cse(KernelIR& kernel) {
  name_scalars(kernel);
  CommonSubexpressions common{
      .kernel = kernel, .index_vars = {}, .uses = {}, .named = {}, .known_vars = {}};
  common.count(kernel.body);
  kernel.body = common.run(std::move(kernel.body));
}

}  // namespace fuser::lower
