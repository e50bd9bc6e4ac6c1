// Problem: one kernel to be scheduled, and the layout classes of its inputs. The structure of a
// kernel depends on sizes only through these and through guards (guards.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fusion/index/access.h"

namespace fuser::fusion {

// Memory layout of one input, without its sizes.
struct LayoutClass {
  std::vector<bool> one;       // by dim: True if its size is 1; its stride is ignored
  std::vector<bool> expanded;  // by dim: True if its stride is 0
  std::vector<int> order;      // remaining dims, largest stride first
  // By position in order: True if the stride is the product of stride and size of the next
  // position, or 1 at the last.
  std::vector<bool> contiguous;
  // True for a CPU tensor without dims next to CUDA tensors: passed by value.
  bool on_cpu_scalar = false;

  bool operator==(const LayoutClass&) const = default;
};
LayoutClass layout_class(std::span<const int64_t> sizes, std::span<const int64_t> strides);
void append_key(const LayoutClass& layout, std::vector<uint64_t>& key);
std::string to_string(const LayoutClass& layout);
// Returns the strides of a tensor input by dim: 0, 1, a product of inner sizes if contiguous, else
// a symbol. extents: its sizes, in `exprs`.
std::vector<ir::Expr> input_strides(ir::Exprs& exprs, const ir::Tensor& tensor, int input,
                                    const LayoutClass& layout,
                                    const std::vector<ir::Expr>& extents);

// One memory access of a kernel: a Read value or a Store.
struct MemoryAccess {
  bool store = false;
  int index = 0;  // ValueId of a read, or index into Refined::stores
  int buffer = 0;
  ir::DType dtype{};
  std::vector<ir::Expr> at;
  std::vector<ir::Expr> tensor_strides;
  std::optional<Linear> strides;  // by axis; nullopt: irregular
  Pred in{};                      // mask of a read, which yields 0 if it is false
};

// The memory of one tensor that a kernel accesses.
struct BufferUse {
  const ir::Tensor* tensor = nullptr;
  int input = -1;  // tensor input whose memory it is, or -1
  // Fusion output that it is allocated for, by this kernel or an earlier one, or -1.
  int output = -1;
  bool read = false, written = false;
};

// One kernel to be scheduled: values over axes, with addresses.
struct Problem {
  Refined refined;
  std::vector<AxisId> order;  // axes in memory order, outermost first
  std::vector<BufferUse> buffers;
  std::vector<MemoryAccess> accesses;  // reads in value order, then stores
  // Memory order of the dims of each allocated output, outermost first, by store; empty for an
  // in-place output.
  std::vector<std::vector<int>> output_order;
  // The reduced sets of axes (ReductionSets), or 0. If both sets are terminal, `reduced` is the set
  // that contains the innermost axis.
  AxisSet reduced = 0, columns = 0;
  // The same kernel in single-pass form (single_pass()), or nullptr if no loops merge. Axes, their
  // order and the layouts of outputs are equal.
  std::unique_ptr<Problem> single_pass{};
};

// Memory order of the dims of allocated outputs, outermost first, by output; filled by
// make_problem().
using OutputOrders = std::map<int, std::vector<int>>;

// in_place[o]: True if output o is stored directly into its alias input. orders: layouts of the
// outputs of kernels that run earlier; an output that is already in it keeps its layout.
Problem make_problem(const ir::Fusion& fusion, Refined refined,
                     const std::vector<LayoutClass>& layouts, const std::vector<bool>& in_place,
                     OutputOrders& orders);

// Returns the axes that an access varies over, including the axes of its gather indices.
AxisSet axes_of(const Problem& problem, const MemoryAccess& access);
// Returns the axis with the smallest constant stride, -1 if no stride is constant.
AxisId near_axis(const MemoryAccess& access);
// Returns the dims of a tensor at these coordinates, outermost first, in the given order of the
// axes. Dims of size 1 keep their positions.
std::vector<int> dims_in_order(int rank, const std::vector<ir::Expr>& at,
                               const std::vector<AxisId>& order);
// Returns whether the address depends on a gather index.
bool is_loaded(const MemoryAccess& access);
// Returns whether a store must wait for the last reduction loop, because it updates a buffer in
// place that later loops still read. Other stores of rows are in the loop that computes their
// values.
bool waits_for_reads(const Problem& problem, const MemoryAccess& store);

// Kernels, if any, that can replace one kernel (kernel fission).
enum class Fission : uint8_t {
  None,   // no replacement: this kernel is always used
  Split,  // kernels that compute some of the values each, see fission() in fusion/index/access.h
  // Kernels that copy uncoalesced operands, so that all remaining accesses are coalesced.
  TransposeOperands,
};

}  // namespace fuser::fusion
