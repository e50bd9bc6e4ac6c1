// Sizes that a graph returns, mostly to the graph of its gradients, which sums over broadcast dims.
// Torch computes them in several ops each, with lists on the heap. Here one node computes all
// adjacent sizes.
#include <ATen/ExpandUtils.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "torch/script/torchscript.h"

namespace fuser::script {
namespace {

using namespace torch::jit;  // NOLINT: most names in this file belong to it

// Tensors whose broadcast sizes are a list of sizes.
using Sources = std::vector<Value*>;

void join(Sources& all, const Sources& more) {
  for (Value* v : more)
    if (std::find(all.begin(), all.end(), v) == all.end()) all.push_back(v);
}

// Lists of sizes that depend only on the sizes of tensors, with their sources.
struct Lists {
  std::unordered_map<const Value*, Sources> known;

  const Sources* find(const Value* v) const {
    const auto found = known.find(v);
    return found == known.end() ? nullptr : &found->second;
  }

  // Records the sources of a list of sizes. Returns whether the node returns one.
  bool learn(Node* n) {
    if (n->kind() == aten::size && n->inputs().size() == 1) {
      known[n->output()] = {n->input(0)};
      return true;
    }
    if (n->kind() != prim::BroadcastSizes) return false;
    Sources all;
    for (const Value* v : n->inputs()) {
      const Sources* const of = find(v);
      if (!of) return false;
      join(all, *of);
    }
    known[n->output()] = std::move(all);
    return true;
  }
};

// Joint sizes of tensors, each computed once from the joint sizes of fewer tensors.
struct Program {
  Sources tensors;
  std::vector<Sources> joints;
  // By joint: an earlier joint or -1, and the tensor that it is broadcast with.
  std::vector<int64_t> steps;
  // By result: a joint, and a joint from which it must differ, or -1.
  std::vector<int64_t> results;

  int64_t joint(const Sources& of) {
    const auto holds = [](const Sources& all, Value* v) {
      return std::find(all.begin(), all.end(), v) != all.end();
    };
    int64_t from = -1;
    for (size_t i = 0; i < joints.size(); ++i) {
      const Sources& j = joints[i];
      if (std::all_of(j.begin(), j.end(), [&](Value* v) { return holds(of, v); }) &&
          (from < 0 || j.size() > joints[from].size()))
        from = static_cast<int64_t>(i);
    }
    Sources have = from < 0 ? Sources() : joints[from];
    join(tensors, of);
    for (Value* v : of) {
      if (holds(have, v)) continue;
      have.push_back(v);
      steps.push_back(from);
      steps.push_back(std::find(tensors.begin(), tensors.end(), v) - tensors.begin());
      from = static_cast<int64_t>(joints.size());
      joints.push_back(have);
    }
    return from;
  }
};

// One node for size queries on tensors that are defined before it.
struct Gathered {
  struct Asked {
    Node* node;
    Sources own, other;  // the sizes of `own`, unless they equal the sizes of `other`
  };
  Node* first;  // first of the queries; the node is inserted there
  std::vector<Asked> asked;

  bool can_ask(const Sources& of) const {
    return std::all_of(of.begin(), of.end(), [&](Value* v) {
      return v->node()->kind() == prim::Param || v->node()->owningBlock() != first->owningBlock() ||
             v->node()->isBefore(first);
    });
  }

  bool is_one_list() const { return asked.size() == 1 && asked[0].other.empty(); }

  // Inserts the node. `gone`: all replaced nodes. Lists that only these read are not returned.
  void insert(const std::unordered_set<Node*>& gone) const {
    Program program;
    std::vector<Value*> given;
    for (const Asked& a : asked) {
      const std::vector<Use>& uses = a.node->output()->uses();
      const bool read = std::any_of(uses.begin(), uses.end(),
                                    [&](const Use& use) { return !gone.count(use.user); });
      if (!read) continue;
      const int64_t own = program.joint(a.own);
      program.results.push_back(own);
      program.results.push_back(a.other.empty() ? -1 : program.joint(a.other));
      given.push_back(a.node->output());
    }
    const ScriptSymbols& symbols = script_symbols();
    Node* const made = first->owningGraph()->create(symbols.sizes, program.tensors, given.size());
    made->insertBefore(first);
    made->is_(symbols.steps, program.steps)->is_(symbols.results, program.results);
    for (size_t i = 0; i < given.size(); ++i) {
      made->output(i)->setType(given[i]->type());
      given[i]->replaceAllUsesWith(made->output(i));
    }
  }
};

// Returns the broadcast of `sizes` and `other`. Stores it in `made` if it differs from `sizes`.
at::IntArrayRef broadcast(at::IntArrayRef sizes, at::IntArrayRef other, at::DimVector& made) {
  bool fits = other.size() <= sizes.size();
  for (size_t d = 0; d < other.size() && fits; ++d) {
    const int64_t n = other[other.size() - 1 - d];
    fits = n == 1 || n == sizes[sizes.size() - 1 - d];
  }
  if (fits) return sizes;
  made = at::infer_size_dimvector(sizes, other);
  return made;
}

}  // namespace

void gather_sizes(Block* block, AliasDb& aliases) {
  Lists lists;
  std::vector<Gathered> all;
  bool open = false;
  for (Node* n : block->nodes()) {
    for (Block* inner : n->blocks()) gather_sizes(inner, aliases);
    if (!n->blocks().empty() || n->hasSideEffects()) open = false;
    const bool compares = overload_name(n) == "aten::_size_if_not_equal";
    if (!compares && !lists.learn(n)) continue;
    const Sources* const own = lists.find(compares ? n->input(0) : n->output());
    const Sources* const other = compares ? lists.find(n->input(1)) : nullptr;
    if (!own || (compares && !other)) continue;
    Sources of = *own;
    if (other) join(of, *other);
    if (std::any_of(of.begin(), of.end(), [&](Value* v) { return aliases.hasWriters(v); }))
      continue;
    if (!open || !all.back().can_ask(of)) all.push_back({.first = n, .asked = {}});
    open = true;
    all.back().asked.push_back({n, *own, other ? *other : Sources()});
  }
  std::erase_if(all, [](const Gathered& here) { return here.is_one_list(); });
  std::unordered_set<Node*> gone;
  for (const Gathered& here : all)
    for (const Gathered::Asked& a : here.asked) gone.insert(a.node);
  for (const Gathered& here : all) here.insert(gone);
  for (auto here = all.rbegin(); here != all.rend(); ++here)
    for (auto a = here->asked.rbegin(); a != here->asked.rend(); ++a) a->node->destroy();
}

std::optional<Operator> sizes_operator() {
  const auto operation = [](const Node* node) -> Operation {
    const ScriptSymbols& symbols = script_symbols();
    return [steps = node->is(symbols.steps), results = node->is(symbols.results),
            count = node->inputs().size()](Stack& stack) {
      const auto tensors = last(stack, count);
      const size_t joints = steps.size() / 2;
      std::vector<at::IntArrayRef> sizes(joints);
      c10::SmallVector<at::DimVector, 4> made(joints);
      for (size_t i = 0; i < joints; ++i) {
        const at::IntArrayRef own = tensors[steps[2 * i + 1]].toTensor().sizes();
        const int64_t from = steps[2 * i];
        sizes[i] = from < 0 ? own : broadcast(sizes[from], own, made[i]);
      }
      c10::SmallVector<c10::IValue, 16> given;
      for (size_t i = 0; i < results.size(); i += 2) {
        const at::IntArrayRef own = sizes[results[i]];
        const int64_t other = results[i + 1];
        given.push_back(other >= 0 && own == sizes[other] ? c10::IValue() : c10::IValue(own));
      }
      drop(stack, count);
      for (c10::IValue& v : given) stack.push_back(std::move(v));
    };
  };
  return Operator(script_symbols().sizes, operation, c10::AliasAnalysisKind::PURE_FUNCTION);
}

}  // namespace fuser::script
