// In-place ops in training. Torch's differentiable graphs contain no in-place op, so that ops
// before and after one would be in separate graphs, or in none.
#include <algorithm>

#include "torch/script/torchscript.h"

namespace fuser::script {
namespace {

using namespace torch::jit;  // NOLINT: half the names of this file are its

// Returns whether the node may switch the recording of gradients, or run code outside of the graph.
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

// nullopt unless the op of `v` makes a new tensor and does not save it for its gradient. Otherwise
// whether the tensor certainly holds real floats.
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

// Returns whether the op is the first reader of `written`, which is its first operand only.
bool is_first(const Node* n, const Value* written) {
  const std::vector<Use>& uses = written->uses();
  return std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
    return use.user == n ? use.offset == 0 : n->isBefore(use.user);
  });
}

// Returns whether the value is a real number, a flag, a string or None: no tensor and no complex
// number.
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

// Returns whether another op writes the result of an in-place op. Eager then refuses the gradient
// if the op saved its result.
bool is_written_again(const Node* n) {
  Graph* const graph = const_cast<Graph*>(n->owningGraph());
  AliasDb aliases(graph->shared_from_this());
  return any_writes(graph->block(), n, {n->output()}, aliases);
}

// Raises eager's error for a complex operand of an in-place op on real numbers.
void refuse_complex(Graph& graph, Value* operand) {
  Value* const complex = graph.insert(aten::is_complex, {operand});
  Node* const branch = graph.insertNode(graph.create(prim::If, {complex}, 0));
  WithInsertPoint raising(branch->addBlock());
  branch->addBlock();
  Value* const message =
      graph.insertConstant("result type Complex can't be cast to the desired output type Float");
  Value* const kind = graph.insertConstant("builtins.RuntimeError");
  graph.insertNode(graph.create(prim::RaiseException, {message, kind}, 0));
}

// Inserts x.op(y) for x.op_(y), with the sizes and the type of x.
Value* out_of_place(Graph& graph, Node* n, Symbol kind) {
  Value* const x = n->input(0);
  std::vector<Value*> operands = n->inputs().vec();
  const bool two = operands.size() > 1 && is_tensor(operands[1]);
  if (two) {
    refuse_complex(graph, operands[1]);
    operands[1] = graph.insert(aten::expand_as, {operands[1], x});
  }
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
  // Torch reads the node next, so it stays. It writes an empty tensor without readers.
  WithInsertPoint before(n);
  Value* const nothing = graph.insert(aten::empty, {std::vector<int64_t>{0}});
  for (size_t i = 0; i < n->inputs().size(); ++i)
    if (is_tensor(n->input(i))) n->replaceInput(i, nothing);
}

}  // namespace fuser::script
