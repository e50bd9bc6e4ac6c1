#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/common_subexpression_elimination.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/remove_mutation.h>
#include <torch/csrc/jit/passes/tensorexpr_fuser.h>
#include <torch/csrc/jit/passes/utils/subgraph_utils.h>

#include <algorithm>
#include <mutex>
#include <unordered_set>

#include "base/error.h"
#include "base/log.h"
#include "torch/torchscript.h"

namespace fuser {
namespace {

using namespace torch::jit;  // NOLINT: half the names of this file are its

struct Published {
  std::mutex mutex;
  ScriptRulesRef rules = std::make_shared<ScriptRules>();
};

// Leaked: scripts may run until the process ends.
Published& published() {
  static auto* const it = new Published;
  return *it;
}

// What an op in place gives is its first operand, and so of its type, which is profiled where only
// that is used behind it. Views in place change the sizes.
void type_results_in_place(Block* block, const ScriptRules& rules) {
  for (Node* n : block->nodes()) {
    for (Block* inner : n->blocks()) type_results_in_place(inner, rules);
    const ScriptOp* op = find_in_place(rules, n);
    if (op && op->computes) n->output()->setType(n->input(0)->type());
  }
}

// In place a result is rounded to the type of its memory, which that of x.op(y) may differ from.
bool keeps_type(const ScriptOp& op, const Node* n) {
  const auto dtype = [](const Value* v) {
    const auto type = v->type()->cast<TensorType>();
    return type ? type->scalarType() : std::nullopt;
  };
  const auto own = dtype(n->input(0));
  return own && (!op.gives_bools || own == at::kBool) &&
         std::all_of(n->inputs().begin(), n->inputs().end(), [&](const Value* v) {
           return !is_tensor(v) || dtype(v) == own || dtype(v) == at::kBool;
         });
}

void find_nodes(Block* block, bool (*wanted)(const Node*), std::vector<Node*>& found) {
  for (Node* n : block->nodes()) {
    if (wanted(n)) found.push_back(n);
    for (Block* inner : n->blocks()) find_nodes(inner, wanted, found);
  }
}

bool is_mutable(const Node* n) {
  return n->maybeSchema() && n->schema().is_mutable() && !n->inputs().empty() &&
         is_tensor(n->input(0));
}

// What is perhaps the same tensor under two names that torch's passes, which go by schemas, take
// for two tensors.
struct Gift {
  Node* by;
  Value *given, *back;
};

// What ops give back, and what a loop that runs no time does.
void find_gifts(Block* block, std::vector<Gift>& found) {
  for (Node* n : block->nodes()) {
    if (n->kind() == prim::Loop) {
      for (size_t i = 0; i < n->outputs().size(); ++i)
        found.push_back({n, n->input(i + 2), n->output(i)});
    } else if (may_give_back(n)) {
      for (Value* v : n->inputs())
        if (is_tensor(v) || is_tensor_list(v)) {
          found.push_back({n, v, n->output(0)});
          break;
        }
    }
    for (Block* inner : n->blocks()) find_gifts(inner, found);
  }
}

bool share_a_loop(const Node* a, const Node* b) {
  for (const Node* n = a; n; n = n->owningBlock()->owningNode())
    if (n->kind() == prim::Loop)
      for (const Node* m = b; m; m = m->owningBlock()->owningNode())
        if (m == n) return true;
  return false;
}

// Is the memory of v, but for the gift, read where a write `after` it would be seen? Of no node:
// anywhere. A caller and outer blocks read what they get.
bool is_read(Value* v, const Gift& gift, const Node* after, AliasDb& aliases) {
  const auto reads = [&](Value* other) {
    if (!aliases.mayContainAlias(other, v)) return false;
    const std::vector<Use>& uses = other->uses();
    return std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
      if (use.user == gift.by) return false;
      return use.user->kind() == prim::Return || !after || after->isBefore(use.user) ||
             (use.user != after && share_a_loop(use.user, after));
    });
  };
  Graph& graph = *v->owningGraph();
  for (Value* input : graph.inputs())
    if (aliases.mayContainAlias(input, v)) return true;
  std::vector<Node*> nodes;
  find_nodes(graph.block(), [](const Node*) { return true; }, nodes);
  return std::any_of(nodes.begin(), nodes.end(), [&](Node* n) {
    const auto outputs = n->outputs();
    return std::any_of(outputs.begin(), outputs.end(), reads);
  });
}

// Ops in place whose writes show under another name: to those that read it behind them, or, where
// nodes may change their order, to all that read it.
std::unordered_set<Node*> writes_to_given_back(const std::shared_ptr<Graph>& graph,
                                               bool in_any_order) {
  std::vector<Gift> gifts;
  std::vector<Node*> writing;
  find_gifts(graph->block(), gifts);
  if (gifts.empty()) return {};
  find_nodes(graph->block(), is_mutable, writing);
  if (writing.empty()) return {};
  AliasDb aliases(graph);
  std::unordered_set<Node*> out;
  for (const Gift& gift : gifts) {
    if (aliases.mayContainAlias(gift.given, gift.back)) continue;  // torch's passes know
    for (Node* n : writing) {
      if (!gift.by->isBefore(n)) continue;
      for (auto [written, other] : {std::pair(gift.back, gift.given), {gift.given, gift.back}})
        if (aliases.mayContainAlias(written, n->input(0)) &&
            is_read(other, gift, in_any_order ? nullptr : n, aliases))
          out.insert(n);
    }
  }
  return out;
}

// x.relu_() can be y = x.relu() where nobody else sees x change; torch's pass finds out.
void remove_mutation(const std::shared_ptr<Graph>& graph, const ScriptRules& rules) {
  type_results_in_place(graph->block(), rules);
  const std::unordered_set<Node*> seen = writes_to_given_back(graph, false);
  RemoveTensorMutation(graph, [&](Node* n) {
    const ScriptOp* op = find_in_place(rules, n);
    return op && keeps_type(*op, n) && !seen.count(n);
  });
}

void fuse_block(Block* block, const ScriptRules& rules, AliasDb& aliases,
                std::vector<Node*>& groups) {
  for (Node* n : block->nodes())
    for (Block* inner : n->blocks()) fuse_block(inner, rules, aliases, groups);
  for (Node* group : partition(block, rules, aliases)) groups.push_back(group);
}

// Torch matches the results of a node that joins a group by their uses, and takes one without uses
// for the ones behind it. So each has one while groups are made.
void use_all_results(Block* block, std::vector<Node*>& uses) {
  std::vector<Value*> unused;
  for (Node* n : block->nodes()) {
    for (Block* inner : n->blocks()) use_all_results(inner, uses);
    if (n->outputs().size() < 2) continue;
    for (Value* v : n->outputs())
      if (is_tensor(v) && !v->hasUses()) unused.push_back(v);
  }
  if (unused.empty()) return;
  Node* const use = block->owningGraph()->createTuple(unused);
  uses.push_back(use->insertBefore(block->return_node()));
}

// Is it a form of the op that a definition has? What is not known yet is taken.
bool takes_arguments(const ScriptOp& op, const Node* node) {
  for (const auto& [name, wanted] : op.only) {
    const Value* v = node->namedInput(name);
    const auto given = toIValue(v);
    if (wanted ? !given || !given->isString() || given->toStringRef() != *wanted : !v->mustBeNone())
      return false;
  }
  return (op.halves && op.complexes) ||
         std::none_of(node->inputs().begin(), node->inputs().end(), [&](const Value* v) {
           const auto type = v->type()->cast<TensorType>();
           if (!type || !type->scalarType()) return false;
           const at::ScalarType dtype = *type->scalarType();
           const bool half = at::isReducedFloatingType(dtype);
           return (!op.halves && half) || (!op.complexes && at::isComplexType(dtype));
         });
}

}  // namespace

const ScriptSymbols& script_symbols() {
  const auto of = [](const char* name) { return Symbol::fromQualString(name); };
  static const ScriptSymbols symbols = {.region = of("fuser::region"),
                                        .sizes = of("fuser::sizes"),
                                        .numbers = of("fuser::numbers"),
                                        .product = of("fuser::product"),
                                        .chunk_part = of("fuser::chunk_part"),
                                        .split_part = of("fuser::split_part"),
                                        .sizes_part = of("fuser::sizes_part"),
                                        .add_bias = of("fuser::add_bias"),
                                        .body = of("attr::body"),
                                        .steps = of("attr::steps"),
                                        .results = of("attr::results")};
  return symbols;
}

ScriptRulesRef script_rules() {
  const std::lock_guard<std::mutex> lock(published().mutex);
  return published().rules;
}

void set_script_rules(ScriptRules rules) {
  auto next = std::make_shared<const ScriptRules>(std::move(rules));
  const std::lock_guard<std::mutex> lock(published().mutex);
  published().rules = std::move(next);
}

std::string overload_name(const Node* node) {
  const auto* schema = node->maybeSchema();
  if (!schema) return node->kind().toQualString();
  return schema->overload_name().empty() ? schema->name()
                                         : schema->name() + "." + schema->overload_name();
}

const ScriptOp* find_op(const ScriptRules& rules, const Node* node) {
  if (node->kind() == prim::Constant || node->kind() == prim::Param) return nullptr;
  const auto found = rules.ops.find(overload_name(node));
  if (found == rules.ops.end() || !takes_arguments(found->second, node)) return nullptr;
  return &found->second;
}

const ScriptOp* find_in_place(const ScriptRules& rules, const Node* node) {
  if (node->inputs().empty() || node->outputs().size() != 1) return nullptr;
  std::string name = overload_name(node);
  const size_t end = std::min(name.find('.'), name.size());
  if (end == 0 || name[end - 1] != '_') return nullptr;
  const auto found = rules.ops.find(name.erase(end - 1, 1));
  return found == rules.ops.end() ? nullptr : &found->second;
}

bool is_group(const Node* n) { return n->kind() == prim::CudaFusionGroup; }
bool is_tensor(const Value* v) { return v->type()->isSubtypeOf(*TensorType::get()); }
bool is_optional_tensor(const Value* v) {
  return v->type()->kind() == TypeKind::OptionalType &&
         v->type()->expectRef<OptionalType>().getElementType()->isSubtypeOf(*TensorType::get());
}
bool is_tensor_list(const Value* v) {
  return v->type()->isSubtypeOf(*ListType::ofTensors()) || is_indices(v);
}
bool is_indices(const Value* v) {
  static const auto* type = new ListTypePtr(ListType::create(OptionalType::ofTensor()));
  return v->type()->isSubtypeOf(**type) && !v->type()->isSubtypeOf(*ListType::ofTensors());
}
bool unwraps(const Node* n) { return n->kind() == prim::unchecked_cast; }

bool may_alias(const Node* n) {
  if (n->kind() == prim::ConstantChunk) return true;
  const auto* schema = n->maybeSchema();
  if (!schema) return false;
  return std::any_of(schema->returns().begin(), schema->returns().end(),
                     [](const c10::Argument& r) { return r.alias_info() != nullptr; });
}

namespace {

// Returns the graph with groups; nullptr where it has none.
std::shared_ptr<Graph> with_groups(Graph& graph, const ScriptRules& rules) {
  std::shared_ptr<Graph> fused = graph.copy();
  RemoveProfileNodesAndSpecializeTypes(fused);
  remove_mutation(fused, rules);
  if (!writes_to_given_back(fused, true).empty()) return nullptr;
  take_lists_apart(fused->block());
  move_sizes_out(fused->block(), rules);
  split_biases(fused->block(), rules);
  EliminateDeadCode(fused);
  EliminateCommonSubexpression(fused);
  copy_shared_lists(fused->block(), rules);
  {
    AliasDb aliases(fused);
    make_regions(fused->block(), rules, aliases);
  }
  std::vector<Node*> groups, uses;
  use_all_results(fused->block(), uses);
  {
    AliasDb aliases(fused);
    fuse_block(fused->block(), rules, aliases, groups);
  }
  if (groups.empty()) return nullptr;
  for (Node* use : uses) use->destroy();
  for (Node* group : groups) {
    trim_group(group);
    const auto results = group->outputs();  // a dtype alone is no definition
    if (std::none_of(results.begin(), results.end(), is_tensor))
      SubgraphUtils::unmergeSubgraph(group);
  }
  EliminateDeadCode(fused);  // groups of views too, which stand behind them now
  groups.clear();
  find_nodes(
      fused->block(), [](const Node* n) { return n->kind() == prim::CudaFusionGroup; }, groups);
  if (groups.empty()) return nullptr;
  {
    AliasDb aliases(fused);
    gather_sizes(fused->block(), aliases);
    gather_numbers(fused->block(), aliases);
  }
  for (Node* group : groups) guard_group(group);
  for (Node* group : groups) name_copies(group);
  inline_regions(fused->block());
  RemoveTensorTypeSpecializations(fused);
  EliminateDeadCode(fused);
  return fused;
}

}  // namespace

void fuse_script(std::shared_ptr<Graph>& graph) {
  const ScriptRulesRef rules = script_rules();
  if (!rules->cuda && !rules->cpu) return;
  // A graph without a group stays as other fusers want to find it, and so does one on whose copy
  // torch's own passes fail.
  try {
    if (auto fused = with_groups(*graph, *rules)) graph = std::move(fused);
  } catch (const std::exception& error) {
    if (options().strict) throw;
    log_line(text("a script stays unfused: ", error.what()));
  }
}

}  // namespace fuser
