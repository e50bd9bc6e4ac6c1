// What is known about sizes beyond their symbols: the layout classes of inputs, and yes/no facts
// whose truth for concrete sizes is part of a kernel's signature. Structure depends on sizes
// through these and through nothing else.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fusion/access.h"

namespace fuser {

// How one input lies in memory, without its sizes.
struct LayoutClass {
  std::vector<bool> one;       // by dim: size 1 (its stride does not count)
  std::vector<bool> expanded;  // by dim: stride 0
  std::vector<int> order;      // remaining dims, largest stride first
  std::vector<bool>
      contiguous;  // by position in order: stride is that of the next one times its size (last: 1)
  bool on_cpu_scalar = false;  // a CPU tensor of no dims beside CUDA tensors: passed by value

  bool operator==(const LayoutClass&) const = default;
};
LayoutClass layout_class(std::span<const int64_t> sizes, std::span<const int64_t> strides);
void append_key(const LayoutClass& layout, std::vector<uint64_t>& key);
std::string to_string(const LayoutClass& layout);
// The strides of a tensor input by dim: 0, 1, products of inner sizes where contiguous, else a
// symbol. extents: its sizes, in `exprs`.
std::vector<Expr> input_strides(Exprs& exprs, const Tensor& tensor, int input,
                                const LayoutClass& layout, const std::vector<Expr>& extents);

// One memory access of a kernel: a Read value or a Store.
struct MemoryAccess {
  bool store = false;
  int index = 0;  // ValueId, or index into Refined::stores
  int buffer = 0;
  DType dtype{};
  std::vector<Expr> at;
  std::vector<Expr> tensor_strides;
  std::optional<Linear> strides;  // by axis; nothing: irregular
  Pred in{};                      // of a read: elsewhere it is 0
};

// A buffer of a kernel: which tensor's memory it is.
struct BufferUse {
  const Tensor* tensor = nullptr;
  int input = -1;   // tensor input whose memory it is, or
  int output = -1;  // fusion output that is allocated for it, by this kernel or an earlier one
  bool read = false, written = false;
};

// One kernel to be scheduled: values over axes, with addresses.
struct Problem {
  Refined refined;
  std::vector<AxisId>
      order;  // of the axes in memory, outermost first: that of the first input that tells
  std::vector<BufferUse> buffers;
  std::vector<MemoryAccess> accesses;  // reads in value order, then stores
  // Layout of each allocated output's dims, outermost first, by store; empty for an output in
  // place.
  std::vector<std::vector<int>> output_order;
  // The sets of axes that are reduced (ReductionSets), 0 where there is none. Where results of
  // neither are read over all axes, `reduced` is the one that holds the innermost axis.
  AxisSet reduced = 0, columns = 0;
  // The same kernel with one walk over the data in place of two: single_pass(); nullptr where there
  // is none. Axes, their order and the layouts of outputs are the same.
  std::unique_ptr<Problem> single_pass{};
};

// Layouts of allocated outputs, outermost dim first, by output; filled by make_problem().
using OutputOrders = std::map<int, std::vector<int>>;

// in_place[o]: output o is stored straight into its alias input. orders: of the outputs of kernels
// that run before this one; an output that is in it already keeps its layout.
Problem make_problem(const Fusion& fusion, Refined refined, const std::vector<LayoutClass>& layouts,
                     const std::vector<bool>& in_place, OutputOrders& orders);

// The axes that an access varies over, those of loaded coordinates included.
AxisSet axes_of(const Problem& problem, const MemoryAccess& access);
// The axis along which its elements lie close to each other, -1: none.
AxisId near_axis(const MemoryAccess& access);
// The dims of a tensor at these coordinates, outermost first, in this order of the axes; dims of
// size 1 stay where they are.
std::vector<int> dims_in_order(int rank, const std::vector<Expr>& at,
                               const std::vector<AxisId>& order);
// Does where it lies depend on a value that was read?
bool is_loaded(const MemoryAccess& access);
// A row is stored in the walk that knows its values, but for what is updated in place: later walks
// may still read the old values.
bool waits_for_reads(const Problem& problem, const MemoryAccess& store);

// "divisor divides value", asked by a scheduler, answered for concrete sizes.
struct Fact {
  Expr value = nullptr;
  int64_t divisor = 1;
};

// Sizes in steps of a quarter of an octave: the least number of a bucket that holds `value`, and
// the largest size that a bucket holds.
int bucket_of(int64_t value);
int64_t bucket_limit(int bucket);

// The several kernels, if any, that can compute the values of one.
enum class Pieces : uint8_t {
  None,        // this kernel serves always
  Cut,         // each computes some of the values (pieces() in fusion/access.h)
  AlongLanes,  // some copy what lies across the lanes, which others then read or store along them
};

// All that a plan may know about sizes: never a size itself.
struct Hints {
  std::vector<Fact> facts;
  std::vector<bool> truth;       // by fact
  std::vector<Expr> extents;     // asked by a scheduler
  std::vector<int> buckets;      // by extent: bucket_of() its value
  Pieces pieces = Pieces::None;  // that can run instead of this kernel
  std::vector<bool> aligned;     // by buffer: its address is a multiple of 16 bytes
  bool index64 = false;
  bool one_wave = false;  // its elements are one to four for each thread that a large GPU holds

  bool divides(Expr value,
               int64_t divisor) const;  // asks a collected fact; constants answer themselves
  int64_t at_most(Expr extent) const;   // asks the bucket of a collected extent, or a constant's
};

}  // namespace fuser
