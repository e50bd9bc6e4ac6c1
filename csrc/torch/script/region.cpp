// Control flow that depends on numbers, not on tensors: the dims of a mean, whether it keeps them.
// An If of this kind is one node of a group. The definition contains the branch that the numbers
// select, and these numbers are part of the signature.
#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include <algorithm>
#include <unordered_set>

#include "torch/script/torchscript.h"

namespace fuser::script {
namespace {

using namespace torch::jit;  // NOLINT: most names in this file belong to it

bool changes_a_list(const Node* n) {
  return n->kind() == aten::_set_item || n->kind() == aten::append;
}

// Not every torch version has a constant for it.
Symbol numel() {
  static const Symbol kind = Symbol::aten("numel");
  return kind;
}

bool asks_a_tensor(const Node* n) {
  return n->kind() == aten::dim || n->kind() == aten::size || n->kind() == numel();
}

// Returns whether the node is `x is None` or `x is not None`, which the arguments decide.
bool asks_for_none(const Node* n) {
  return n->kind() == aten::__is__ || n->kind() == aten::__isnot__;
}

// Returns whether the op computes with numbers and lists of numbers only.
// fuser/adapters/torchscript.py has a copy of this list.
bool on_numbers(const Node* n) {
  static const auto* kinds =
      new std::unordered_set<Symbol>{prim::Constant,    prim::ListConstruct,
                                     aten::len,         aten::add,
                                     aten::sub,         aten::mul,
                                     aten::eq,          aten::ne,
                                     aten::lt,          aten::le,
                                     aten::gt,          aten::ge,
                                     aten::__not__,     aten::__round_to_zero_floordiv,
                                     aten::__getitem__, aten::_set_item,
                                     aten::append};
  const bool asks = asks_a_tensor(n);
  if (!asks && !kinds->count(n->kind())) return false;
  const auto number = [](const Value* v) { return !is_tensor(v) && !is_tensor_list(v); };
  return std::all_of(n->outputs().begin(), n->outputs().end(), number) &&
         std::all_of(n->inputs().begin(), n->inputs().end(),
                     [&](const Value* v) { return asks || number(v); });
}

// Returns whether the node is a list of tensors that only ops of groups read.
bool lists_operands(const Node* n, const ScriptRules& rules) {
  if (n->kind() != prim::ListConstruct || !is_tensor_list(n->output())) return false;
  const std::vector<Use>& uses = n->output()->uses();
  return std::all_of(uses.begin(), uses.end(),
                     [&](const Use& use) { return find_op(rules, use.user); });
}

// Returns whether a number depends on the size of a tensor, which is known only at run time.
bool follows_a_size(const Value* v) {
  const Node* n = v->node();
  if (asks_a_tensor(n) && n->kind() != aten::dim) return true;
  const auto any = [](at::ArrayRef<const Value*> values) {
    return std::any_of(values.begin(), values.end(), follows_a_size);
  };
  if (n->kind() == prim::If)
    return any(n->blocks()[0]->outputs()) || any(n->blocks()[1]->outputs());
  return on_numbers(n) && n->kind() != aten::len && n->kind() != aten::dim && any(n->inputs());
}

// Returns whether the operands must be known when the definition is written.
bool decides(const Node* n) {
  switch (n->kind()) {
    case prim::If:
    case prim::Loop:
    case aten::eq:
    case aten::ne:
    case aten::lt:
    case aten::le:
    case aten::gt:
    case aten::ge:
    case aten::__round_to_zero_floordiv:
      return true;
    default:
      return false;
  }
}

// Values from outside that a node with blocks reads, in order of appearance.
struct Captured {
  std::unordered_set<const Value*> inside;
  std::vector<Value*> values;

  void use(Value* v) {
    if (inside.count(v) || std::find(values.begin(), values.end(), v) != values.end()) return;
    values.push_back(v);
  }
  void visit(Node* n) {
    for (Value* v : n->inputs()) use(v);
    for (Block* b : n->blocks()) {
      inside.insert(b->inputs().begin(), b->inputs().end());
      for (Node* each : b->nodes()) {
        visit(each);
        inside.insert(each->outputs().begin(), each->outputs().end());
      }
      for (Value* v : b->outputs()) use(v);
    }
  }
};

bool stands_in(const Node* n, const Node* outer) {
  while (n && n != outer) n = n->owningBlock()->owningNode();
  return n == outer;
}

// Returns whether a definition can express the blocks of n. n is `outer` or a node inside of it.
// Lists that are modified must be created in `outer`.
bool writable(const Node* n, const Node* outer, const ScriptRules& rules) {
  for (const Block* b : n->blocks()) {
    for (const Node* each : b->nodes()) {
      if (decides(each) &&
          std::any_of(each->inputs().begin(), each->inputs().end(),
                      [](const Value* v) { return !is_tensor(v) && follows_a_size(v); }))
        return false;
      if (each->kind() == prim::If || each->kind() == prim::Loop) {
        if (!writable(each, outer, rules)) return false;
      } else if (!on_numbers(each) && !asks_for_none(each) && !unwraps(each) &&
                 !lists_operands(each, rules) && !find_op(rules, each)) {
        return false;
      }
      if (each->maybeSchema() && each->schema().is_mutable() && !changes_a_list(each)) return false;
      if (changes_a_list(each) && !stands_in(each->input(0)->node(), outer)) return false;
    }
  }
  return true;
}

// Returns whether only ops of groups read v, in this block or in nested branches.
bool ops_alone_read(const Value* v, const Block* block, const ScriptRules& rules) {
  std::vector<const Value*> left{v};
  while (!left.empty()) {
    const std::vector<Use>& uses = left.back()->uses();
    left.pop_back();
    for (const Use& use : uses) {
      const Block* where = use.user->owningBlock();
      if (use.user->kind() == prim::Return) {  // the If passes the result of its branch on
        const Node* branch = where->owningNode();
        if (where == block || !branch || branch->kind() != prim::If) return false;
        left.push_back(branch->outputs()[use.offset]);
        continue;
      }
      if (!find_op(rules, use.user)) return false;
      while (where != block) {
        const Node* holder = where->owningNode();
        if (!holder || holder->kind() != prim::If) return false;
        where = holder->owningBlock();
      }
    }
  }
  return true;
}

// Returns whether the If returns a tensor that no group can have computed, to a user that is no op
// of a group. A group would return a copy; without the region, its branches are processed
// separately.
bool gives_back(const Node* n, const ScriptRules& rules) {
  const Block* const block = n->owningBlock();
  return std::any_of(n->outputs().begin(), n->outputs().end(), [&](const Value* v) {
    if (ops_alone_read(v, block, rules)) return false;
    const std::vector<const Value*> roots = roots_of(v);
    return std::any_of(roots.begin(), roots.end(), [&](const Value* root) {
      const Node* made_by = root->node();
      const bool fuses = made_by->owningBlock() == block && find_op(rules, made_by);
      return !fuses && !stands_in(made_by, n);
    });
  });
}

void make_region(Node* n, const std::vector<Value*>& captured) {
  auto body = std::make_shared<Graph>();
  std::unordered_map<Value*, Value*> known;
  for (Value* v : captured) known[v] = body->addInput()->copyMetadata(v);
  Node* copy = body->insertNode(body->createClone(n, [&](Value* v) { return known.at(v); }));
  for (Value* v : copy->outputs()) body->registerOutput(v);
  Graph& graph = *n->owningGraph();
  const ScriptSymbols& symbols = script_symbols();
  Node* region = graph.create(symbols.region, captured, n->outputs().size())->insertBefore(n);
  region->g_(symbols.body, body);
  for (size_t i = 0; i < n->outputs().size(); ++i) {
    region->output(i)->copyMetadata(n->output(i));
    n->output(i)->replaceAllUsesWith(region->output(i));
  }
  n->destroy();
}

}  // namespace

void make_regions(Block* block, const ScriptRules& rules, AliasDb& aliases) {
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    Node* const n = *it++;
    const bool makes_tensors =
        !n->outputs().empty() && std::all_of(n->outputs().begin(), n->outputs().end(), is_tensor);
    if (n->kind() == prim::If && makes_tensors && writable(n, n, rules) && !gives_back(n, rules)) {
      Captured captured;
      captured.visit(n);
      const bool written = std::any_of(captured.values.begin(), captured.values.end(),
                                       [&](Value* v) { return aliases.hasWriters(v); });
      if (!written) {
        make_region(n, captured.values);
        continue;
      }
    }
    for (Block* inner : n->blocks()) make_regions(inner, rules, aliases);
  }
}

void inline_regions(Block* block) {
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    Node* const n = *it++;
    for (Block* inner : n->blocks()) inline_regions(inner);
    if (n->kind() != script_symbols().region) continue;
    WithInsertPoint at(n);
    const auto results =
        insertGraph(*block->owningGraph(), *n->g(script_symbols().body), n->inputs());
    for (size_t i = 0; i < results.size(); ++i) n->output(i)->replaceAllUsesWith(results[i]);
    n->destroy();
  }
}

}  // namespace fuser::script
