// The arguments of a call as the driver sees them, and the integer keys made of them.
//
// Level 1, the exact key: sizes, strides, alignment, dtypes, devices, scalars that reach a size,
// and which tensors overlap one that is written in place. It leads to a launch record. Level 2, the
// signature: layout classes, which leads to a specialized fusion; the facts and alignments within
// it choose a kernel. Keys are compared in full.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fusion/facts.h"
#include "fusion/rebuild.h"
#include "ir/fusion.h"

namespace fuser {

// Where a tensor lies: a CUDA ordinal, or the CPU.
inline constexpr int cpu_device = -1;

struct TensorView {
  char* data = nullptr;
  const int64_t* sizes = nullptr;
  const int64_t* strides = nullptr;  // in elements
  int rank = 0;
  DType dtype{};
  int device = cpu_device;

  int64_t numel() const;
  // Elements from the first to the last one in memory, 0 for an empty tensor.
  int64_t span() const;
};

// Arguments in the order of the definition's inputs and scalars.
struct Arguments {
  std::span<const TensorView> tensors;
  std::span<const Number> scalars;  // converted to the dtype of their ScalarInput
  int device = cpu_device;          // that the call runs on
  // By scalar: what lies there on the GPU is added to it (Symbol::Drawn only); empty: nowhere.
  std::span<const int64_t* const> added{};
};

using Key = std::vector<uint64_t>;
uint64_t hash_of(const Key& key);

// What of a fusion's arguments counts in the exact key beside sizes and strides.
struct KeyRules {
  std::vector<int> shape_scalars;  // scalar inputs that reach a size or coordinate
  std::vector<bool> written;       // by tensor input: an output is written into it
  bool in_place = false;           // into any of them
};
KeyRules key_rules(const Fusion& fusion);

// Appends the exact key. Cheap: called on every launch.
void exact_key(const Arguments& arguments, const KeyRules& rules, Key& key);

// Tensor `written`, which an output is written into, and `other` share a byte of memory (by their
// extents, holes included).
struct Overlap {
  uint32_t written, other;
  auto operator<=>(const Overlap&) const = default;
};
// All of a call, ascending. By sorting: an optimizer's step has hundreds of tensors.
void find_overlaps(const Arguments& arguments, const KeyRules& rules, std::vector<Overlap>& out);

// Are all elements of the tensor at addresses of their own? False for expanded tensors of more than
// one element.
bool writable(const TensorView& tensor);

std::vector<LayoutClass> layout_classes(const Arguments& arguments);
Key layout_key(const std::vector<LayoutClass>& layouts, const Arguments& arguments);
// Appends the same key without making the classes: for each new shape.
void append_layout_key(const Arguments& arguments, Key& key);

// Raises UserError, ShapeError or DTypeError naming the argument where the call does not fit the
// definition.
void check_arguments(const Fusion& fusion, const Arguments& arguments);
// What the definition requires of sizes, and what they may tell of it, ready to be evaluated.
struct Constraints {
  IntProgram program;
  std::vector<std::pair<int, int>> equal;  // slots of both sides, by Fusion::constraints
  std::vector<int> nonempty;               // by Fusion::nonempty
  struct Size {
    int slot = 0, dim = 0;
    const Tensor* tensor = nullptr;
  };
  std::vector<Size> computed;  // sizes that are neither given nor constant: may be negative
  int64_t constant = 0;        // the largest size that is one
  std::vector<Nesting> nestings;
  std::vector<std::pair<int, int>> nesting_slots;  // of both sides, by nesting
};
Constraints constraints_of(Fusion& fusion);
// Sizes of a call, in the slots of Constraints::program.
using SizeValues = std::vector<int64_t>;

// Raises ShapeError where sizes that must be equal are not, one is 0 that must not be, or negative.
// Adds what the sizes of this call tell to `known` and to the key; false: nothing that was not
// known, so that the fusion is the one for this call. Where a rule would hold if the fusion knew
// that a dim has size 1 and broadcasts, that is that dim (or several of one tensor) alone: what
// depends on it has other sizes then, and is not checked. What has no elements tells nothing.
bool learn_sizes(const Fusion& fusion, const Constraints& constraints, const SizeValues& values,
                 KnownSizes& known, Key& key);

// The largest size of a dim of the definition in this call, of inputs, of what lies between and of
// results: no coordinate comes to more.
int64_t largest_size(const Constraints& constraints, const Arguments& arguments,
                     const SizeValues& values);

// The leaves of an integer program over the sizes of a call (IntProgram::run).
struct SizeLeaf {
  const Arguments& arguments;
  int64_t operator()(Symbol s, int a, int b) const;
};

// "float32[128, 64] strides [64, 1] cuda:0".
std::string describe(const TensorView& tensor);

}  // namespace fuser
