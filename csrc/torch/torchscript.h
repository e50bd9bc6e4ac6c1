// The TorchScript fuser: a pass of torch's profiling executor, and the operators that it leaves in
// a graph.
//
// The pass (torchscript_pass.cpp) collects nodes into prim::CudaFusionGroup and puts each group
// behind a prim::CudaFusionGuard. A group's operator (torchscript_group.cpp) has Python write its
// subgraph as a definition, once for each kind of arguments, and from then on runs it without
// Python.
#pragma once

#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace fuser {

// Kinds of nodes that the fuser's passes make, and their attributes.
struct ScriptSymbols {
  c10::Symbol region, sizes, numbers, product, chunk_part, split_part, sizes_part;
  // Of a result, its bias or None, and the number of dims behind its channels.
  c10::Symbol add_bias;
  c10::Symbol body;            // of a region or numbers: the graph
  c10::Symbol steps, results;  // of sizes
};
const ScriptSymbols& script_symbols();

// What the sizes of an op's first result are.
enum class SizesOf {
  Unknown,
  First,      // those of its first tensor
  Broadcast,  // of all its tensors, broadcast
};

// An op that a group may hold.
struct ScriptOp {
  bool computes = true;  // false: only moves or renames elements; a group of such ops is of no use
  SizesOf sizes = SizesOf::Unknown;
  bool gives_bools = false;  // of operands of any type
  // Arguments that must be these constants, text or None.
  std::unordered_map<std::string, std::optional<std::string>> only;
  bool halves = true, complexes = true;  // does it take tensors of such types?
};

// What the pass goes by. Immutable: switching the fuser on or off publishes another.
struct ScriptRules {
  bool cuda = false, cpu = false;                 // the devices whose tensors are taken
  bool single_nodes = false;                      // a node that computes is a group by itself
  bool siblings = true;                           // groups that read the same tensor are joined
  std::unordered_map<std::string, ScriptOp> ops;  // by overload: "aten::add.Tensor"
};
using ScriptRulesRef = std::shared_ptr<const ScriptRules>;

ScriptRulesRef script_rules();
void set_script_rules(ScriptRules rules);

// "aten::add.Tensor", "aten::relu"; "" for a node without a schema.
std::string overload_name(const torch::jit::Node* node);
// nullptr: no group may hold it.
const ScriptOp* find_op(const ScriptRules& rules, const torch::jit::Node* node);
// Of x.relu_() the op x.relu(), where a group may hold it.
const ScriptOp* find_in_place(const ScriptRules& rules, const torch::jit::Node* node);

bool is_group(const torch::jit::Node* node);
bool is_tensor(const torch::jit::Value* value);
bool is_optional_tensor(const torch::jit::Value* value);
bool is_tensor_list(const torch::jit::Value* value);  // also of optional ones
// Is it a list of optional tensors? In torch those are what x[:, i] is indexed with.
bool is_indices(const torch::jit::Value* value);
// Does it give its operand, an optional that is something, as what it is?
bool unwraps(const torch::jit::Node* node);
// May a result be a view of the node's first operand? By the schema.
bool may_alias(const torch::jit::Node* node);
// Eager gives back what some ops were given where they have nothing to do: a dropout that drops
// nothing, a cast to the type that it is of, a sum to the size that it has. Their schemas do not
// say so. True where that is not known yet.
bool may_give_back(const torch::jit::Node* node);
// The values to whose memory that of v may belong, v itself where it is new; not those inside of
// regions.
std::vector<const torch::jit::Value*> roots_of(const torch::jit::Value* v);

// Products that add a bias to each channel. In a result the channels stand in front of as many dims
// as the weight has behind its first two.
bool adds_a_bias(const torch::jit::Node* node);

// Is a node in a block of torch.jit.strict_fusion(), which raises where anything is left unfused?
bool asks_for_strict_fusion(const torch::jit::Node* node);

// The pass. Before: after differentiation, with profile nodes. After: groups behind guards.
void fuse_script(std::shared_ptr<torch::jit::Graph>& graph);

// Its steps (torchscript_lists.cpp, torchscript_rewrite.cpp, torchscript_partition.cpp), on a block
// with profiled types:
// of a list of which parts are taken by their place each part is a node;
void take_lists_apart(torch::jit::Block* block);
// a list of tensors that several ops read is made for each of them, as it goes into their groups;
void copy_shared_lists(torch::jit::Block* block, const ScriptRules& rules);
// sizes of what a group may compute are computed from the sizes of its operands, and its device is
// that of an operand;
void move_sizes_out(torch::jit::Block* block, const ScriptRules& rules);
// the bias of a linear or a convolution is added by a node of its own where what follows can be
// fused with it;
void split_biases(torch::jit::Block* block, const ScriptRules& rules);
// an If whose branches follow numbers and hold what a definition can express becomes one node,
// fuser::region, with its graph as an attribute;
void make_regions(torch::jit::Block* block, const ScriptRules& rules, torch::jit::AliasDb& aliases);
// nodes become groups;
std::vector<torch::jit::Node*> partition(torch::jit::Block* block, const ScriptRules& rules,
                                         torch::jit::AliasDb& aliases);
// what eager would return as a view of another tensor stands behind the group, and what nobody uses
// goes;
void trim_group(torch::jit::Node* group);
// sizes that are still asked for come from one node where they stand together;
void gather_sizes(torch::jit::Block* block, torch::jit::AliasDb& aliases);
// and so do numbers that are computed from numbers, which it remembers;
void gather_numbers(torch::jit::Block* block, torch::jit::AliasDb& aliases);
// the group stands behind a guard, with the unfused graph on the other side;
void guard_group(torch::jit::Node* group);
// views inside of the group bear the names of copies, prim::view_copy for aten::view, as nobody
// sees the memory of their operands through them;
void name_copies(torch::jit::Node* group);
// regions outside of groups are what they were.
void inline_regions(torch::jit::Block* block);

// The operators of groups and guards, of the copies (torchscript_copies.cpp), of sizes
// and numbers (torchscript_sizes.cpp, torchscript_numbers.cpp), and of parts of lists
// (torchscript_lists.cpp).
void register_script_operators();
void register_copies();
std::optional<torch::jit::Operator> sizes_operator();
std::optional<torch::jit::Operator> numbers_operator();
std::vector<std::optional<torch::jit::Operator>> part_operators();

}  // namespace fuser
