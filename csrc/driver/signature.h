// Arguments of a call as the driver sees them, and the integer keys made of them.
//
// The level-1 key is the exact key: sizes, strides, alignment, dtypes, devices, scalars that reach
// a size, and overlaps with tensors that are written in place. It selects a launch record. The
// level-2 key, the signature, consists of layout classes and selects a specialized fusion. Guards
// and alignments within it select a kernel. Keys are compared in full.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fusion/build/rebuild.h"
#include "fusion/kernel/problem.h"
#include "host/pool.h"
#include "ir/fusion.h"

namespace fuser::driver {

// Device of a tensor: a CUDA ordinal, or the CPU.
inline constexpr int cpu_device = -1;

struct TensorView {
  char* data = nullptr;
  const int64_t* sizes = nullptr;
  const int64_t* strides = nullptr;  // in elements
  int rank = 0;
  ir::DType dtype{};
  int device = cpu_device;

  int64_t numel() const;
  // Returns the number of elements from the first to the last one in memory, 0 for an empty tensor.
  int64_t span() const;
};

// Arguments in the order of the definition's inputs and scalars.
struct Arguments {
  std::span<const TensorView> tensors;
  std::span<const ir::Number> scalars;  // converted to the dtype of their ScalarInput
  int device = cpu_device;              // device that the call runs on
  // By scalar: address on the GPU of a number that is added to it (Symbol::RngOffset only). Empty:
  // no scalar has one.
  std::span<const int64_t* const> added{};
  int threads = 0;            // threads that a launch on the CPU may use; 0: one per core
  host::Team team = nullptr;  // these threads, if the caller has them
};

using Key = std::vector<uint64_t>;
uint64_t hash_of(const Key& key);

// Properties of a fusion's arguments that are part of the exact key besides sizes and strides.
struct KeyRules {
  std::vector<int> shape_scalars;  // scalar inputs that reach a size or coordinate
  std::vector<bool> written;       // by tensor input: an output is written into it
  bool in_place = false;           // an output is written into any input
};
KeyRules key_rules(const ir::Fusion& fusion);

// Appends the exact key. Cheap: called on every launch.
void exact_key(const Arguments& arguments, const KeyRules& rules, Key& key);

// Tensor `written`, which an output is written into, and `other` share a byte of memory. Their
// extents are compared, holes included.
struct Overlap {
  uint32_t written, other;
  auto operator<=>(const Overlap&) const = default;
};
// Finds all overlaps of a call, in ascending order. Sorts extents, because an optimizer's step has
// hundreds of tensors.
void find_overlaps(const Arguments& arguments, const KeyRules& rules, std::vector<Overlap>& out);

// Returns whether all elements of the tensor have distinct addresses. False for expanded tensors of
// more than one element.
bool writable(const TensorView& tensor);

std::vector<fusion::LayoutClass> layout_classes(const Arguments& arguments);
Key layout_key(const std::vector<fusion::LayoutClass>& layouts, const Arguments& arguments);
// Appends layout_key() without making the layout classes, for each new shape.
void append_layout_key(const Arguments& arguments, Key& key);

// Raises UserError, ShapeError or DTypeError, naming the argument that does not fit the definition.
void check_arguments(const ir::Fusion& fusion, const Arguments& arguments);
// Size constraints of the definition, and size equalities that a call may satisfy, as a program to
// evaluate.
struct Constraints {
  ir::IntProgram program;
  std::vector<std::pair<int, int>> equal;  // slots of both sides, by Fusion::constraints
  std::vector<int> nonempty;               // slots, by Fusion::nonempty
  struct Size {
    int slot = 0, dim = 0;
    const ir::Tensor* tensor = nullptr;
  };
  std::vector<Size> computed;  // sizes that are neither given nor constant: may be negative
  int64_t constant = 0;        // largest constant size
  std::vector<fusion::Nesting> nestings;
  std::vector<std::pair<int, int>> nesting_slots;  // slots of both sides, by nesting
};
Constraints constraints_of(ir::Fusion& fusion);
// Sizes of a call, in the slots of Constraints::program.
using SizeValues = std::vector<int64_t>;

// Checks the sizes of a call, and records its new size equalities in `known` and in the key.
// Returns false if there are none, i.e. the specialized fusion applies. Raises ShapeError if sizes
// that must be equal differ, or if a size is negative, or 0 where that is not allowed.
//
// A constraint that holds only if a dim of size 1 broadcasts yields that dim alone (or several dims
// of one tensor). Sizes that depend on it change then, so they are not checked. Tensors without
// elements yield no equalities.
bool learn_sizes(const ir::Fusion& fusion, const Constraints& constraints, const SizeValues& values,
                 fusion::KnownSizes& known, Key& key);

// Returns the largest size of a dim in this call, of inputs, intermediate tensors and results. No
// coordinate exceeds it.
int64_t largest_size(const Constraints& constraints, const Arguments& arguments,
                     const SizeValues& values);

// Leaves of an integer program over the sizes of a call (IntProgram::run).
struct SizeLeaf {
  const Arguments& arguments;
  int64_t operator()(ir::Symbol s, int a, int b) const;
};

// Returns "float32[128, 64] strides [64, 1] cuda:0".
std::string describe(const TensorView& tensor);

}  // namespace fuser::driver
