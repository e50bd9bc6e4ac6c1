// Broadcasts: decides whether a value over fewer axes than its kernel is materialized. The kernel
// computes such a value again for each element along the missing axes, e.g. a position bias of
// attention for each image. Another kernel stores the value once if that costs less. Values that
// are computed once per row are cheap already.
#include <algorithm>
#include <bit>

#include "cost/model.h"
#include "fusion/kernel/reduction_phases.h"
#include "fusion/segment/issue_slots.h"
#include "fusion/segment/materialize.h"

namespace fuser::fusion {

using namespace ir;
using namespace cost::broadcasts;

namespace {

struct Broadcasts {
  KernelBuilder& group;
  const Tensor* root;
  const std::vector<Value>& values = group.refined().values;
  const AxisSet all = used_axes(values);
  AxisSet inner = 0;  // axes of the loops of a thread: reduced axes, else the innermost axes
  std::vector<uint64_t> phases = std::vector<uint64_t>(values.size(), 0);  // loops that compute it
  std::vector<bool> waits = std::vector<bool>(values.size(), false);
  // Issue slots without CSE; capped, because the cost of a chain grows exponentially.
  std::vector<double> cone = std::vector<double>(values.size(), 0.0);

  bool is_computed(size_t v) const {
    return std::holds_alternative<Apply>(values[v].how) ||
           std::holds_alternative<Convert>(values[v].how) ||
           std::holds_alternative<Select>(values[v].how);
  }
  // Returns whether the loops of a thread compute the value again along missing axes.
  bool is_repeated(size_t v) const {
    return values[v].axes != all && (values[v].axes & inner) && !waits[v];
  }
  double total(size_t v) const { return std::popcount(phases[v]) * slots(values[v]); }

  void prepare() {
    constexpr double most = 1e6;
    for (const Value& v : values)
      if (const auto* r = std::get_if<Reduced>(&v.how)) inner |= r->over;
    if (!inner)
      for (Expr e : group.refined().stores[0].at)
        if (const AxisSet axes = axes_of({e})) inner = axes;
    for (size_t v = 0; v < values.size(); ++v) {
      waits[v] = std::holds_alternative<Reduced>(values[v].how);
      cone[v] = is_computed(v) ? slots(values[v]) : 0.0;
      visit_operands(values[v], [&](ValueId a) {
        waits[v] = waits[v] || waits[a];
        cone[v] = std::min(cone[v] + cone[a], most);
      });
    }
    std::vector<bool> stored(values.size(), false);
    for (const Store& s : group.refined().stores) stored[s.access.value] = true;
    const PhaseUse needed = phase_use(
        {.values = values, .all = all, .begin = 0, .end = values.size(), .stores = [&](size_t v) {
           return stored[v];
         }});
    for (size_t v = values.size(); v-- > 0;) {
      if (is_per_element(values[v], all) || stored[v]) phases[v] |= needed.phases[v];
      if (phases[v] && (is_per_element(values[v], all) || is_repeated(v)))
        visit_operands(values[v], [&](ValueId a) { phases[a] |= phases[v]; });
    }
  }

  // Returns the values, by tensor, that meet more axes and cost more than their bytes.
  std::vector<size_t> frontier() {
    std::vector<bool> meets(values.size(), false);  // True if a user varies over more axes
    std::vector<size_t> out;
    for (size_t v = values.size(); v-- > 0;) {
      const bool here = meets[v] && is_repeated(v) && is_computed(v);
      const bool storable =
          values[v].tensor && values[v].tensor != root && group.is_whole(static_cast<ValueId>(v));
      if (here && storable) {
        const double bytes = shared_byte * size_of(values[v].dtype);
        if (cone[v] * std::popcount(phases[v]) > cost::time_of(bytes, 0.0)) out.push_back(v);
        continue;
      }
      visit_operands(values[v], [&](size_t a) {
        if (here || values[a].axes != values[v].axes ||
            std::holds_alternative<Reduced>(values[v].how))
          meets[a] = true;
      });
    }
    return out;
  }

  static double time(const cost::Work& work) { return cost::time_of(work.bytes, work.slots); }

  // Returns the time of the kernel per element, and the time if it reads the values `stored`.
  std::pair<double, double> times(const std::vector<size_t>& stored) const {
    std::vector<bool> is_stored(values.size(), false), needed(values.size(), false);
    for (size_t v : stored) is_stored[v] = true;
    cost::Work whole, rest, aside;  // `aside`: the kernel that stores them, per element of its own
    for (const Store& s : group.refined().stores) {
      needed[s.access.value] = true;
      if (values[s.access.value].axes == all) whole.bytes += size_of(values[s.access.value].dtype);
    }
    for (size_t v = values.size(); v-- > 0;) {
      const double size = size_of(values[v].dtype);
      if (std::holds_alternative<Read>(values[v].how) && (values[v].axes & inner))
        whole.bytes += values[v].axes == all ? size : shared_byte * size;
      if (is_stored[v]) aside.bytes += size;
      if (needed[v] && !is_stored[v])
        visit_operands(values[v], [&](ValueId a) { needed[a] = true; });
      if (!is_per_element(values[v], all) && !is_repeated(v)) continue;
      whole.slots += total(v);
      if (needed[v] && !is_stored[v])
        rest.slots += total(v);
      else
        aside.slots += slots(values[v]);
    }
    rest.bytes = whole.bytes + shared_byte * aside.bytes;
    return {time(whole), time(rest) + time(aside) / least_shared};
  }
};

}  // namespace

std::vector<const Tensor*> costly_broadcasts(KernelBuilder& group, const Tensor* root) {
  for (const Store& s : group.refined().stores)
    if (s.access.value < 0) return {};  // it was rejected
  Broadcasts of{.group = group, .root = root};
  of.prepare();
  const std::vector<size_t> stored = of.frontier();
  if (stored.empty()) return {};
  const auto [was, is] = of.times(stored);
  std::vector<const Tensor*> out;
  if (was - is < least_gain * was) return out;
  for (size_t v : stored) out.push_back(of.values[v].tensor);
  std::sort(out.begin(), out.end(), [](const Tensor* a, const Tensor* b) { return a->id < b->id; });
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::vector<bool> may_repeat(const FusionGraph& graph) {
  // A float of 4 bytes: a cheaper value is never materialized.
  const int least = static_cast<int>(cost::time_of(shared_byte * 4, 0.0));
  const Fusion& fusion = *graph.fusion;
  std::vector<int> cost(fusion.tensors.size(), 0);
  std::vector<bool> out(fusion.tensors.size(), false);
  for (const Tensor& t : fusion.tensors) {
    if (graph.waits[t.id]) continue;
    if (const auto* p = std::get_if<Pointwise>(&t.definition)) cost[t.id] = row(p->op).cost;
    for (const Tensor* a : ir::operands(t)) {
      cost[t.id] = std::min(cost[t.id] + cost[a->id], 1 << 20);
      const auto differ = [](Expr x, Expr y) { return x != y && x->is_constant(1); };
      const bool grows =
          a->rank() < t.rank() ||
          (a->rank() == t.rank() && !std::equal(a->shape.begin(), a->shape.end(), t.shape.begin(),
                                                [&](Expr x, Expr y) { return !differ(x, y); }));
      out[t.id] = out[t.id] || out[a->id] || (grows && cost[a->id] > least);
    }
  }
  return out;
}

}  // namespace fuser::fusion
