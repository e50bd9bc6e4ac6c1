// Numbers that a graph computes besides its tensors: the element count of a mean, in branches and
// loops over lists of dims; the scale of a dropout. They rarely change between calls. Adjacent
// computations become one node, which computes again only if its inputs changed.
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "torch/script/torchscript.h"

namespace fuser::script {
namespace {

using namespace torch::jit;  // NOLINT: most names in this file belong to it
using torch::jit::Value;

// Nodes that cost about as much as one node with a cache.
constexpr size_t least_nodes = 3;

bool is_number(const Value* v) {
  const TypeKind kind = v->type()->kind();
  return kind == TypeKind::IntType || kind == TypeKind::FloatType || kind == TypeKind::BoolType;
}

// Returns whether values of the type can be compared with earlier ones: numbers, lists of numbers,
// and None.
bool is_comparable(const c10::Type& type) {
  switch (type.kind()) {
    case TypeKind::IntType:
    case TypeKind::FloatType:
    case TypeKind::BoolType:
    case TypeKind::NoneType:
      return true;
    case TypeKind::ListType:
      return is_comparable(*type.expectRef<ListType>().getElementType());
    case TypeKind::OptionalType:
      return is_comparable(*type.expectRef<OptionalType>().getElementType());
    default:
      return false;
  }
}

bool same(const c10::IValue& a, const c10::IValue& b) {
  if (a.isInt()) return b.isInt() && a.toInt() == b.toInt();
  if (a.isBool()) return b.isBool() && a.toBool() == b.toBool();
  if (a.isDouble()) {  // by bits: 0.0 differs from -0.0, and a NaN equals itself
    const double x = a.toDouble(), y = b.isDouble() ? b.toDouble() : 0;
    return b.isDouble() && std::memcmp(&x, &y, sizeof x) == 0;
  }
  if (a.isNone()) return b.isNone();
  if (!a.isList() || !b.isList()) return false;
  const auto x = a.toListRef(), y = b.toListRef();
  return std::equal(x.begin(), x.end(), y.begin(), y.end(), same);
}

// Returns whether the result depends only on operands. Torch's ops do, except ops without operands
// that read its state, such as is_grad_enabled().
bool follows_its_operands(const Node* n) {
  const bool torchs = n->kind().is_aten() || n->kind().is_prim();
  return torchs && n->maybeSchema() && !n->inputs().empty();
}

// Returns whether the node computes numbers and lists of numbers without side effects.
bool computes_numbers(const Node* n) {
  const auto comparable = [](const Value* v) { return is_comparable(*v->type()); };
  const auto fits = [&](at::ArrayRef<const Value*> values) {
    return std::all_of(values.begin(), values.end(), comparable);
  };
  if (n->kind() == prim::Constant) return fits(n->outputs());
  const bool holds_blocks = n->kind() == prim::If || n->kind() == prim::Loop;
  if (!holds_blocks && !n->blocks().empty()) return false;
  if (n->hasSideEffects() || n->isNondeterministic() || n->outputs().empty()) return false;
  if (!holds_blocks && n->kind() != prim::ListConstruct && !follows_its_operands(n)) return false;
  if (n->maybeSchema() && n->schema().is_mutable()) return false;
  if (!fits(n->inputs()) || !fits(n->outputs())) return false;
  for (const Block* b : n->blocks()) {
    if (!fits(b->inputs()) || !fits(b->outputs())) return false;
    for (const Node* each : b->nodes())
      if (!computes_numbers(each)) return false;
  }
  return true;
}

size_t count(const Node* n) {
  size_t all = n->kind() != prim::Constant;
  for (const Block* b : n->blocks())
    for (const Node* each : b->nodes()) all += count(each);
  return all;
}

// Appends the values from outside of `outer` that n and nodes inside of it read, in order.
void read_from_outside(Node* n, const Node* outer, std::vector<Value*>& out) {
  const auto read = [&](Value* v) {
    const Node* made = v->node();
    if (made->kind() == prim::Param) made = made->owningBlock()->owningNode();
    while (made && made != outer) made = made->owningBlock()->owningNode();
    if (!made && std::find(out.begin(), out.end(), v) == out.end()) out.push_back(v);
  };
  for (Value* v : n->inputs()) read(v);
  for (Block* b : n->blocks()) {
    for (Node* each : b->nodes()) read_from_outside(each, outer, out);
    for (Value* v : b->outputs()) read(v);
  }
}

std::vector<Value*> read_by(Node* n) {
  std::vector<Value*> out;
  read_from_outside(n, n, out);
  return out;
}

// Nodes of one block to be merged into one node at the position of the first.
struct Together {
  std::vector<Node*> nodes;
  std::unordered_set<const Node*> inside;  // set of `nodes`

  void add(Node* n) {
    nodes.push_back(n);
    inside.insert(n);
  }

  bool holds(const Node* n) const {
    while (n && !inside.count(n)) n = n->owningBlock()->owningNode();
    return n;
  }

  bool is_read_outside(const Value* v) const {
    return std::any_of(v->uses().begin(), v->uses().end(),
                       [&](const Use& use) { return !holds(use.user); });
  }

  // Returns whether all operands of n are defined before the first node, and no list leaves. A
  // returned list would be one object in all calls.
  bool fits(Node* n) const {
    const Node* const first = nodes.front();
    for (Value* v : read_by(n)) {
      Node* const made = v->node();
      if (made->kind() == prim::Constant || made->kind() == prim::Param || holds(made)) continue;
      if (made->owningBlock() == first->owningBlock() && !made->isBefore(first)) return false;
    }
    return std::all_of(n->outputs().begin(), n->outputs().end(),
                       [&](const Value* v) { return is_number(v) || !is_read_outside(v); });
  }

  void drop_what_does_not_fit() {
    for (size_t before = 0; before != nodes.size() && !nodes.empty();) {
      before = nodes.size();
      std::vector<Node*> kept;
      for (Node* n : nodes)
        if (fits(n)) kept.push_back(n);
      nodes = std::move(kept);
      inside = {nodes.begin(), nodes.end()};
    }
  }

  size_t size() const {
    size_t all = 0;
    for (const Node* n : nodes) all += count(n);
    return all;
  }

  void become_one() const {
    Graph& graph = *nodes.front()->owningGraph();
    auto body = std::make_shared<Graph>();
    std::vector<Value*> given, results;
    std::unordered_map<Value*, Value*> copies;
    for (Node* n : nodes) {
      for (Value* v : read_by(n)) {
        if (copies.count(v)) continue;
        if (v->node()->kind() == prim::Constant) {
          copies[v] = body->insertConstant(*toIValue(v));
          continue;
        }
        given.push_back(v);
        copies[v] = body->addInput()->copyMetadata(v);
      }
      Node* const copy =
          body->insertNode(body->createClone(n, [&](Value* v) { return copies.at(v); }));
      for (size_t i = 0; i < n->outputs().size(); ++i) {
        copies[n->output(i)] = copy->output(i);
        if (!is_read_outside(n->output(i))) continue;
        results.push_back(n->output(i));
        body->registerOutput(copy->output(i));
      }
    }
    Node* const made = graph.create(script_symbols().numbers, given, results.size());
    made->insertBefore(nodes.front())->g_(script_symbols().body, body);
    for (size_t i = 0; i < results.size(); ++i) {
      made->output(i)->copyMetadata(results[i]);
      results[i]->replaceAllUsesWith(made->output(i));
    }
    for (auto n = nodes.rbegin(); n != nodes.rend(); ++n) (*n)->destroy();
  }
};

// Operator of a numbers node: computes, or returns the results of the previous call.
class Remembered {
 public:
  explicit Remembered(const Node* node)
      : code_(node->g(script_symbols().body)->copy(), "numbers"), count_(node->inputs().size()) {}

  void run(Stack& stack) {
    {
      const auto given = last(stack, count_);
      const std::lock_guard<std::mutex> lock(mutex_);
      if (known_ && std::equal(given.begin(), given.end(), given_.begin(), given_.end(), same)) {
        drop(stack, count_);
        stack.insert(stack.end(), results_.begin(), results_.end());
        return;
      }
    }
    std::vector<c10::IValue> given;
    for (const c10::IValue& v : last(stack, count_)) given.push_back(v.deepcopy());
    InterpreterState(code_).run(stack);
    const auto results = last(stack, code_.num_outputs());
    const std::lock_guard<std::mutex> lock(mutex_);
    given_ = std::move(given);
    results_ = results.vec();
    known_ = true;
  }

 private:
  const Code code_;
  const size_t count_;
  std::mutex mutex_;
  bool known_ = false;
  std::vector<c10::IValue> given_, results_;
};

}  // namespace

void gather_numbers(Block* block, AliasDb& aliases) {
  std::vector<Together> all(1);
  for (Node* n : block->nodes()) {
    const bool computes = computes_numbers(n);
    if (!computes)
      for (Block* inner : n->blocks()) gather_numbers(inner, aliases);
    if (n->kind() == prim::Constant) continue;
    if (!computes && (!n->blocks().empty() || n->hasSideEffects())) all.emplace_back();
    if (!computes) continue;
    const std::vector<Value*> read = read_by(n);
    const bool changes =
        std::any_of(read.begin(), read.end(), [&](Value* v) { return aliases.hasWriters(v); });
    if (!changes) all.back().add(n);
  }
  for (Together& here : all) {
    here.drop_what_does_not_fit();
    if (!here.nodes.empty() && here.size() >= least_nodes) here.become_one();
  }
}

std::optional<Operator> numbers_operator() {
  const auto operation = [](const Node* node) -> Operation {
    const auto it = std::make_shared<Remembered>(node);
    return [it](Stack& stack) { it->run(stack); };
  };
  return Operator(script_symbols().numbers, operation, c10::AliasAnalysisKind::PURE_FUNCTION);
}

}  // namespace fuser::script
