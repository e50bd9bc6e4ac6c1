// Nodes in groups that are no torch ops, with their operators for groups that run unfused.
//
// Views inside of groups are copies, because no value outside shares memory with their operands.
// They have the names of copies that tools expect.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <string>
#include <vector>

#include "torch/script/torchscript.h"

namespace fuser::script {
namespace {

using namespace torch::jit;  // NOLINT: most names in this file belong to it

struct Copy {
  const char* view;    // name in aten
  const char* schema;  // schema in prim::
};

constexpr Copy copies[] = {
    {"aten::view", "view_copy(Tensor self, int[] size) -> Tensor"},
    {"aten::reshape", "reshape_copy(Tensor self, int[] shape) -> Tensor"},
    {"aten::flatten.using_ints",
     "flatten_copy.using_ints(Tensor self, int start_dim, int end_dim) -> Tensor"},
    {"aten::squeeze", "squeeze_copy(Tensor self) -> Tensor"},
    {"aten::squeeze.dim", "squeeze_copy.dim(Tensor self, int dim) -> Tensor"},
    {"aten::unsqueeze", "unsqueeze_copy(Tensor self, int dim) -> Tensor"},
    {"aten::expand", "expand_copy(Tensor self, int[] size, *, bool implicit=False) -> Tensor"},
    {"aten::expand_as", "expand_as_copy(Tensor self, Tensor other) -> Tensor"},
    {"aten::permute", "permute_copy(Tensor self, int[] dims) -> Tensor"},
    {"aten::transpose.int", "transpose_copy.int(Tensor self, int dim0, int dim1) -> Tensor"},
    {"aten::t", "t_copy(Tensor self) -> Tensor"},
};

Symbol name_of(const Copy& copy) {
  const std::string schema = copy.schema;
  return Symbol::prim(schema.substr(0, schema.find_first_of(".(")));
}

std::string overload_of(const std::string& name) {
  const size_t dot = name.find('.');
  return dot == std::string::npos ? "" : name.substr(dot + 1);
}

void name_copies(Block* block) {
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    Node* const n = *it++;
    if (n->kind() == script_symbols().region) name_copies(n->g(script_symbols().body)->block());
    for (Block* inner : n->blocks()) name_copies(inner);
    const std::string name = overload_name(n);
    for (const Copy& copy : copies) {
      if (name != copy.view) continue;
      Node* const renamed = block->owningGraph()->create(name_of(copy), n->inputs());
      renamed->insertBefore(n)->output()->copyMetadata(n->output());
      n->output()->replaceAllUsesWith(renamed->output());
      n->destroy();
      break;
    }
  }
}

}  // namespace

void name_copies(Node* group) { name_copies(group->g(attr::Subgraph)->block()); }

void register_copies() {
  const auto operation = [](const Node* n) -> Operation {
    const auto* copy = std::find_if(std::begin(copies), std::end(copies), [&](const Copy& c) {
      return n->schema().name() == name_of(c).toQualString() &&
             n->schema().overload_name() == overload_of(c.view);
    });
    const std::string view = copy->view;
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(
        view.substr(0, view.find('.')).c_str(), n->schema().overload_name().c_str());
    return [op](Stack& stack) {
      op.callBoxed(&stack);
      stack.back() = stack.back().toTensor().clone();
    };
  };
  std::vector<std::optional<Operator>> operators = part_operators();
  for (const Copy& copy : copies)
    operators.emplace_back(Operator(std::string("prim::") + copy.schema, operation,
                                    c10::AliasAnalysisKind::FROM_SCHEMA));
  const auto add_a_bias = [](Stack& stack) {
    std::vector<int64_t> sizes(pop(stack).toInt() + 1, 1);
    sizes[0] = -1;
    const auto bias = pop(stack).toOptional<at::Tensor>();
    const at::Tensor result = pop(stack).toTensor();
    push(stack, bias ? result.add(bias->to(result.scalar_type()).view(sizes)) : result.clone());
  };
  operators.emplace_back(
      Operator("fuser::add_bias(Tensor result, Tensor? bias, int behind) -> Tensor", add_a_bias,
               c10::AliasAnalysisKind::FROM_SCHEMA));
  const auto product = [](Stack& stack) {
    int64_t all = 1;
    for (int64_t n : pop(stack).toIntVector()) all *= n;
    push(stack, all);
  };
  operators.emplace_back(
      Operator("fuser::product(int[] sizes) -> int", product, c10::AliasAnalysisKind::FROM_SCHEMA));
  const RegisterOperators registered(std::move(operators));
}

}  // namespace fuser::script
