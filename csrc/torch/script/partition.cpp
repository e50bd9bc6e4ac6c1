#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/utils/subgraph_utils.h>

#include <algorithm>
#include <vector>

#include "torch/script/torchscript.h"

namespace fuser::script {
namespace {

using namespace torch::jit;  // NOLINT: most names in this file belong to it

// Limits of a group's arguments and results, and of their dims.
constexpr size_t most_values = 96;
constexpr int64_t most_dims = 8;

// Returns whether a norm may write its running statistics in a group. Schemas do not state these
// writes. A definition writes its inputs, so each statistic must be a group input, and no other
// node may read or write it. The graph may return it to the graph of the gradients, because it is
// the given tensor.
bool may_write_statistics(const ScriptRules& rules, const Node* n) {
  const auto* schema = n->maybeSchema();
  if (!schema || schema->name().find("backward") != std::string::npos) return true;
  if (const auto trains = schema->argumentIndexWithName("training"))
    if (const auto known = toIValue(n->input(*trains)); known && !known->toBool()) return true;
  for (const char* name : {"running_mean", "running_var"}) {
    const auto place = schema->argumentIndexWithName(name);
    if (!place) continue;
    const Value* v = n->input(*place);
    if (v->mustBeNone()) continue;
    const std::vector<Use>& uses = v->uses();
    const bool alone = std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
      return use.user == n || use.user == n->owningGraph()->return_node();
    });
    if (!alone || find_op(rules, v->node()) || is_group(v->node())) return false;
  }
  return true;
}

// Returns whether an op returns only values that a group can return: tensors, and ints that depend
// on its arguments.
bool gives_tensors(const Node* n) {
  const auto outputs = n->outputs();
  return std::any_of(outputs.begin(), outputs.end(), is_tensor) &&
         std::all_of(outputs.begin(), outputs.end(), [](const Value* v) {
           return is_tensor(v) || v->type()->kind() == TypeKind::IntType;
         });
}

// Partitioner of one block.
class Partitioner {
 public:
  Partitioner(Block* block, const ScriptRules& rules, AliasDb& aliases)
      : block_(block), rules_(rules), aliases_(aliases) {}

  // Merges producers into their consumers, from the last node upwards, and then groups that read a
  // common tensor. Returns the groups worth keeping.
  std::vector<Node*> run() {
    while (visit_all()) {
    }
    if (rules_.siblings) join_siblings();
    std::vector<Node*> kept;
    for (Node* n : groups()) {
      const auto inputs = n->inputs();
      const size_t least = rules_.single_nodes || asks_for_strict_fusion(n) ? 1 : 2;
      if (computing_nodes(n->g(attr::Subgraph)->block()) >= least &&
          std::none_of(inputs.begin(), inputs.end(), is_tensor_list)) {
        kept.push_back(n);
      } else {
        SubgraphUtils::unmergeSubgraph(n);
      }
    }
    return kept;
  }

 private:
  // Visits all nodes once. Returns false if every fusable node is in a group. When a producer moves
  // up to its consumers, its other users move behind them, where this traversal already was.
  bool visit_all() {
    bool found = false;
    for (auto it = block_->nodes().rbegin(); it != block_->nodes().rend();) {
      Node* const n = *it;
      const bool fuses = fusable(n);
      found |= fuses && !is_group(n);
      Node* const grown = fuses ? grow(n) : n;
      it = ++grown->reverseIterator();
    }
    return found;
  }

  // Complex numbers of half precision have no dtype of fuser.
  static bool has_counterpart(const Value* v) {
    const auto type = v->type()->cast<TensorType>();
    const auto dtype = type ? type->scalarType() : std::nullopt;
    return !dtype || !at::isComplexType(*dtype) || at::elementSize(*dtype) > 4;
  }

  bool takes(const Value* v) const {
    const auto type = v->type()->cast<TensorType>();
    if (!type || !type->scalarType() || !type->dim() || !type->device()) return false;
    if (!has_counterpart(v)) return false;
    if (type->requiresGrad().value_or(false) || static_cast<int64_t>(*type->dim()) > most_dims)
      return false;
    return type->device()->is_cuda() ? rules_.cuda : type->device()->is_cpu() && takes_cpu(v);
  }

  // If the CPU is switched off, its tensors without dims are still accepted with CUDA tensors.
  bool takes_cpu(const Value* v) const { return rules_.cpu || (rules_.cuda && like_number(v)); }

  // "cuda" is the thread's current device, which is unique only if there is one device.
  static bool names_one_device(c10::Device device) {
    return device.is_cpu() || device.has_index() ||
           (device.is_cuda() && c10::impl::VirtualGuardImpl(device.type()).deviceCount() == 1);
  }

  // Accept integer index tensors. The number of elements that a mask selects is known only at run
  // time.
  bool takes_indices(const Node* list) const {
    const auto indices = list->inputs();
    return std::all_of(indices.begin(), indices.end(), [&](const Value* v) {
      if (v->mustBeNone()) return true;
      if (!is_tensor(v) || !takes(v)) return false;
      const at::ScalarType dtype = *v->type()->expectRef<TensorType>().scalarType();
      return dtype == at::kLong || dtype == at::kInt;
    });
  }

  // With a complex number, half tensors would become complex numbers of half precision.
  static bool takes_halves(const Node* n) {
    return std::any_of(n->inputs().begin(), n->inputs().end(), [](const Value* v) {
      const auto type = v->type()->cast<TensorType>();
      return type && type->scalarType() == at::kHalf;
    });
  }

  bool takes_operand(const Node* user, const Value* v) const {
    if (is_tensor(v)) return takes(v);
    if (is_tensor_list(v)) {
      const Node* list = v->node();
      return list->kind() == prim::ListConstruct && v->uses().size() == 1 &&
             list->owningBlock() == user->owningBlock() &&
             (is_indices(v) ? takes_indices(list)
                            : std::all_of(list->inputs().begin(), list->inputs().end(),
                                          [&](const Value* t) { return takes(t); }));
    }
    const TypeKind kind = v->type()->kind();
    if (kind == TypeKind::ListType) {
      const TypeKind element = v->type()->expectRef<ListType>().getElementType()->kind();
      return element == TypeKind::IntType || element == TypeKind::BoolType ||
             (toIValue(v).has_value() && element != TypeKind::OptionalType);
    }
    if (kind == TypeKind::ComplexType) return !takes_halves(user);
    if (const auto constant = toIValue(v); constant && constant->isDevice())
      return names_one_device(constant->toDevice());
    if (toIValue(v).has_value() || kind == TypeKind::OptionalType) return true;
    return kind == TypeKind::IntType || kind == TypeKind::FloatType || kind == TypeKind::BoolType ||
           kind == TypeKind::NumberType || kind == TypeKind::NoneType ||
           kind == TypeKind::StringType || kind == TypeKind::DeviceObjType;
  }

  bool fusable(const Node* n) const {
    if (is_group(n)) return true;
    // A ListUnpack represents the op that returns the list.
    if (n->kind() == prim::ListUnpack) {
      const Node* made = n->input()->node();
      return n->input()->uses().size() == 1 && made->owningBlock() == block_ &&
             is_tensor_list(n->input()) && fusable_op(made);
    }
    return gives_tensors(n) && fusable_op(n);
  }

  bool fusable_op(const Node* n) const {
    if (n->owningBlock() != block_ || !find_op(rules_, n)) return false;
    if (n->maybeSchema() && n->schema().is_mutable()) return false;
    if (!may_write_statistics(rules_, n)) return false;
    bool reads = false;
    for (const Value* v : n->inputs()) {
      if (!takes_operand(n, v)) return false;
      reads |= is_tensor_list(v) || (is_tensor(v) && (rules_.cpu || !like_number(v)));
    }
    const auto outputs = n->outputs();
    if (!std::all_of(outputs.begin(), outputs.end(), has_counterpart)) return false;
    return reads && same_device(n) && !(may_alias(n) && aliases_.hasWriters(n));
  }

  // Returns whether all operands and results are on one device. CPU tensors without dims count as
  // numbers.
  static bool same_device(const Node* n) {
    const c10::Device device = device_of(n);
    const auto operand = [&](const Value* v) {
      const auto there = device_of(v);
      return !there || like_number(v) || *there == device;
    };
    const auto operands = [&](const Value* v) {
      if (!is_tensor_list(v)) return operand(v);
      const auto listed = v->node()->inputs();
      return std::all_of(listed.begin(), listed.end(), operand);
    };
    const auto inputs = n->inputs(), outputs = n->outputs();
    return std::all_of(inputs.begin(), inputs.end(), operands) &&
           std::all_of(outputs.begin(), outputs.end(), [&](const Value* v) {
             const auto there = device_of(v);
             return !there || *there == device;
           });
  }

  static std::optional<c10::Device> device_of(const Value* v) {
    const auto type = v->type()->cast<TensorType>();
    return type ? type->device() : std::nullopt;
  }

  // Returns whether it is a CPU tensor without dims.
  static bool like_number(const Value* v) {
    const auto device = device_of(v);
    return device && device->is_cpu() && v->type()->expectRef<TensorType>().dim() == 0;
  }

  // Returns the device of the first operand with dims; a list represents its elements.
  static c10::Device device_of(const Node* n) {
    for (const Value* v : n->inputs()) {
      if (is_tensor_list(v)) return device_of(v->node());
      if (const auto device = device_of(v); device && !like_number(v)) return *device;
    }
    return c10::kCPU;
  }

  Node* grow(Node* n) {
    Node* group = is_group(n) ? n
                              : SubgraphUtils::createSingletonSubgraphAndUpdateAliasing(
                                    n, prim::CudaFusionGroup, aliases_);
    for (bool grew = true; grew;) {
      grew = false;
      for (Node* producer : producers(group)) {
        if (!merge(producer, group)) continue;
        grew = true;
        break;
      }
    }
    return group;
  }

  // Returns the nodes that a group reads from, the latest first.
  std::vector<Node*> producers(const Node* group) const {
    std::vector<Node*> out;
    for (const Value* v : group->inputs())
      if (Node* n = const_cast<Value*>(v)->node(); n->owningBlock() == block_) out.push_back(n);
    std::sort(out.begin(), out.end(), [](Node* a, Node* b) { return a->isAfter(b); });
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

  bool merge(Node* producer, Node* group) {
    // Lists never cross the border of a group.
    const bool list = producer->outputs().size() == 1 && is_tensor_list(producer->output());
    if (!(list ? producer->kind() == prim::ListConstruct || fusable_op(producer)
               : fusable(producer)))
      return false;
    if (device_of(group) != device_of(producer)) return false;
    if (group->inputs().size() + group->outputs().size() + producer->inputs().size() +
            producer->outputs().size() >
        most_values)
      return false;
    if (!aliases_.moveBeforeTopologicallyValid(producer, group)) return false;
    SubgraphUtils::mergeNodeIntoSubgraphAndUpdateAliasing(producer, group, aliases_);
    return true;
  }

  std::vector<Node*> groups() const {
    std::vector<Node*> out;
    for (Node* n : block_->nodes())
      if (is_group(n)) out.push_back(n);
    return out;
  }

  void join_siblings() {
    for (bool joined = true; joined;) {
      joined = false;
      const std::vector<Node*> all = groups();
      for (size_t i = 0; i < all.size() && !joined; ++i)
        for (size_t j = i + 1; j < all.size() && !joined; ++j)
          joined = share_a_tensor(all[i], all[j]) && merge(all[i], all[j]);
    }
  }

  static bool share_a_tensor(const Node* a, const Node* b) {
    return std::any_of(a->inputs().begin(), a->inputs().end(), [&](const Value* v) {
      const auto others = b->inputs();
      return is_tensor(v) && std::find(others.begin(), others.end(), v) != others.end();
    });
  }

  // Returns the number of computing nodes; of branches, the branch with the most counts.
  size_t computing_nodes(const Block* block) const {
    size_t count = 0;
    for (const Node* n : block->nodes()) {
      const ScriptOp* op = find_op(rules_, n);
      count += op && op->computes;
      if (n->kind() == script_symbols().region)
        count += computing_nodes(n->g(script_symbols().body)->block());
      size_t most = 0;
      for (const Block* inner : n->blocks()) most = std::max(most, computing_nodes(inner));
      count += most;
    }
    return count;
  }

  Block* block_;
  const ScriptRules& rules_;
  AliasDb& aliases_;
};

}  // namespace

std::vector<Node*> partition(Block* block, const ScriptRules& rules, AliasDb& aliases) {
  return Partitioner(block, rules, aliases).run();
}

}  // namespace fuser::script
