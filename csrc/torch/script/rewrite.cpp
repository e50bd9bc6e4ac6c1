#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/tensorexpr_fuser.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>
#include <unordered_set>

#include "torch/script/torchscript.h"

namespace fuser::script {
namespace {

using namespace torch::jit;  // NOLINT: most names in this file belong to it

// ---- sizes

// Returns whether the node reads sizes, their number or their product.
bool asks_for_sizes(const Node* n) {
  // not every torch version has a constant for it
  static const Symbol numel = Symbol::aten("numel");
  return n->kind() == aten::size || n->kind() == aten::dim || n->kind() == numel ||
         (n->kind() == aten::len && is_tensor(n->input()));
}

// Computes sizes of values from the sizes of operands, in front of the nodes that read them.
struct Sizes {
  Graph& graph;
  const ScriptRules& rules;

  // Returns the tensors whose sizes determine the sizes of v; {v} if no op defines them.
  std::vector<Value*> sources(Value* v) const {
    const ScriptOp* op = find_op(rules, v->node());
    if (!op || op->sizes == SizesOf::Unknown || v->offset() > 0) return {v};
    std::vector<Value*> out;
    for (Value* operand : v->node()->inputs()) {
      if (!is_tensor(operand)) {
        if (operand->type()->kind() == TypeKind::OptionalType && !toIValue(operand)) return {v};
        continue;
      }
      for (Value* s : sources(operand))
        if (std::find(out.begin(), out.end(), s) == out.end()) out.push_back(s);
      if (op->sizes == SizesOf::First) break;
    }
    return out.empty() ? std::vector<Value*>{v} : out;
  }

  void rewrite(Node* size) const {
    Value* const v = size->input(0);
    const std::vector<Value*> from = sources(v);
    if (from.size() == 1) {
      size->replaceInput(0, from[0]);
      return;
    }
    // Inside a branch, a region can read a size, but not compute broadcast sizes.
    if (size->kind() != aten::size && size->owningBlock()->owningNode()) return;
    WithInsertPoint at(size);
    std::vector<Value*> all;
    for (Value* s : from) all.push_back(graph.insert(aten::size, {s}));
    Value* joint = graph.insertNode(graph.create(prim::BroadcastSizes, all))->output();
    joint->setType(ListType::ofInts());
    size->output()->replaceAllUsesWith(asked(size, joint));
    size->destroy();
  }

 private:
  // Returns the property that the node reads, computed from the sizes.
  Value* asked(const Node* n, Value* sizes) const {
    if (n->kind() == aten::dim) return graph.insert(aten::len, {sizes});
    if (n->kind() == aten::len) return graph.insert(aten::__getitem__, {sizes, 0});
    if (n->kind() == aten::size)
      return n->inputs().size() < 2 ? sizes : graph.insert(aten::__getitem__, {sizes, n->input(1)});
    Node* const product = graph.insertNode(graph.create(script_symbols().product, {sizes}));
    return product->output()->setType(IntType::get());
  }
};

// Reads the device of a group result from an operand with dims instead.
void ask_an_operand(Node* device, const ScriptRules& rules) {
  const auto has_dims = [](const Value* v) {
    const auto type = v->type()->cast<TensorType>();
    return type && type->dim().value_or(0) > 0;
  };
  const auto names_a_device = [](const Value* v) {
    return v->type()->kind() == TypeKind::DeviceObjType;
  };
  Value* of = device->input(0);
  while (find_op(rules, of->node())) {
    const auto inputs = of->node()->inputs();
    const auto next = std::find_if(inputs.begin(), inputs.end(), has_dims);
    if (next == inputs.end() || std::any_of(inputs.begin(), inputs.end(), names_a_device)) break;
    of = *next;
  }
  device->replaceInput(0, of);
}

// ---- views

// Returns whether a dropout returns its operand; nullopt if that depends on numbers of the run.
std::optional<bool> drops_nothing(const Node* n) {
  const auto share = toIValue(n->input(1)), trains = toIValue(n->input(2));
  const bool known = share && share->isDouble();
  if ((trains && !trains->toBool()) || (known && share->toDouble() == 0)) return true;
  return trains && known ? std::optional(false) : std::nullopt;
}

// Returns whether an op that may return its operand does so. A dropout with unknown numbers is
// assumed not to.
bool gives_back(const Node* n) {
  return n->kind() == aten::type_as ||
         (n->kind() == aten::dropout && drops_nothing(n).value_or(false));
}

// Returns whether v is a view of the first operand. A cast creates new memory.
bool is_view(const Value* v) {
  const Node* n = v->node();
  if ((!may_alias(n) && !gives_back(n)) || n->inputs().empty()) return false;
  const auto of = n->input(0)->type()->cast<TensorType>();
  const auto to = v->type()->cast<TensorType>();
  return of && to && of->scalarType() == to->scalarType();
}

// Returns whether v is one of several values, from a branch or a loop.
bool is_chosen(const Value* v) {
  const Symbol kind = v->node()->kind();
  return kind == script_symbols().region || kind == prim::If || kind == prim::Loop;
}

// Computes output i of the group, a view or the result of a branch, behind the group instead.
// Returns false if numbers that it needs are known only inside the group.
bool move_view_behind(Node* group, size_t i) {
  Graph& inner = *group->g(attr::Subgraph);
  Graph& outer = *group->owningGraph();
  Value* const v = inner.outputs()[i];
  Node* const view = v->node();
  const auto outside = [](const Value* a) {
    return is_tensor(a) || a->node()->kind() == prim::Param || a->node()->kind() == prim::Constant;
  };
  const auto arguments = view->inputs();
  if (!std::all_of(arguments.begin(), arguments.end(), outside)) return false;
  WithInsertPoint at(group->next());
  std::unordered_map<Value*, Value*> known;
  for (Value* a : view->inputs()) {
    if (a->node()->kind() == prim::Constant) {
      known[a] = outer.insertConstant(*toIValue(a));
    } else if (a->node()->kind() == prim::Param) {
      known[a] = group->input(a->offset());
    } else {
      const auto outputs = inner.outputs();
      const auto place = std::find(outputs.begin(), outputs.end(), a);
      if (place != outputs.end()) {
        known[a] = group->output(place - outputs.begin());
      } else {
        inner.registerOutput(a);
        known[a] = group->addOutput()->copyMetadata(a);
      }
    }
  }
  Node* copy = outer.insertNode(outer.createClone(view, [&](Value* a) { return known.at(a); }));
  group->output(i)->replaceAllUsesWith(copy->output(v->offset()));
  group->eraseOutput(i);
  inner.eraseOutput(i);
  return true;
}

// Returns whether the elements were contiguous and distinct when profiled. This excludes slices and
// expanded tensors, whose layout a new tensor would not have.
bool lies_dense(const Value* v) {
  const auto type = v->type()->cast<TensorType>();
  const auto sizes = type ? type->sizes().concrete_sizes() : std::nullopt;
  const auto strides = type ? type->strides().concrete_sizes() : std::nullopt;
  if (!sizes || !strides) return true;
  std::vector<std::pair<int64_t, int64_t>> inner_first;
  for (size_t d = 0; d < sizes->size(); ++d)
    if ((*sizes)[d] != 1) inner_first.emplace_back((*strides)[d], (*sizes)[d]);
  std::sort(inner_first.begin(), inner_first.end());
  int64_t step = 1;
  for (const auto& [stride, size] : inner_first) {
    if (stride != step) return false;
    step *= size;
  }
  return true;
}

// Moves an output behind the group if eager execution shares its memory with an input or another
// output, or if it is a slice. Under strict_fusion(), views of group results stay in the group,
// each with its own memory.
bool move_a_view_behind(Node* group) {
  const bool all_fused = asks_for_strict_fusion(group);
  const auto outputs = group->g(attr::Subgraph)->outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!is_view(outputs[i]) && !is_chosen(outputs[i])) continue;
    const std::vector<const Value*> roots = roots_of(outputs[i]);
    bool moves = !all_fused && !lies_dense(outputs[i]);
    for (const Value* root : roots) moves |= root->node()->kind() == prim::Param;
    for (size_t j = 0; j < outputs.size() && !moves && !all_fused; ++j) {
      const std::vector<const Value*> others =
          j == i ? std::vector<const Value*>() : roots_of(outputs[j]);
      moves = std::find_first_of(roots.begin(), roots.end(), others.begin(), others.end()) !=
              roots.end();
    }
    if (moves && move_view_behind(group, i)) return true;
  }
  return false;
}

// Turns tensor constants, e.g. weights of a frozen module, into arguments of the group, because a
// definition does not contain their elements. A tensor without dims stays a number, except a bool:
// torch would turn it into a number behind the guard, for which it has no op.
void lift_constants(Node* group) {
  Graph& inner = *group->g(attr::Subgraph);
  Graph& outer = *group->owningGraph();
  for (auto it = inner.nodes().begin(); it != inner.nodes().end();) {
    Node* const n = *it++;
    if (n->kind() != prim::Constant || !is_tensor(n->output())) continue;
    const at::Tensor tensor = toIValue(n->output())->toTensor();
    if (!tensor.defined() || (tensor.dim() == 0 && tensor.scalar_type() != at::kBool)) continue;
    WithInsertPoint at(group);
    Value* const outside = outer.insertConstant(tensor);
    group->addInput(outside);
    n->output()->replaceAllUsesWith(inner.addInput()->setType(outside->type()));
    n->destroy();
  }
}

// Computes dtypes of results inside the group, where the definition knows them, so that the tensors
// need not be returned for that.
void take_dtypes_in(Node* group) {
  Graph& inner = *group->g(attr::Subgraph);
  for (size_t i = 0; i < group->outputs().size(); ++i) {
    const std::vector<Use> uses = group->output(i)->uses();
    Value* inside = nullptr;
    Value* outside = nullptr;
    for (const Use& use : uses) {
      if (use.user->kind() != prim::dtype) continue;
      if (!outside) {
        WithInsertPoint at(inner.return_node());
        inside = inner.insertNode(inner.create(prim::dtype, {inner.outputs()[i]}))->output();
        inside->setType(IntType::get());
        inner.registerOutput(inside);
        outside = group->addOutput()->setType(IntType::get());
      }
      use.user->output()->replaceAllUsesWith(outside);
      use.user->destroy();
    }
  }
}

}  // namespace

bool may_give_back(const Node* n) {
  switch (n->kind()) {
    case aten::dropout:
    case aten::feature_dropout:
    case aten::alpha_dropout:
    case aten::feature_alpha_dropout:
      return drops_nothing(n).value_or(true);
    case aten::type_as:
    case aten::to_dense:
    case aten::dequantize:
    case aten::_cast_Byte:
    case aten::_cast_Char:
    case aten::_cast_Double:
    case aten::_cast_Float:
    case aten::_cast_Half:
    case aten::_cast_Int:
    case aten::_cast_Long:
    case aten::_cast_Short:
    case aten::unsafe_chunk:
    case aten::unsafe_split:
    case aten::unsafe_split_with_sizes:
    case aten::sum_to_size:
    case aten::_grad_sum_to_size:
    case aten::atleast_1d:
    case aten::atleast_2d:
    case aten::atleast_3d:
    case aten::broadcast_tensors:
    case aten::meshgrid:
    case aten::conj_physical:
    case aten::einsum:
      return true;
    default:
      return false;
  }
}

void move_sizes_out(Block* block, const ScriptRules& rules) {
  const Sizes sizes{*block->owningGraph(), rules};
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    Node* const n = *it++;
    for (Block* inner : n->blocks()) move_sizes_out(inner, rules);
    if (asks_for_sizes(n)) sizes.rewrite(n);
    if (n->kind() == prim::device) ask_an_operand(n, rules);
  }
}

std::vector<const Value*> roots_of(const Value* v) {
  std::vector<const Value*> out;
  std::unordered_set<const Value*> seen;
  // Pairs of a value and the region whose body contains it.
  std::vector<std::pair<const Value*, const Node*>> left{{v, nullptr}};
  while (!left.empty()) {
    const auto [value, region] = left.back();
    left.pop_back();
    if (!seen.insert(value).second) continue;
    const Node* const n = value->node();
    const Node* const holder = n->owningBlock()->owningNode();
    const size_t place = value->offset();
    if (n->kind() == prim::Param && holder && holder->kind() == prim::Loop) {
      left.emplace_back(holder->input(place + 1), region);
      left.emplace_back(holder->blocks()[0]->outputs()[place], region);
    } else if (n->kind() == prim::Param && region) {
      left.emplace_back(region->input(place), nullptr);
    } else if (n->kind() == script_symbols().region) {
      left.emplace_back(n->g(script_symbols().body)->outputs()[place], n);
    } else if (n->kind() == prim::If) {
      for (const Block* b : n->blocks()) left.emplace_back(b->outputs()[place], region);
    } else if (n->kind() == prim::Loop) {
      left.emplace_back(n->input(place + 2), region);
      left.emplace_back(n->blocks()[0]->outputs()[place + 1], region);
    } else if (is_view(value) || unwraps(n)) {
      left.emplace_back(n->input(0), region);
    } else if (!region) {
      out.push_back(value);
    }
  }
  return out;
}

bool adds_a_bias(const Node* n) {
  switch (n->kind()) {
    case aten::linear:
    case aten::conv1d:
    case aten::conv2d:
    case aten::conv3d:
    case aten::_convolution:
      return is_tensor(n->input(2)) || is_optional_tensor(n->input(2));
    default:
      return false;
  }
}

void split_biases(Block* block, const ScriptRules& rules) {
  const auto tensor = [](const Value* v) { return v->type()->cast<TensorType>(); };
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    Node* const n = *it++;
    for (Block* inner : n->blocks()) split_biases(inner, rules);
    if (!adds_a_bias(n)) continue;
    Value* const result = n->output();
    const auto made = tensor(result), weight = tensor(n->input(1));
    const std::vector<Use>& uses = result->uses();
    const bool fused = std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
      const ScriptOp* op = find_op(rules, use.user);
      return op && op->computes && use.user->owningBlock() == block;
    });
    if (!fused || made->requiresGrad().value_or(false)) continue;
    if (!weight || weight->dim().value_or(0) < 2) continue;
    Graph& graph = *block->owningGraph();
    WithInsertPoint at(n->next());
    Value* const behind = graph.insertConstant(static_cast<int64_t>(*weight->dim()) - 2);
    Node* const add =
        graph.insertNode(graph.create(script_symbols().add_bias, {result, n->input(2), behind}));
    result->replaceAllUsesAfterNodeWith(add, add->output()->copyMetadata(result));
    n->replaceInput(2, graph.insertConstant(c10::IValue()));
    n->input(2)->node()->moveBefore(n);
  }
}

void trim_group(Node* group) {
  Graph& inner = *group->g(attr::Subgraph);
  const auto drop_unused = [&] {
    for (size_t i = group->outputs().size(); i-- > 0;) {
      if (group->output(i)->hasUses()) continue;
      group->eraseOutput(i);
      inner.eraseOutput(i);
    }
  };
  lift_constants(group);
  take_dtypes_in(group);
  drop_unused();
  while (move_a_view_behind(group)) drop_unused();
  EliminateDeadCode(inner.block());
  for (size_t i = group->inputs().size(); i-- > 0;) {
    if (inner.inputs()[i]->hasUses()) continue;
    inner.eraseInput(i);
    group->removeInput(i);
  }
}

void guard_group(Node* group) {
  Graph& graph = *group->owningGraph();
  std::vector<Value*> tensors;
  std::vector<TypePtr> types;
  for (Value* v : group->inputs()) {
    if (!is_tensor(v) && !is_optional_tensor(v)) continue;
    tensors.push_back(v);
    types.push_back(v->type());
  }
  Node* const guard = graph.create(prim::CudaFusionGuard, tensors, 1)->insertBefore(group);
  guard->tys_(attr::types, types);
  guard->output()->setType(BoolType::get());
  Node* const branch = graph.create(prim::If, {guard->output()}, group->outputs().size());
  branch->insertBefore(group);
  for (size_t i = 0; i < group->outputs().size(); ++i) {
    branch->output(i)->copyMetadata(group->output(i));
    group->output(i)->replaceAllUsesWith(branch->output(i));
  }
  Block* const fused = branch->addBlock();
  Block* const unfused = branch->addBlock();
  {
    WithInsertPoint at(unfused->return_node());
    for (Value* v : insertGraph(graph, *group->g(attr::Subgraph), group->inputs()))
      unfused->registerOutput(v);
    // The unfused graph is profiled again when it runs, so profiled types of the group must not
    // remain.
    inline_regions(unfused);
    removeTensorTypeSpecializations(unfused);
    replaceBlockWithFallbackGraph(unfused, group->inputs());
  }
  group->moveBefore(fused->return_node());
  for (Value* v : group->outputs()) fused->registerOutput(v);
}

}  // namespace fuser::script
