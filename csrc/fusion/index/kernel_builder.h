// Values under construction, internal to fusion/: the properties of a fusion's tensors (Graph), and
// the values of one kernel (KernelBuilder), built from its outputs backwards. axis_sources.cpp
// fills the Graph. kernel_builder.cpp computes values, movement_ops.cpp the coordinates of
// operands, axis_sharing.cpp the axis mappings. segment.cpp decides which outputs share a group.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "fusion/index/access.h"

namespace fuser::fusion {

// Tensors of at most this many statements may be computed at any number of coordinates.
inline constexpr int few_statements = 16;

// An axis source: a tensor whose coordinates determine coordinates of another tensor. Dims are
// counted after merged dims are split into their factors (FusionGraph::split_factors).
struct AxisSource {
  // An input, a reduction, or a tensor with dims of its own (a split, a slice).
  const ir::Tensor* tensor = nullptr;
  // By dim of `tensor`: the dim that it indexes, or -1.
  std::vector<int> dims;
  bool operator==(const AxisSource&) const = default;
};

struct FusionGraph {
  const ir::Fusion* fusion = nullptr;
  bool plain = true;                    // True if all ops are elementwise or movement ops
  std::vector<int> absorbed;            // contract(): the mul that each tensor absorbs
  std::vector<bool> narrow;             // demanded_narrow(): demanded precision
  std::vector<int> component;           // by tensor: id of its connected component
  std::vector<const ir::Tensor*> same;  // by tensor: the first tensor with an equal definition
  std::vector<int> parts;               // by tensor: see in_parts()
  std::vector<bool> reduces;            // by tensor: True if it depends on a reduction loop
  // By tensor: True if it depends on a reduction or a library call.
  std::vector<bool> waits;
  // By tensor: statements that compute it without CSE, capped.
  std::vector<int> cost;
  std::vector<std::vector<AxisSource>> axis_sources;  // by tensor, sources of most dims first
  // By tensor and dim: the sizes, outermost first, of the dims that were merged into it.
  std::vector<std::vector<std::vector<ir::Expr>>> split_factors;

  std::vector<ir::Expr> split_factors_of(const ir::Tensor* t, int dim) const {
    return split_factors.empty() ? std::vector<ir::Expr>{t->shape[dim]} : split_factors[t->id][dim];
  }
};
FusionGraph make_fusion_graph(const ir::Fusion& fusion);

struct Point {
  const ir::Tensor* tensor;
  std::vector<ir::Expr> at;
  bool operator<(const Point& o) const;
};

bool is_movement(const ir::Tensor& t);

// (coordinate, size of the inner dim) -> (outer, inner), for coordinates that were merged.
using Merges = std::map<std::pair<ir::Expr, ir::Expr>, std::pair<ir::Expr, ir::Expr>>;

// The coordinates of operands, as movement ops derive them from the coordinates of results.
struct Coordinates {
  ir::Exprs& exprs;
  Merges& merges;
  std::unordered_set<ir::Expr>& outside;     // coordinates that may be outside their tensor
  std::function<ir::Expr(ir::Expr)> import;  // copies a size to `exprs`

  // Returns `to`, which is derived from `from`. It may be outside if `from` may be.
  ir::Expr derived(ir::Expr from, ir::Expr to);
  // Returns (outer, inner) as one coordinate, which `merges` maps back for split().
  ir::Expr merge(ir::Expr outer, ir::Expr inner, ir::Expr size);
  std::pair<ir::Expr, ir::Expr> split(ir::Expr one, ir::Expr size);
};

// Steps through one movement op: returns the point at which its operand is read.
Point step(Coordinates& coordinates, const Point& p);

// Returns whether the coordinates visit all indices of all dims of the tensor, with each axis in
// one dim.
bool covers(ir::Exprs& exprs, const ir::Tensor& tensor, const std::vector<ir::Expr>& at,
            const std::vector<Axis>& axes);

// Returns whether the value's tensor can be materialized: every element of it is computed.
bool is_whole(ir::Exprs& exprs, const Value& value, const std::vector<Axis>& axes);

using Computed = std::variant<Apply, Convert>;  // computed from operands at equal coordinates alone

// The values of one kernel, while outputs are added.
class KernelBuilder {
 public:
  explicit KernelBuilder(const FusionGraph& graph) : graph_(graph) {}

  const Refined& refined() const { return refined_; }
  // Sets the masks and the gather indices of all reads.
  void bound_reads();
  int reads_and_stores() const;

  // Returns coordinates for `t` with new axes.
  std::vector<ir::Expr> fresh(const ir::Tensor* t);
  // Returns the axis mappings for `t`, which are coordinates in the group's axes: mappings through
  // one tensor that both read, then stores of equal shape, then mappings through several tensors.
  std::vector<std::vector<ir::Expr>> axis_mappings(const ir::Tensor* t);

  // Computes the output at these coordinates and stores it. Reductions that the kernel cannot
  // contain are read from memory and listed in `refused`. With `strict` the first of these
  // reductions ends the call: it returns false, and the group must be restored.
  bool add(int output, const std::vector<ir::Expr>& at, bool strict);
  std::vector<const ir::Tensor*> refused;
  // Ids of refused tensors that the kernel would compute at ever more coordinates (x -> x[1:] +
  // x[:-1] -> ...).
  std::set<int> repeated;
  std::set<int> materialized;  // ids of tensors that are read from memory
  // By tensor: True if every kernel reads it from memory, except tensors in `except`. nullptr: no
  // tensor.
  const std::vector<bool>* materialized_everywhere = nullptr;
  std::set<int> except;

  bool is_whole(ValueId v) {
    return fusion::is_whole(refined_.exprs, refined_.values[v], refined_.axes);
  }

  // Returns the value of a tensor at its first coordinates, or -1 if it is not computed.
  ValueId value_of(const ir::Tensor* t) const;

  // The state that add() changes, for restore(). imported_, merges_ and outside_ are not part of
  // it: they hold facts about expressions, which stay true. restore() trims computed_ by value id.
  struct State {
    std::vector<Axis> axes;
    std::vector<Value> values;
    std::vector<Store> stores;
    std::map<Point, ValueId> known;
    std::map<Point, Point> taken;
    std::map<std::pair<ValueId, ir::Expr>, ValueId> clamped;
    std::map<ValueId, GatherIndex> indices;
    struct Reducing {
      AxisSet over = 0;
      std::vector<ir::Expr> at;  // coordinates of the argument
    };
    std::map<Point, Reducing> reducing;
    std::map<int, std::vector<std::vector<ir::Expr>>> read_at;
    std::vector<AxisSet> overs;
    AxisSet all = 0;
    std::set<int> materialized;
  };
  State state() const;
  void restore(State state);

 private:
  ir::Expr import(ir::Expr e);
  AxisSet axes_of(const std::vector<ir::Expr>& at) const;
  AxisSet axes_of(std::span<const Access> args) const;
  std::vector<ir::Expr> parts(const ir::Tensor* t, int dim, ir::Expr coordinate);
  std::vector<ir::Expr> parts(const ir::Tensor* t, const std::vector<ir::Expr>& at);
  std::vector<ir::Expr> coordinates(const ir::Tensor* t, const std::vector<ir::Expr>& parts);
  std::vector<ir::Expr> extents(const ir::Tensor* t);

  Coordinates through_movement();
  Point operand(const ir::Tensor* arg, const std::vector<ir::Expr>& at);
  Select selected(const Point& p);
  std::vector<Point> sources(const Point& p);
  std::optional<size_t> part_at(const ir::Cat& cat, ir::Expr coordinate);
  void offer(const ir::Tensor* t, std::vector<ir::Expr> at);
  void map_axis_sources(const Point& p);
  std::optional<std::vector<ir::Expr>> join(const ir::Tensor* t, const AxisSource& source,
                                            const std::vector<ir::Expr>& read);
  std::optional<std::vector<ir::Expr>> join_reads(const ir::Tensor* t);

  bool has_all_axes(AxisSet axes) const;
  bool takes(AxisSet over, AxisSet kept) const;
  AxisSet take_axes_of_reads(const ir::Tensor* arg, const std::vector<ir::Expr>& sizes,
                             AxisSet kept, std::vector<ir::Expr>& at) const;
  AxisSet take_reduced_axes(const std::vector<ir::Expr>& sizes, AxisSet kept,
                            std::vector<ir::Expr>& at);
  bool admit(const Point& p);
  bool is_materialized(const ir::Tensor* t) const;
  bool is_repeated(const ir::Tensor* t) const;
  void refuse(const ir::Tensor* t);
  std::vector<Point> needs(const Point& p);
  template <class D>
  std::vector<Point> needs_of(const Point& p, const D& d);
  ValueId append(const Point& p, ir::DType dtype, decltype(Value::how) how, AxisSet axes);
  ValueId append_once(const Point& p, ir::DType dtype, Computed how);
  ValueId helper(ir::DType dtype, decltype(Value::how) how, AxisSet axes);
  Access access(const ir::Operand& a, const std::vector<ir::Expr>& at);
  Access negated(const Access& a, ir::DType compute);
  Point taken(const Point& p);
  Apply apply(const ir::Tensor& t, const ir::Pointwise& d, const std::vector<ir::Expr>& at);
  std::vector<Point> elements(const Point& p, const ir::Reduction& d);
  void combine_parts(const Point& p, const ir::Reduction& d);
  void reduce(const Point& p, const ir::Reduction& d);
  void compute(const Point& p);
  template <class D>
  void compute_op(const Point& p, const D& d);
  void select(const Point& p);
  bool demand(const Point& root);

  const FusionGraph& graph_;
  Refined refined_;
  std::map<Point, ValueId> known_;
  std::map<std::vector<int64_t>, ValueId> computed_;  // by op and operands
  // Point at which TakeAlongAxis reads its argument.
  std::map<Point, Point> taken_;
  // The clamped index, by the loaded index and the size.
  std::map<std::pair<ValueId, ir::Expr>, ValueId> clamped_;
  std::map<ValueId, GatherIndex> indices_;  // by the clamped index
  std::map<Point, State::Reducing> reducing_;
  ir::Images imported_;
  Merges merges_;
  std::unordered_set<ir::Expr> outside_;  // coordinates that may be outside their tensor
  // Coordinates at which axis sources are read or will be read, by tensor id.
  std::map<int, std::vector<std::vector<ir::Expr>>> read_at_;
  std::vector<AxisSet> overs_;  // the reduced sets of axes
  AxisSet all_ = 0;             // axes of the stores and reductions so far
  bool strict_ = false;
};

// Returns the tensors to materialize although the kernel of `root` could compute them: predecessors
// compute them too, and computing them repeatedly takes longer than storing and reading them. Each
// list is for one kernel to store. `in_memory`: by tensor, True if every kernel reads it already.
// `results`: tensors that are stored in any case.
std::vector<std::vector<const ir::Tensor*>> worth_materializing(const FusionGraph& graph,
                                                                KernelBuilder& group,
                                                                const std::vector<bool>& in_memory,
                                                                const std::set<int>& results,
                                                                const ir::Tensor* root);

// Returns the results of reductions of the group that the kernels of its temporaries compute too.
// They are small, and to read them saves a loop over the elements. The rest as above.
std::vector<const ir::Tensor*> shared_reductions(const FusionGraph& graph, KernelBuilder& group,
                                                 const std::vector<bool>& in_memory,
                                                 const ir::Tensor* root);
// By value: bit set of the `overs` whose reductions it depends on without another reduction
// between.
std::vector<uint8_t> fed_by(const Refined& refined, const std::vector<AxisSet>& overs);
uint8_t fed_operands(const Value& value, const std::vector<uint8_t>& fed);
// Returns the distinct reduced sets of axes, in value order.
std::vector<AxisSet> reduced_sets(const Refined& refined);

}  // namespace fuser::fusion
