// Values under construction: what is known of a fusion's tensors before they get coordinates, and
// one kernel's values while they are computed from its outputs back. Inside of fusion/ only:
// origins.cpp fills the Graph; group.cpp computes values, moves.cpp says where ops read, offers.cpp
// which axes are shared; segment.cpp decides what the values are of.
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

#include "fusion/access.h"

namespace fuser {

// Tensors of at most so many statements are computed at any number of coordinates.
inline constexpr int few_statements = 16;

// A tensor whose coordinates tell those of another one. Dims are counted after merged ones were
// taken apart (Graph::factors).
struct Origin {
  const Tensor* tensor = nullptr;  // an input, or a dim of something split in two
  std::vector<int> dims;           // by dim of `tensor`: the dim it indexes, -1: none
  bool operator==(const Origin&) const = default;
};

struct Graph {
  const Fusion* fusion = nullptr;
  bool plain = true;                         // elementwise and movement only
  std::vector<int> absorbed;                 // contract()
  std::vector<bool> narrow;                  // ends_narrow()
  std::vector<int> component;                // by tensor: tensors of a component are connected
  std::vector<const Tensor*> same;           // by tensor: the first one that is computed alike
  std::vector<int> parts;                    // by tensor: see in_parts()
  std::vector<bool> reduces;                 // by tensor: is computed from a reduction by a walk
  std::vector<bool> waits;                   // by tensor: other kernels or calls may come first
  std::vector<int> cost;                     // by tensor: statements if none were shared, capped
  std::vector<std::vector<Origin>> origins;  // by tensor, those that tell most dims first
  // By tensor and dim: sizes, outermost first, of the dims that were merged to it.
  std::vector<std::vector<std::vector<Expr>>> factors;

  std::vector<Expr> factors_of(const Tensor* t, int dim) const {
    return factors.empty() ? std::vector<Expr>{t->shape[dim]} : factors[t->id][dim];
  }
};
Graph make_graph(const Fusion& fusion);

struct Point {
  const Tensor* tensor;
  std::vector<Expr> at;
  bool operator<(const Point& o) const;
};

bool is_movement(const Tensor& t);

// (coordinate, size of the inner part) -> (outer, inner), for coordinates that were merged.
using Merges = std::map<std::pair<Expr, Expr>, std::pair<Expr, Expr>>;

// One step of a movement op: where its operand is read. `import` copies a size to `exprs`; what
// comes of a coordinate in `outside` joins it.
Point step(Exprs& exprs, Merges& merges, std::unordered_set<Expr>& outside,
           const std::function<Expr(Expr)>& import, const Point& p);

// Do these coordinates walk along all dims of the tensor, each axis along one of them?
bool covers(Exprs& exprs, const Tensor& tensor, const std::vector<Expr>& at,
            const std::vector<Axis>& axes);

// May memory of the value's tensor stand for the value: is each element of it computed?
bool is_whole(Exprs& exprs, const Value& value, const std::vector<Axis>& axes);

using Computed = std::variant<Apply, Convert>;  // from operands at the same place alone

// One kernel's values while outputs are added.
class ValueGroup {
 public:
  explicit ValueGroup(const Graph& graph) : graph_(graph) {}

  const Refined& refined() const { return refined_; }
  // Says of each read which of its coordinates may leave its tensor, and which were read.
  void bound_reads();
  int reads_and_stores() const;

  // New axes for the dims of `t`.
  std::vector<Expr> fresh(const Tensor* t);
  // Coordinates for `t` in the group's axes, those that tensors read by both offer first. `shape`:
  // that of the group's first output last.
  std::vector<std::vector<Expr>> offers(const Tensor* t);

  // Computes the output at these coordinates and stores it. Reductions that the kernel cannot take
  // are read from memory instead and listed in `refused`; with `strict` the first one ends it, and
  // the group is of no use any more: false.
  bool add(int output, const std::vector<Expr>& at, bool strict);
  std::vector<const Tensor*> refused;
  // Those that were refused because the kernel would compute them again and again, at other
  // coordinates each time (x -> x[1:] + x[:-1] -> ...), by id.
  std::set<int> repeated;
  std::set<int> cut;  // tensors, by id, that are read from memory
  // By tensor: read from memory by every kernel, but for those in `except`; nullptr: none is.
  const std::vector<bool>* cut_everywhere = nullptr;
  std::set<int> except;

  bool is_whole(ValueId v) {
    return fuser::is_whole(refined_.exprs, refined_.values[v], refined_.axes);
  }

  // The value of a tensor at the coordinates at which it was computed first; -1: nowhere.
  ValueId value_of(const Tensor* t) const;

  // What add() changes, to go back to.
  struct State {
    std::vector<Axis> axes;
    std::vector<Value> values;
    std::vector<Store> stores;
    std::map<Point, ValueId> known;
    std::map<Point, Point> taken;
    std::map<std::pair<ValueId, Expr>, ValueId> clamped;
    std::map<ValueId, GivenIndex> indices;
    struct Reducing {
      AxisSet over = 0;
      std::vector<Expr> at;  // of the argument
    };
    std::map<Point, Reducing> reducing;
    std::map<int, std::vector<std::vector<Expr>>> read_at;
    std::vector<AxisSet> overs;
    AxisSet all = 0;
    std::set<int> cut;
  };
  State state() const;
  void restore(State state);

 private:
  Expr import(Expr e);
  AxisSet axes_of(const std::vector<Expr>& at) const;
  AxisSet axes_of(std::span<const Access> args) const;
  std::vector<Expr> parts(const Tensor* t, int dim, Expr coordinate);
  std::vector<Expr> parts(const Tensor* t, const std::vector<Expr>& at);
  std::vector<Expr> coordinates(const Tensor* t, const std::vector<Expr>& parts);
  std::vector<Expr> extents(const Tensor* t);

  Point operand(const Tensor* arg, const std::vector<Expr>& at);
  Choose chosen(const Point& p);
  std::vector<Point> sources(const Point& p);
  std::optional<size_t> part_at(const Cat& cat, Expr coordinate);
  void offer(const Tensor* t, std::vector<Expr> at);
  void offer_origins(const Point& p);
  std::optional<std::vector<Expr>> join(const Tensor* t, const Origin& origin,
                                        const std::vector<Expr>& read);

  bool takes(AxisSet over, AxisSet kept) const;
  AxisSet take_axes_of_reads(const Tensor* arg, const std::vector<Expr>& sizes, AxisSet kept,
                             std::vector<Expr>& at) const;
  AxisSet take_reduced_axes(const std::vector<Expr>& sizes, AxisSet kept, std::vector<Expr>& at);
  bool admit(const Point& p);
  bool is_cut(const Tensor* t) const;
  bool is_repeated(const Tensor* t) const;
  void refuse(const Tensor* t);
  std::vector<Point> needs(const Point& p);
  ValueId append(const Point& p, DType dtype, decltype(Value::how) how, AxisSet axes);
  ValueId append_once(const Point& p, DType dtype, Computed how);
  ValueId helper(DType dtype, decltype(Value::how) how, AxisSet axes);
  Access access(const Operand& a, const std::vector<Expr>& at);
  Access negated(const Access& a, DType compute);
  Point taken(const Point& p);
  Apply apply(const Tensor& t, const Pointwise& d, const std::vector<Expr>& at);
  std::vector<Point> elements(const Point& p, const Reduction& d);
  void combine_parts(const Point& p, const Reduction& d);
  void reduce(const Point& p, const Reduction& d);
  void compute(const Point& p);
  bool demand(const Point& root);

  const Graph& graph_;
  Refined refined_;
  std::map<Point, ValueId> known_;
  std::map<std::vector<int64_t>, ValueId> computed_;  // by op and operands
  std::map<Point, Point> taken_;                      // where TakeAlongAxis reads its argument
  // The index in range, by the index as given and the size.
  std::map<std::pair<ValueId, Expr>, ValueId> clamped_;
  std::map<ValueId, GivenIndex> indices_;  // by the index in range
  std::map<Point, State::Reducing> reducing_;
  Images imported_;
  Merges merges_;
  std::unordered_set<Expr> outside_;  // coordinates that may leave their tensor
  // Coordinates at which tensors that Origin names are read or are going to be, by tensor id.
  std::map<int, std::vector<std::vector<Expr>>> read_at_;
  std::vector<AxisSet> overs_;  // the sets of axes that are reduced
  AxisSet all_ = 0;             // axes of the stores and reductions so far
  bool strict_ = false;
  std::vector<Expr> shape_;  // of the first output, in the fusion's arena
  std::vector<Expr> shape_at_;
};

// The tensors that the kernel of `root` should read, as every other one then, though it could
// compute them: those before it compute them too, and that takes longer than to store and read
// them. Each list is for one kernel to store. `in_memory`: by tensor, those that every kernel reads
// already. `results`: those that are stored in any case.
std::vector<std::vector<const Tensor*>> worth_storing(const Graph& graph, ValueGroup& group,
                                                      const std::vector<bool>& in_memory,
                                                      const std::set<int>& results,
                                                      const Tensor* root);
// By value: which of `overs` it is computed from with no other reduction between.
std::vector<uint8_t> fed_by(const Refined& refined, const std::vector<AxisSet>& overs);
uint8_t fed_operands(const Value& value, const std::vector<uint8_t>& fed);
// The distinct sets of axes that are reduced, in value order.
std::vector<AxisSet> reduced_sets(const Refined& refined);

}  // namespace fuser
