// The TorchScript fuser: a compiler pass of torch's profiling executor, and the operators that it
// inserts into a graph.
//
// The pass (pass.cpp) collects nodes into prim::CudaFusionGroup, and guards each group
// by a prim::CudaFusionGuard. A group's operator (group.cpp) has Python write its
// subgraph as a definition, once per kind of arguments. Further runs of that kind need no Python.
#pragma once

#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace fuser::script {

// Kinds of nodes that the fuser's passes create, and their attributes.
struct ScriptSymbols {
  c10::Symbol region, sizes, numbers, product, chunk_part, split_part, sizes_part;
  // Operands: a result, its bias or None, and the number of dims after its channels.
  c10::Symbol add_bias;
  c10::Symbol body;            // graph of a region or of numbers
  c10::Symbol steps, results;  // attributes of sizes
};
const ScriptSymbols& script_symbols();

// Sizes of an op's first result.
enum class SizesOf {
  Unknown,
  First,      // sizes of its first tensor
  Broadcast,  // sizes of all its tensors, broadcast
};

// An op that a group may contain.
struct ScriptOp {
  bool computes = true;  // false: only moves or renames elements; a group without an op that
                         // computes is not worthwhile
  SizesOf sizes = SizesOf::Unknown;
  bool gives_bools = false;  // returns bools for operands of any type
  // Arguments that must have these constant values, text or None.
  std::unordered_map<std::string, std::optional<std::string>> only;
  bool halves = true, complexes = true;  // accepts tensors of half types, and of complex types
};

// Functional form of an in-place op.
struct OutOfPlace {
  bool any_type = false;  // result type equals the operand's for all types, not only real floats
  bool kept = false;      // only the in-place form saves its result for its gradient
};

// Rules of the pass, immutable: switching the fuser on or off publishes new rules.
struct ScriptRules {
  bool cuda = false, cpu = false;                 // accept tensors of these devices
  bool single_nodes = false;                      // a single node that computes forms a group
  bool siblings = true;                           // groups that read the same tensor are merged
  std::unordered_map<std::string, ScriptOp> ops;  // by overload: "aten::add.Tensor"
  std::unordered_map<std::string, OutOfPlace> out_of_place;  // by kind: "aten::relu"
  // By kind: ops that make a new tensor and do not save it for their gradient. True if the tensor
  // can only hold real floats.
  std::unordered_map<std::string, bool> makers;
};
using ScriptRulesRef = std::shared_ptr<const ScriptRules>;

ScriptRulesRef script_rules();
void set_script_rules(ScriptRules rules);

// Returns "aten::add.Tensor" or "aten::relu"; "" for a node without a schema.
std::string overload_name(const torch::jit::Node* node);
// Returns the op of a node; nullptr if no group may contain it.
const ScriptOp* find_op(const ScriptRules& rules, const torch::jit::Node* node);
// Returns the op x.relu() for the node x.relu_(), if a group may contain it.
const ScriptOp* find_in_place(const ScriptRules& rules, const torch::jit::Node* node);

bool is_group(const torch::jit::Node* node);
bool is_tensor(const torch::jit::Value* value);
bool is_optional_tensor(const torch::jit::Value* value);
bool is_tensor_list(const torch::jit::Value* value);  // also a list of optional tensors
// Returns whether it is a list of optional tensors, which torch uses for the indices of x[:, i].
bool is_indices(const torch::jit::Value* value);
// Returns whether the node converts an optional operand to its element type.
bool unwraps(const torch::jit::Node* node);
// Returns whether a result may be a view of the node's first operand, by its schema.
bool may_alias(const torch::jit::Node* node);
// Returns whether an op may return its operand itself because there is nothing to do: a dropout
// with probability 0, a cast to the operand's type, a sum to the operand's size. Schemas do not
// state this. Returns true if it is not known yet.
bool may_give_back(const torch::jit::Node* node);
// Returns the values whose memory v may share, or v itself if its memory is new. Omits values
// inside of regions.
std::vector<const torch::jit::Value*> roots_of(const torch::jit::Value* v);

// Returns whether a product adds a bias to each channel. In its result, as many dims follow the
// channels as the weight has after its first two dims.
bool adds_a_bias(const torch::jit::Node* node);

// Returns whether a node is in a block of torch.jit.strict_fusion(), which raises if any op stays
// unfused.
bool asks_for_strict_fusion(const torch::jit::Node* node);

// The pass. Before: after differentiation, with profile nodes. After: groups behind guards.
void fuse_script(std::shared_ptr<torch::jit::Graph>& graph);

// Rewrites a node of a graph that torch is about to profile (in_place.cpp): x.relu_()
// becomes x.relu() if no other op reads x before it. The node itself stays, on another tensor.
void take_out_of_place(torch::jit::Node* node, const ScriptRules& rules);

// Steps of the pass (lists.cpp, rewrite.cpp, partition.cpp), on
// a block with profiled types.
//
// Replaces a list whose elements are taken by constant index by one node per element.
void take_lists_apart(torch::jit::Block* block);
// Gives each op its own copy of a shared tensor list, because the list must be inside the op's
// group.
void copy_shared_lists(torch::jit::Block* block, const ScriptRules& rules);
// Computes sizes of group results from the sizes of operands, and takes their device from an
// operand.
void move_sizes_out(torch::jit::Block* block, const ScriptRules& rules);
// Adds the bias of a linear or a convolution by a node of its own, if following ops can be fused
// with it.
void split_biases(torch::jit::Block* block, const ScriptRules& rules);
// Replaces an If by one node, fuser::region, with its graph as an attribute. Its conditions must
// depend on numbers, and its branches must be expressible in a definition.
void make_regions(torch::jit::Block* block, const ScriptRules& rules, torch::jit::AliasDb& aliases);
// Collects nodes into groups. Returns the groups.
std::vector<torch::jit::Node*> partition(torch::jit::Block* block, const ScriptRules& rules,
                                         torch::jit::AliasDb& aliases);
// Moves views, which eager execution returns as views of another tensor, out of the group, and
// drops unused outputs.
void trim_group(torch::jit::Node* group);
// Computes adjacent size queries by one node.
void gather_sizes(torch::jit::Block* block, torch::jit::AliasDb& aliases);
// Computes adjacent arithmetic on numbers by one node, which caches its results.
void gather_numbers(torch::jit::Block* block, torch::jit::AliasDb& aliases);
// Puts the group behind a guard, with the unfused graph as the alternative.
void guard_group(torch::jit::Node* group);
// Renames views inside of the group to copies, e.g. aten::view to prim::view_copy, because no value
// outside shares memory with their operands.
void name_copies(torch::jit::Node* group);
// Restores the Ifs of regions outside of groups.
void inline_regions(torch::jit::Block* block);

// Register or return the operators of groups and guards, of copies (copies.cpp), of
// sizes and numbers (sizes.cpp, numbers.cpp), and of list elements
// (lists.cpp).
void register_script_operators();
void register_copies();
std::optional<torch::jit::Operator> sizes_operator();
std::optional<torch::jit::Operator> numbers_operator();
std::vector<std::optional<torch::jit::Operator>> part_operators();

}  // namespace fuser::script
