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
#include "torch/script/torchscript.h"

namespace fuser::script {
namespace {

using namespace torch::jit;  // NOLINT: most names in this file belong to it

struct Published {
  std::mutex mutex;
  ScriptRulesRef rules = std::make_shared<ScriptRules>();
};

// Returns the current rules. Leaked: scripts may run until the process ends.
Published& published() {
  static auto* const it = new Published;
  return *it;
}

// Copies the type of the first operand to the result of an in-place op: they are the same tensor,
// but only one of them may be profiled. In-place views change sizes and are excluded.
void type_results_in_place(Block* block, const ScriptRules& rules) {
  for (Node* n : block->nodes()) {
    for (Block* inner : n->blocks()) type_results_in_place(inner, rules);
    const ScriptOp* op = find_in_place(rules, n);
    if (op && op->computes) n->output()->setType(n->input(0)->type());
  }
}

// Returns whether the out-of-place op has the operand's type. An in-place result is rounded to the
// type of its memory.
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

// Two values that may be the same tensor. Torch's passes rely on schemas and assume two distinct
// tensors.
struct Gift {
  Node* by;
  Value *given, *back;
};

// Finds values that may be returned operands, that pass through a loop without iterations, or that
// one iteration of a loop passes to the next.
void find_gifts(Block* block, std::vector<Gift>& found) {
  for (Node* n : block->nodes()) {
    if (n->kind() == prim::Loop) {
      Block* const body = n->blocks()[0];
      for (size_t i = 0; i < n->outputs().size(); ++i) {
        found.push_back({n, n->input(i + 2), n->output(i)});
        found.push_back({n, body->outputs()[i + 1], body->inputs()[i + 1]});
      }
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

bool may_come_before(const Node* a, const Node* b) { return a->isBefore(b) || share_a_loop(a, b); }

// Returns the values that may have the memory of v before `n`, or in another iteration of its
// loops.
std::vector<Value*> names_of(Value* v, const Node* n, const std::vector<Gift>& gifts,
                             AliasDb& aliases) {
  std::vector<Value*> names{v};
  std::vector<bool> taken(gifts.size(), false);
  for (size_t done = 0; done < names.size(); ++done)
    for (size_t i = 0; i < gifts.size(); ++i) {
      if (taken[i] || !may_come_before(gifts[i].by, n)) continue;
      if (!aliases.mayContainAlias(gifts[i].given, names[done]) &&
          !aliases.mayContainAlias(gifts[i].back, names[done]))
        continue;
      taken[i] = true;
      names.push_back(gifts[i].given);
      names.push_back(gifts[i].back);
    }
  return names;
}

void find_values(Block* block, std::vector<Value*>& found) {
  found.insert(found.end(), block->inputs().begin(), block->inputs().end());
  for (Node* n : block->nodes()) {
    found.insert(found.end(), n->outputs().begin(), n->outputs().end());
    for (Block* inner : n->blocks()) find_values(inner, found);
  }
}

// Returns whether the memory that `write` changes is read through a value that torch's passes
// consider distinct. Considers reads after the write, or all reads if nodes may be reordered.
// Callers and outer blocks count as readers of results.
bool is_seen_elsewhere(Node* write, const std::vector<Value*>& values,
                       const std::vector<Gift>& gifts, bool in_any_order, AliasDb& aliases) {
  Value* const written = write->input(0);
  // For an element of a list it is only known that it may be either tensor. A group would return
  // copies.
  const bool vague = std::any_of(gifts.begin(), gifts.end(), [&](const Gift& gift) {
    return gift.by->kind() != prim::Loop && may_come_before(gift.by, write) &&
           aliases.mayContainAlias(gift.given, written) &&
           aliases.mayContainAlias(gift.back, written);
  });
  if (vague) return true;
  std::vector<Value*> names = names_of(written, write, gifts, aliases);
  names.erase(std::remove_if(names.begin(), names.end(),
                             [&](Value* v) { return aliases.mayContainAlias(v, written); }),
              names.end());
  if (names.empty()) return false;
  const auto reads = [&](const Use& use) {
    const Node* const user = use.user;
    if (user->kind() == prim::Return) return true;
    // Its result is among the names, unless it comes later.
    const bool gives = user->kind() == prim::Loop || may_give_back(user);
    if (gives && may_come_before(user, write)) return false;
    return in_any_order || (user != write && may_come_before(write, user));
  };
  return std::any_of(values.begin(), values.end(), [&](Value* v) {
    if (aliases.mayContainAlias(v, written)) return false;
    if (std::none_of(names.begin(), names.end(),
                     [&](Value* name) { return aliases.mayContainAlias(name, v); }))
      return false;
    const bool of_caller =
        v->node()->kind() == prim::Param && !v->node()->owningBlock()->owningNode();
    return of_caller || std::any_of(v->uses().begin(), v->uses().end(), reads);
  });
}

// Returns in-place ops whose writes are visible through a value that torch's passes consider
// distinct.
std::unordered_set<Node*> hidden_writes(const std::shared_ptr<Graph>& graph, bool in_any_order) {
  std::vector<Gift> gifts;
  std::vector<Node*> writing;
  std::vector<Value*> values;
  find_gifts(graph->block(), gifts);
  if (gifts.empty()) return {};
  find_nodes(graph->block(), is_mutable, writing);
  if (writing.empty()) return {};
  AliasDb aliases(graph);
  find_values(graph->block(), values);
  std::unordered_set<Node*> out;
  for (Node* n : writing)
    if (is_seen_elsewhere(n, values, gifts, in_any_order, aliases)) out.insert(n);
  return out;
}

// Replaces x.relu_() by y = x.relu() if no other value sees x change, as torch's pass determines.
void remove_mutation(const std::shared_ptr<Graph>& graph, const ScriptRules& rules) {
  type_results_in_place(graph->block(), rules);
  const std::unordered_set<Node*> seen = hidden_writes(graph, false);
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

// Gives every result a use while groups are made. Torch matches the results of a node that joins a
// group by their uses, and would confuse a result without uses with the next one.
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

// Returns whether the definition supports these arguments of the op. Unknown values are accepted.
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
bool asks_for_strict_fusion(const Node* n) {
  const auto is_strict = [](const Node* enter) {
    const auto type = enter->input(0)->type()->cast<ClassType>();
    return type && type->name() && type->name()->name() == "strict_fusion";
  };
  for (; n; n = n->owningBlock()->owningNode()) {
    size_t left = 0;  // blocks of `with` that end before n
    const Node* const first = n->owningBlock()->param_node();
    for (const Node* before = n->prev(); before != first; before = before->prev()) {
      if (before->kind() == prim::Exit) ++left;
      if (before->kind() != prim::Enter) continue;
      if (left > 0) {
        --left;
      } else if (is_strict(before)) {
        return true;
      }
    }
  }
  return false;
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

// Returns the graph with groups; nullptr if it has no group.
std::shared_ptr<Graph> with_groups(Graph& graph, const ScriptRules& rules) {
  std::shared_ptr<Graph> fused = graph.copy();
  RemoveProfileNodesAndSpecializeTypes(fused);
  remove_mutation(fused, rules);
  take_lists_apart(fused->block());
  if (!hidden_writes(fused, true).empty()) return nullptr;
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
    const auto results = group->outputs();  // a group that returns only a dtype is not worthwhile
    if (std::none_of(results.begin(), results.end(), is_tensor))
      SubgraphUtils::unmergeSubgraph(group);
  }
  EliminateDeadCode(fused);  // also drops groups of views, which are behind them now
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
  // Keep the original graph for other fusers if there is no group, or if torch's own passes fail on
  // the copy.
  try {
    if (auto fused = with_groups(*graph, *rules)) graph = std::move(fused);
  } catch (const std::exception& error) {
    if (options().strict) throw;
    log_line(text("a script stays unfused: ", error.what()));
  }
}

}  // namespace fuser::script
