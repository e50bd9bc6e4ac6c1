// Ops in place under training. Torch's differentiable graphs take none, so that what stands before
// such an op and what stands behind it would lie in graphs of their own, or in none.
#include <algorithm>

#include "torch/torchscript.h"

namespace fuser {
namespace {

using namespace torch::jit;  // NOLINT: half the names of this file are its

// May it change whether gradients are recorded, or run what is not in the graph?
bool changes_modes(Node* n) {
  switch (n->kind()) {
    case prim::Enter:
    case prim::Exit:
    case prim::CallFunction:
    case prim::CallMethod:
    case prim::PythonOp:
    case aten::wait:
      return true;
    default:
      break;
  }
  static const Symbol set_grad_enabled = Symbol::aten("set_grad_enabled");
  const auto in = [](Block* block) {
    return std::any_of(block->nodes().begin(), block->nodes().end(), changes_modes);
  };
  const auto blocks = n->blocks();
  return n->kind() == set_grad_enabled || std::any_of(blocks.begin(), blocks.end(), in);
}

Value* without_profile(Value* v) {
  while (v->node()->kind() == prim::profile && !v->node()->inputs().empty())
    v = v->node()->input(0);
  return v;
}

// Of a tensor that its op made anew and does not keep for its gradient: is it of real floats
// for certain?
std::optional<bool> made_of_floats(const ScriptRules& rules, Value* v) {
  Node* const n = v->node();
  if (n->kind() == aten::type_as && n->input(0)->uses().size() == 1) {
    Value* const given = without_profile(n->input(0));
    if (given->uses().size() != 1 || !made_of_floats(rules, given)) return std::nullopt;
    return made_of_floats(rules, without_profile(n->input(1)));
  }
  const auto found = rules.makers.find(n->kind().toQualString());
  if (found == rules.makers.end()) return std::nullopt;
  return found->second;
}

// Is the op the first to read its first operand, which only it sees?
bool is_first(const Node* n, const Value* written) {
  const std::vector<Use>& uses = written->uses();
  return std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
    return use.user == n ? use.offset == 0 : n->isBefore(use.user);
  });
}

// Is it none that can be complex, or one of the words and flags that an op takes?
bool is_number(const Value* v) {
  switch (v->type()->kind()) {
    case TypeKind::IntType:
    case TypeKind::FloatType:
    case TypeKind::BoolType:
    case TypeKind::NoneType:
    case TypeKind::StringType:
      return true;
    default:
      return false;
  }
}

bool any_writes(Block* block, const Node* but, const ValueSet& values, AliasDb& aliases) {
  return std::any_of(block->nodes().begin(), block->nodes().end(), [&](Node* n) {
    if (n->blocks().empty()) return n != but && aliases.writesToAlias(n, values);
    return std::any_of(n->blocks().begin(), n->blocks().end(),
                       [&](Block* inner) { return any_writes(inner, but, values, aliases); });
  });
}

// Is what an op in place gives written by others? Eager refuses its gradient then if it keeps it.
bool is_written_again(const Node* n) {
  Graph* const graph = const_cast<Graph*>(n->owningGraph());
  AliasDb aliases(graph->shared_from_this());
  return any_writes(graph->block(), n, {n->output()}, aliases);
}

// x.op_(y) as x.op(y), of the sizes and the type of x.
Value* out_of_place(Graph& graph, Node* n, Symbol kind) {
  Value* const x = n->input(0);
  std::vector<Value*> operands = n->inputs().vec();
  const bool two = operands.size() > 1 && is_tensor(operands[1]);
  if (two) operands[1] = graph.insert(aten::expand_as, {operands[1], x});
  Node* const made = graph.insertNode(graph.create(kind, operands));
  made->copyMetadata(n);
  if (!made->maybeOperator()) {
    made->destroy();
    return nullptr;
  }
  return two ? graph.insert(aten::type_as, {made->output(), x}) : made->output();
}

}  // namespace

void take_out_of_place(Node* n, const ScriptRules& rules) {
  const ScriptOp* const op = find_in_place(rules, n);
  if (!op || !op->computes) return;
  std::string name = n->kind().toQualString();
  name.pop_back();
  const auto taken = rules.out_of_place.find(name);
  if (taken == rules.out_of_place.end()) return;
  Value* const x = n->input(0);
  if (x->node()->owningBlock() != n->owningBlock() || !is_first(n, x)) return;
  const auto floats = made_of_floats(rules, x);
  if (!floats || (!*floats && !taken->second.any_type)) return;
  for (size_t i = 1; i < n->inputs().size(); ++i)
    if (!is_number(n->input(i)) && !(i == 1 && *floats && is_tensor(n->input(i)))) return;
  for (Node* between = x->node()->next(); between != n; between = between->next())
    if (changes_modes(between)) return;
  if (taken->second.kept && is_written_again(n)) return;

  Graph& graph = *n->owningGraph();
  WithInsertPoint behind(n->next());
  Value* const result = out_of_place(graph, n, Symbol::fromQualString(name));
  if (!result) return;
  const std::vector<Use> uses = x->uses();
  for (const Use& use : uses)
    if (use.user->isAfter(result->node())) use.user->replaceInput(use.offset, result);
  n->output()->replaceAllUsesWith(result);
  // Torch is about to look at the node, so it stays, and writes where nobody reads.
  WithInsertPoint before(n);
  Value* const nothing = graph.insert(aten::empty, {std::vector<int64_t>{0}});
  for (size_t i = 0; i < n->inputs().size(); ++i)
    if (is_tensor(n->input(i))) n->replaceInput(i, nothing);
}

}  // namespace fuser
