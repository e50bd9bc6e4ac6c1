// Properties of a fusion's tensors before they get coordinates: equal definitions, dependence on
// reductions, and for each dim the inputs whose dims determine it (axis sources). Through axis
// sources reductions and outputs find the axes that they can share with a kernel.
#include <algorithm>
#include <numeric>

#include "fusion/build/rebuild.h"
#include "fusion/index/kernel_builder.h"
#include "fusion/movement/movement_rules.h"

namespace fuser::fusion {

using namespace ir;

namespace {

// Axis sources per tensor. More sources add nothing, because any one of them determines a dim.
constexpr size_t max_axis_sources = 8;
constexpr size_t most_parts = 8;  // sizes of one split dim, as reshapes produce

// Connected components of the graph, including inputs. Fusions with no tensor in common are
// separate kernels.
std::vector<int> components(const Fusion& fusion) {
  std::vector<int> parent(fusion.tensors.size());
  std::iota(parent.begin(), parent.end(), 0);
  const auto find = [&](int x) {
    while (parent[x] != x) x = parent[x] = parent[parent[x]];
    return x;
  };
  for (const Tensor& t : fusion.tensors)
    for (const Tensor* a : ir::operands(t)) parent[find(t.id)] = find(a->id);
  std::vector<int> out(parent.size());
  for (size_t i = 0; i < parent.size(); ++i) out[i] = find(static_cast<int>(i));
  return out;
}

// Returns the definition as numbers. Operands are replaced by the first tensor with an equal
// definition.
std::vector<uint64_t> definition_key(const Tensor& t, const std::vector<const Tensor*>& same) {
  std::vector<uint64_t> key{t.definition.index(), static_cast<uint64_t>(t.dtype)};
  const auto scalar = [&](Expr e) { key.push_back(e ? uint64_t{e->id} + 1 : 0); };
  const auto numbers = [&](const auto& list) {
    key.push_back(list.size());
    for (const auto n : list) key.push_back(static_cast<uint64_t>(n));
  };
  for (const Tensor* a : ir::operands(t)) key.push_back(static_cast<uint64_t>(same[a->id]->id));
  for (Expr e : t.shape) scalar(e);
  if (const auto* p = std::get_if<Pointwise>(&t.definition)) {
    for (const Operand& a : p->args) scalar(a.scalar);  // and their positions
  } else {
    for (Expr e : ir::written_scalars(t)) scalar(e);
  }
  std::visit(
      [&](const auto& d) {
        using D = std::decay_t<decltype(d)>;
        if constexpr (std::is_same_v<D, Input>) key.push_back(static_cast<uint64_t>(d.index));
        if constexpr (requires { d.op; }) key.push_back(static_cast<uint64_t>(d.op));
        if constexpr (requires { d.compute; }) key.push_back(static_cast<uint64_t>(d.compute));
        if constexpr (std::is_same_v<D, Reduction>) numbers(d.dims);
        if constexpr (requires { d.attributes; }) numbers(d.attributes);
        if constexpr (std::is_same_v<D, TakeAlongAxis> || std::is_same_v<D, Cat>)
          key.push_back(static_cast<uint64_t>(d.dim));
        if constexpr (std::is_same_v<D, Result>) key.push_back(static_cast<uint64_t>(d.index));
        if constexpr (MovementOp<D>)
          visit_fields(d, [&]<class T>(const auto&, const T& value) {
            if constexpr (std::is_integral_v<T>) key.push_back(static_cast<uint64_t>(value));
            if constexpr (std::is_same_v<T, std::vector<int64_t>> ||
                          std::is_same_v<T, std::vector<bool>>)
              numbers(value);
          });
      },
      t.definition);
  return key;
}

bool has_own_dims(const Tensor& t) {
  return std::visit(
             [](const auto& d) {
               using D = std::decay_t<decltype(d)>;
               return makes_dims<D> || std::is_same_v<D, Pad> || std::is_same_v<D, Cat> ||
                      std::is_same_v<D, TakeAlongAxis>;
             },
             t.definition) ||
         ir::library_call(t);
}

// Fills factors and axis sources, tensor by tensor.
struct Dims {
  FusionGraph& graph;
  Exprs exprs;  // arena to multiply sizes

  size_t count(const Tensor* t) const {
    size_t n = 0;
    for (int d = 0; d < t->rank(); ++d) n += graph.split_factors_of(t, d).size();
    return n;
  }
  size_t first(const Tensor* t, int64_t dim) const {
    size_t n = 0;
    for (int d = 0; d < dim; ++d) n += graph.split_factors_of(t, d).size();
    return n;
  }

  Expr product(const std::vector<Expr>& sizes, size_t from, size_t to) {
    Expr out = exprs.constant(1);
    for (size_t i = from; i < to; ++i) out = exprs.mul(out, copy(sizes[i]));
    return out;
  }
  Expr copy(Expr e) {
    return rewrite(exprs, e, [](Expr) -> Expr { return nullptr; });
  }

  // Returns the index at which the factors of a dim divide into outer and inner size, or 0.
  size_t cut(const std::vector<Expr>& factors, Expr inner) {
    for (size_t i = 1; i < factors.size(); ++i)
      if (product(factors, i, factors.size()) == copy(inner)) return i;
    return 0;
  }

  bool nests(const Tensor& t, const SplitDim& d) {
    return cut(graph.split_factors[d.arg->id][d.dim], t.shape[d.dim + 1]) > 0;
  }

  void set_factors(const Tensor& t) {
    std::vector<std::vector<Expr>>& out = graph.split_factors[t.id];
    for (Expr e : t.shape) out.push_back({e});
    // Takes over the factors of a dim of `arg` that is a dim of t. Next to splits and merges that
    // includes a dim of size 1 that was merged of dims of size 1, because positions of factors are
    // counted through it.
    const auto keep = [&](const Tensor* arg, int from, int to) {
      const std::vector<Expr>& known = graph.split_factors[arg->id][from];
      if (known.size() > out[to].size()) out[to] = known;
    };
    std::visit(
        [&](const auto& d) {
          using D = std::decay_t<decltype(d)>;
          if constexpr (std::is_same_v<D, SplitDim>) {
            const std::vector<Expr>& known = graph.split_factors[d.arg->id][d.dim];
            for (int i = 0; i < d.arg->rank(); ++i)
              if (i != d.dim) keep(d.arg, i, i < d.dim ? i : i + 1);
            if (const size_t i = cut(known, t.shape[d.dim + 1])) {
              out[d.dim] = {known.begin(), known.begin() + static_cast<ptrdiff_t>(i)};
              out[d.dim + 1] = {known.begin() + static_cast<ptrdiff_t>(i), known.end()};
            }
          } else if constexpr (std::is_same_v<D, MergeDims>) {
            for (int i = 0; i < d.arg->rank(); ++i)
              if (i < d.dim || i > d.dim + 1) keep(d.arg, i, i < d.dim ? i : i - 1);
            if (t.shape[d.dim]->is_constant(0)) return;  // no element has coordinates
            out[d.dim] = graph.split_factors[d.arg->id][d.dim];
            const std::vector<Expr>& inner = graph.split_factors[d.arg->id][d.dim + 1];
            out[d.dim].insert(out[d.dim].end(), inner.begin(), inner.end());
          } else {
            for (const Tensor* a : ir::operands(t)) {
              const std::vector<int> image = dims_of(t, a);
              for (int i = 0; i < a->rank(); ++i)
                if (image[i] >= 0) keep(a, i, image[i]);  // dims of size 1 have no image
            }
          }
        },
        t.definition);
  }

  // Passes factors on to inputs if only another operand was merged (weights repeated for each
  // sample, added to samples that are merged already). Else a reduction of the input would have
  // coordinates that are not axes.
  void set_all_factors() {
    const std::deque<Tensor>& tensors = graph.fusion->tensors;
    for (const Tensor& t : tensors) set_factors(t);
    for (size_t i = tensors.size(); i-- > 0;) give_factors(tensors[i]);
    for (const Tensor& t : tensors) {
      if (std::holds_alternative<Input>(t.definition)) continue;
      graph.split_factors[t.id].clear();
      set_factors(t);
    }
  }

  void give_factors(const Tensor& t) {
    if (std::holds_alternative<SplitDim>(t.definition) ||
        std::holds_alternative<MergeDims>(t.definition))
      return;
    for (const Tensor* a : ir::operands(t)) {
      const std::vector<int> image = dims_of(t, a);
      for (int i = 0; i < a->rank(); ++i) {
        std::vector<Expr>& own = graph.split_factors[a->id][i];
        if (image[i] >= 0 && own.size() == 1 && a->shape[i] == t.shape[image[i]])
          own = graph.split_factors[t.id][image[i]];
      }
    }
  }

  // Returns, for each dim of operand `a`, the dim of t that indexes it, or -1. Not for splits and
  // merges.
  static std::vector<int> dims_of(const Tensor& t, const Tensor* a) {
    std::vector<int> image(a->rank(), -1);
    if (ir::library_call(t)) return image;
    std::visit(
        [&](const auto& d) {
          using D = std::decay_t<decltype(d)>;
          if constexpr (MovementOp<D>) {
            image = MovementRules<D>::dims_of(d, t);
          } else if constexpr (std::is_same_v<D, Reduction>) {
            int next = 0;
            for (int i = 0; i < a->rank(); ++i)
              if (!std::binary_search(d.dims.begin(), d.dims.end(), i)) image[i] = next++;
          } else {
            static_assert(std::is_same_v<D, Pointwise> || std::is_same_v<D, Cast> ||
                              std::is_same_v<D, Result> || std::is_same_v<D, TakeAlongAxis> ||
                              std::is_same_v<D, Pad> || std::is_same_v<D, Cat> ||
                              std::is_same_v<D, Input> || std::is_same_v<D, Full> ||
                              std::is_same_v<D, Iota> || std::is_same_v<D, Library> ||
                              std::is_same_v<D, std::monostate>,
                          "dims_of() misses an op");
            for (int i = 0; i < a->rank(); ++i) image[i] = i;
            if constexpr (std::is_same_v<D, TakeAlongAxis>)
              if (a == d.arg && a != d.index) image[d.dim] = -1;
            if constexpr (std::is_same_v<D, Cat>) image[d.dim] = -1;
            if constexpr (std::is_same_v<D, Pad>)
              for (size_t i = 0; i < d.before.size(); ++i)
                if (!d.before[i]->is_constant(0) || a->shape[i] != t.shape[i]) image[i] = -1;
          }
        },
        t.definition);
    for (int i = 0; i < a->rank(); ++i)
      if (a->shape[i]->is_constant(1)) image[i] = -1;
    return image;
  }

  // Returns, for each factor of operand `a`, the factor of t that indexes it, or -1.
  std::vector<int> split_factors_of(const Tensor& t, const Tensor* a) {
    std::vector<int> image(count(a), -1);
    if (const auto* d = std::get_if<MergeDims>(&t.definition)) {
      const size_t begin = first(a, d->dim), end = first(a, d->dim + 2);
      const size_t gone = image.size() - count(&t);  // factors of a merged dim without elements
      for (size_t i = 0; i < image.size(); ++i)
        if (i < begin || i >= end || !gone) image[i] = static_cast<int>(i < end ? i : i - gone);
      return image;
    }
    if (const auto* d = std::get_if<SplitDim>(&t.definition)) {
      const size_t begin = first(a, d->dim), end = first(a, d->dim + 1);
      const bool nested = nests(t, *d);
      for (size_t i = 0; i < begin; ++i) image[i] = static_cast<int>(i);
      for (size_t i = begin; i < end && nested; ++i) image[i] = static_cast<int>(i);
      const size_t after = nested ? end : begin + 2;
      for (size_t i = end; i < image.size(); ++i) image[i] = static_cast<int>(i - end + after);
      return image;
    }
    const std::vector<int> dims = dims_of(t, a);
    for (int d = 0; d < a->rank(); ++d) {
      if (dims[d] < 0) continue;
      const std::vector<Expr> mine = graph.split_factors_of(a, d);
      if (mine.size() != graph.split_factors_of(&t, dims[d]).size()) continue;
      for (size_t i = 0; i < mine.size(); ++i)
        image[first(a, d) + i] = static_cast<int>(first(&t, dims[d]) + i);
    }
    return image;
  }

  void set_axis_sources(const Tensor& t) {
    std::vector<AxisSource>& out = graph.axis_sources[t.id];
    const auto itself = [&] {
      AxisSource own{.tensor = &t, .dims = std::vector<int>(count(&t))};
      std::iota(own.dims.begin(), own.dims.end(), 0);
      out.push_back(std::move(own));
    };
    if (std::holds_alternative<Input>(t.definition)) return itself();
    const auto* split = std::get_if<SplitDim>(&t.definition);
    const bool splits = split && !nests(t, *split);
    // A reduction may be materialized; then other tensors share it as a source. A tensor with dims
    // that no operand has is a source too.
    if (splits || std::holds_alternative<Reduction>(t.definition) || has_own_dims(t)) itself();
    for (const Tensor* a : ir::operands(t)) {
      const std::vector<int> image = split_factors_of(t, a);
      for (const AxisSource& o : graph.axis_sources[a->id]) {
        AxisSource mine{.tensor = o.tensor, .dims = {}};
        bool tells = false;
        for (int d : o.dims) {
          mine.dims.push_back(d >= 0 ? image[d] : -1);
          tells = tells || mine.dims.back() >= 0;
        }
        if (tells && std::find(out.begin(), out.end(), mine) == out.end())
          out.push_back(std::move(mine));
      }
    }
    const auto told = [](const AxisSource& o) {
      return std::count_if(o.dims.begin(), o.dims.end(), [](int d) { return d >= 0; });
    };
    std::stable_sort(out.begin(), out.end(),
                     [&](const AxisSource& x, const AxisSource& y) { return told(x) > told(y); });
    if (out.size() > max_axis_sources) out.resize(max_axis_sources);
  }
};

// Returns whether each element is computed from operands at equal coordinates, up to a permutation.
bool keeps_places(const Tensor& t) {
  return std::visit(
             [](const auto& d) {
               using D = std::decay_t<decltype(d)>;
               return !std::is_same_v<D, SplitDim> && !std::is_same_v<D, MergeDims>;
             },
             t.definition) &&
         !has_own_dims(t);
}

// The tensors that split a dim, by its tensor and index.
using Splits = std::multimap<std::pair<const Tensor*, int>, const Tensor*>;

// Returns the constant inner sizes of a split dim, including splits of its results: one for each
// position at which the dim is divided.
std::vector<int64_t> parts_of(const Tensor& split, const Splits& splits) {
  std::vector<int64_t> out;
  // A dim of `tensor` of which each index spans `within` elements of the original dim.
  struct Part {
    const Tensor* tensor;
    int dim;
    int64_t within;
  };
  std::vector<Part> open;
  const auto cut = [&](const Tensor& t, int dim, int64_t within) {
    const Expr inner = t.shape[dim + 1];
    if (!inner->is_constant() || inner->value.integer <= 0) return;
    int64_t behind = 0;
    if (__builtin_mul_overflow(within, inner->value.integer, &behind)) return;
    out.push_back(behind);
    open.push_back({&t, dim + 1, within});
    open.push_back({&t, dim, behind});
  };
  cut(split, std::get<SplitDim>(split.definition).dim, 1);
  for (size_t i = 0; i < open.size() && out.size() < most_parts; ++i) {
    const Part part = open[i];
    const auto [begin, end] = splits.equal_range({part.tensor, part.dim});
    for (auto it = begin; it != end; ++it) cut(*it->second, part.dim, part.within);
  }
  return out;
}

// By tensor: bit set of the dims along which it is a concatenation with constant bounds.
std::vector<uint64_t> joined_dims(const Fusion& fusion) {
  std::vector<uint64_t> joined(fusion.tensors.size(), 0);
  for (const Tensor& t : fusion.tensors) {
    if (ir::library_call(t) || std::holds_alternative<Reduction>(t.definition)) continue;
    const auto* cat = std::get_if<Cat>(&t.definition);
    for (const Tensor* a : ir::operands(t)) {
      if (!joined[a->id]) continue;
      const std::vector<int> image = Dims::dims_of(t, a);
      for (int d = 0; d < a->rank(); ++d)
        if (image[d] >= 0 && (joined[a->id] >> d & 1)) joined[t.id] |= uint64_t{1} << image[d];
    }
    const bool known = cat && std::all_of(cat->args.begin(), cat->args.end(), [&](const Tensor* a) {
                         return a->shape[cat->dim]->is_constant();
                       });
    if (known && cat->args.size() > 1) joined[t.id] |= uint64_t{1} << cat->dim;
  }
  return joined;
}

// By tensor: extent of a reduction over a concatenated dim if it is at most 8, else 0. A small
// reduction (the mean of a stack) is unrolled, so that no select is evaluated per element. If the
// concatenated tensor is an output too, no reduction is unrolled, because a loop then has all of
// its elements anyway.
std::vector<int> in_parts(const Fusion& fusion) {
  constexpr int64_t most = 8;  // no kernel computes a tensor at more coordinates
  std::vector<int> out(fusion.tensors.size(), 0);
  const std::vector<uint64_t> joined = joined_dims(fusion);
  for (const Output& o : fusion.outputs)
    if (joined[o.tensor->id]) return out;
  for (const Tensor& t : fusion.tensors) {
    const auto* d = std::get_if<Reduction>(&t.definition);
    if (!d || !row(d->op).pair) continue;
    int64_t count = 1;
    bool along = false;
    for (int64_t dim : d->dims) {
      const Expr extent = d->arg->shape[dim];
      const int64_t size = extent->is_constant() ? extent->value.integer : 0;
      count = size > 0 && count <= most ? count * size : most + 1;
      along = along || (joined[d->arg->id] >> dim & 1);
    }
    if (along && count <= most) out[t.id] = static_cast<int>(count);
  }
  return out;
}

}  // namespace

FusionGraph make_fusion_graph(const Fusion& fusion) {
  const size_t tensors = fusion.tensors.size();
  FusionGraph graph{.fusion = &fusion,
                    .absorbed = contract(fusion),
                    .narrow = demanded_narrow(fusion),
                    .component = components(fusion),
                    .same = std::vector<const Tensor*>(tensors),
                    .parts = in_parts(fusion),
                    .reduces = std::vector<bool>(tensors, false),
                    .waits = std::vector<bool>(tensors, false),
                    .cost = std::vector<int>(tensors, 0),
                    .axis_sources = {},
                    .split_factors = {}};
  for (const Tensor& t : fusion.tensors) {
    graph.same[t.id] = &t;
    graph.reduces[t.id] = std::holds_alternative<Reduction>(t.definition) && !graph.parts[t.id];
    for (const Tensor* a : ir::operands(t))
      graph.reduces[t.id] = graph.reduces[t.id] || graph.reduces[a->id];
    graph.waits[t.id] = graph.reduces[t.id] || std::holds_alternative<Library>(t.definition);
    if (!std::holds_alternative<Library>(t.definition)) graph.cost[t.id] = 1;
    for (const Tensor* a : ir::operands(t)) {
      graph.waits[t.id] = graph.waits[t.id] || graph.waits[a->id];
      const int times = std::max(1, graph.parts[t.id]);
      graph.cost[t.id] = std::min(graph.cost[t.id] + times * graph.cost[a->id], max_values);
    }
    graph.plain = graph.plain && !graph.waits[t.id] && keeps_places(t);
  }
  if (graph.plain) return graph;
  std::map<std::vector<uint64_t>, const Tensor*> first;
  for (const Tensor& t : fusion.tensors)
    graph.same[t.id] = first.try_emplace(definition_key(t, graph.same), &t).first->second;
  graph.split_factors.resize(tensors);
  graph.axis_sources.resize(tensors);
  Dims dims{.graph = graph, .exprs = {}};
  dims.set_all_factors();
  for (const Tensor& t : fusion.tensors) dims.set_axis_sources(t);
  return graph;
}

std::vector<Nesting> open_nestings(Fusion& fusion) {
  std::vector<Nesting> out;
  const auto size_is = [](Expr size, Expr is) -> Nesting {
    return {.known = Nesting::Size{.input = size->a, .dim = size->b, .is = is},
            .left = size,
            .right = is};
  };
  Splits splits;
  for (const Tensor& t : fusion.tensors)
    if (const auto* d = std::get_if<SplitDim>(&t.definition))
      splits.insert({{d->arg, static_cast<int>(d->dim)}, &t});
  // Equal products: compare them factor by factor.
  for (const Constraint& c : fusion.constraints) {
    const std::vector<Expr> left = factors(c.left), right = factors(c.right);
    for (size_t i = 0; i < left.size() && left.size() == right.size() && left.size() > 1; ++i)
      if (left[i] != right[i] && left[i]->is_symbol(Symbol::Size) &&
          right[i]->is_symbol(Symbol::Size)) {
        const auto [first, second] = std::minmax(left[i], right[i], [](Expr x, Expr y) {
          return std::pair(x->a, x->b) < std::pair(y->a, y->b);
        });
        out.push_back(size_is(second, first));
      }
  }
  if (splits.empty()) return out;
  FusionGraph graph{.fusion = &fusion};
  graph.split_factors.resize(fusion.tensors.size());
  Dims dims{.graph = graph, .exprs = {}};
  for (const Tensor& t : fusion.tensors) {
    dims.set_factors(t);
    const auto* d = std::get_if<SplitDim>(&t.definition);
    if (!d || dims.nests(t, *d)) continue;
    const std::vector<Expr>& merged = graph.split_factors[d->arg->id][d->dim];
    const auto product = [&](size_t from, size_t to) {
      Expr size = fusion.exprs.constant(1);
      for (size_t i = from; i < to; ++i) size = fusion.exprs.mul(size, merged[i]);
      return size;
    };
    const Expr given = t.shape[d->dim + 1];
    const std::vector<int64_t> constants = parts_of(t, splits);
    for (size_t i = 1; i < merged.size(); ++i) {
      const Expr inner = product(i, merged.size());
      if (!inner->is_constant() || !given->is_constant())
        out.push_back(
            {.known = Nesting::Parts{.tensor = t.id, .outer = product(0, i), .inner = inner},
             .left = inner,
             .right = given});
      // A factor of a merged dim, if all factors inside of it are constants.
      const Expr within = product(i + 1, merged.size());
      if (!merged[i]->is_symbol(Symbol::Size) || !within->is_constant()) continue;
      const int64_t elements = std::max<int64_t>(1, within->value.integer);
      for (int64_t part : constants)
        if (part % elements == 0)
          out.push_back(size_is(merged[i], fusion.exprs.constant(part / elements)));
    }
  }
  return out;
}

}  // namespace fuser::fusion
