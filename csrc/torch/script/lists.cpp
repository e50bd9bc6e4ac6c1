// Tensor lists whose elements a script takes by constant index: x.chunk(3, 1)[0]. A group returns
// no lists, and the length of the list may be unknown. So each element becomes a node of its own.
#include <ATen/ops/chunk.h>
#include <ATen/ops/split.h>
#include <ATen/ops/split_with_sizes.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <stdexcept>

#include "torch/script/torchscript.h"

namespace fuser::script {
namespace {

using namespace torch::jit;  // NOLINT: most names in this file belong to it

// Returns the op that computes one element, with the element's index after the operands. For unbind
// it is torch's own op.
std::optional<Symbol> part_of(const Node* n) {
  switch (n->kind()) {
    case aten::chunk:
      return script_symbols().chunk_part;
    case aten::split:
      return n->input(1)->type()->kind() == TypeKind::ListType ? script_symbols().sizes_part
                                                               : script_symbols().split_part;
    case aten::split_with_sizes:
      return script_symbols().sizes_part;
    case aten::unbind:
      return aten::select;
    default:
      return std::nullopt;
  }
}

// Returns whether the list is used only to take elements at constant indices. Negative indices
// count only if the op that computes one element supports them.
bool only_parts_are_taken(const Node* n, bool from_the_end) {
  const std::vector<Use>& uses = n->output()->uses();
  return !uses.empty() && std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
    if (use.user->kind() != aten::__getitem__ || use.offset != 0) return false;
    const auto place = toIValue(use.user->input(1));
    return place && place->isInt() && (from_the_end || place->toInt() >= 0);
  });
}

void take_parts(Node* n, Symbol part) {
  Graph& graph = *n->owningGraph();
  const std::vector<Use> uses = n->output()->uses();
  for (const Use& use : uses) {
    Node* const taken = use.user;
    // Insert at the list: its tensor may be modified before an element is taken.
    WithInsertPoint at(n);
    std::vector<Value*> operands = n->inputs().vec();
    Value* const place = graph.insertConstant(*toIValue(taken->input(1)));
    operands.push_back(place);
    Node* const made = graph.insertNode(graph.create(part, operands));
    made->output()->copyMetadata(taken->output());
    taken->output()->replaceAllUsesWith(made->output());
    taken->destroy();
  }
  n->destroy();
}

// Replaces broadcast_tensors([a, b]) by an expand of each tensor to the joint sizes.
void broadcast_each(Node* n) {
  Graph& graph = *n->owningGraph();
  Node* const list = n->input()->node();
  Node* const unpack = n->output()->uses()[0].user;
  WithInsertPoint at(n);
  std::vector<Value*> sizes;
  for (Value* v : list->inputs()) sizes.push_back(graph.insert(aten::size, {v}));
  Value* const joint = graph.insertNode(graph.create(prim::BroadcastSizes, sizes))->output();
  joint->setType(ListType::ofInts());
  for (size_t i = 0; i < unpack->outputs().size(); ++i) {
    Value* const wide = graph.insert(aten::expand, {list->input(i), joint});
    wide->copyMetadata(unpack->output(i));
    unpack->output(i)->replaceAllUsesWith(wide);
  }
  unpack->destroy();
  n->destroy();
}

bool broadcasts_each(const Node* n) {
  if (overload_name(n) != "aten::broadcast_tensors") return false;
  const std::vector<Use>& uses = n->output()->uses();
  const Node* list = n->input()->node();
  return uses.size() == 1 && uses[0].user->kind() == prim::ListUnpack &&
         list->kind() == prim::ListConstruct && n->input()->uses().size() == 1 &&
         list->inputs().size() == uses[0].user->outputs().size();
}

}  // namespace

void take_lists_apart(Block* block) {
  // Users of a list come after it, so a traversal from the end meets no node that was removed.
  for (auto it = block->nodes().rbegin(); it != block->nodes().rend();) {
    Node* const n = *it;
    for (Block* inner : n->blocks()) take_lists_apart(inner);
    ++it;
    if (broadcasts_each(n)) {
      broadcast_each(n);
      continue;
    }
    const auto part = part_of(n);
    if (part && only_parts_are_taken(n, *part == aten::select)) take_parts(n, *part);
  }
}

void copy_shared_lists(Block* block, const ScriptRules& rules) {
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    Node* const n = *it++;
    for (Block* inner : n->blocks()) copy_shared_lists(inner, rules);
    if (n->kind() != prim::ListConstruct || !is_tensor_list(n->output())) continue;
    const std::vector<Use> uses = n->output()->uses();
    const bool only_read = std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
      return find_op(rules, use.user) && use.user->owningBlock() == block;
    });
    if (!only_read) continue;
    for (size_t i = 1; i < uses.size(); ++i) {
      WithInsertPoint at(uses[i].user);
      Graph& graph = *block->owningGraph();
      Node* const copy = graph.insertNode(graph.createClone(n, [](Value* v) { return v; }));
      uses[i].user->replaceInput(uses[i].offset, copy->output());
    }
  }
}

std::vector<std::optional<Operator>> part_operators() {
  const auto at = [](const std::vector<at::Tensor>& parts, int64_t place) {
    if (place >= static_cast<int64_t>(parts.size()))
      throw std::out_of_range("list index out of range");
    return parts[place];
  };
  const auto chunk = [at](Stack& stack) {
    const int64_t place = pop(stack).toInt(), dim = pop(stack).toInt(), count = pop(stack).toInt();
    push(stack, at(at::chunk(pop(stack).toTensor(), count, dim), place));
  };
  const auto split = [at](Stack& stack) {
    const int64_t place = pop(stack).toInt(), dim = pop(stack).toInt(), size = pop(stack).toInt();
    push(stack, at(at::split(pop(stack).toTensor(), size, dim), place));
  };
  const auto by_sizes = [at](Stack& stack) {
    const int64_t place = pop(stack).toInt(), dim = pop(stack).toInt();
    const std::vector<int64_t> sizes = pop(stack).toIntVector();
    push(stack, at(at::split_with_sizes(pop(stack).toTensor(), sizes, dim), place));
  };
  std::vector<std::optional<Operator>> out;
  const auto add = [&](const char* schema, Operation operation) {
    out.emplace_back(Operator(schema, std::move(operation), c10::AliasAnalysisKind::FROM_SCHEMA));
  };
  add("fuser::chunk_part(Tensor(a) self, int chunks, int dim, int place) -> Tensor(a)", chunk);
  add("fuser::split_part(Tensor(a) self, int split_size, int dim, int place) -> Tensor(a)", split);
  add("fuser::sizes_part(Tensor(a) self, int[] split_sizes, int dim, int place) -> Tensor(a)",
      by_sizes);
  return out;
}

}  // namespace fuser::script
