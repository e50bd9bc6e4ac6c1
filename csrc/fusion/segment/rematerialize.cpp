// Rematerialization: decides whether values that a kernel and its predecessors both need are
// computed in both or materialized. A kernel reads statistics that a predecessor computed by a loop
// over values that the kernel needs too. These values are computed in both if that is cheap
// compared with the bytes that move anyway. Else they are stored once and read.
#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "cost/model.h"
#include "fusion/index/kernel_builder.h"
#include "fusion/kernel/reduction_phases.h"
#include "fusion/segment/issue_slots.h"
#include "fusion/segment/materialize.h"

namespace fuser::fusion {

using namespace ir;
using namespace cost::rematerialize;

namespace {

// A kernel of the values before `end`, some of which it stores. A kernel holds max_values at most,
// so values before `begin` are computed by another kernel and read.
struct Kernel {
  size_t end = 0;
  size_t begin = end - std::min(end, static_cast<size_t>(max_values));
  std::vector<bool> stored = std::vector<bool>(end - begin, false);  // by value, from `begin`

  bool stores(size_t v) const { return stored[v - begin]; }
};

// Work per element of a kernel's iteration space: bytes read and stored, issue slots.
struct Work {
  double read = 0.0, stored = 0.0, slots = 0.0;
  double time() const { return cost::time_of(read + stored, slots); }
};

// Issue slots of values, in total and by reduction loop. A kernel keeps the rows that it reads, and
// computes all other values again in each loop that needs them.
struct Slots {
  double once = 0.0;
  std::array<double, max_phases> by_phase{};

  void add(double slots, uint64_t phases) {
    once += slots;
    for (; phases; phases &= phases - 1) by_phase[std::countr_zero(phases)] += slots;
  }
  double until(int phase) const {
    return std::accumulate(by_phase.begin(), by_phase.begin() + phase + 1, 0.0);
  }
  double all() const { return until(max_phases - 1); }
};

// Values that are live after a cut, in bytes per element.
struct Live {
  double bytes = 0.0, computed = 0.0;  // of all values; of values that are not in memory yet
  double results = 0.0;                // of computed values, the bytes that are stored in any case
  int impossible = 0;                  // number of values that cannot be materialized

  void add(const Live& other, int sign) {
    bytes += sign * other.bytes;
    computed += sign * other.computed;
    results += sign * other.results;
    impossible += sign * other.impossible;
  }
};

struct Rematerialized {
  const FusionGraph& graph;
  KernelBuilder& group;
  const std::vector<bool>& in_memory;  // by tensor: True if every kernel reads it from memory
  const std::set<int>& results;        // tensors that are stored in any case
  const Tensor* root;
  const std::vector<Value>& values = group.refined().values;
  const AxisSet all = used_axes(values);
  std::vector<bool> waits{};  // by value: True if it depends on a reduction of this kernel
  // By value: id of the last temporary that it depends on; id of the last temporary that the
  // reductions of this kernel before it depend on; -1 if there is no temporary.
  std::vector<int> given{}, given_before{};
  // By value: cached result of is_whole(), which consecutive kernels query repeatedly.
  std::vector<std::optional<bool>> known_whole{};

  void prepare() {
    waits.assign(values.size(), false);
    given.assign(values.size(), -1);
    given_before = given;
    known_whole.resize(values.size());
    for (size_t v = 0; v < values.size(); ++v) {
      visit_operands(values[v], [&](ValueId a) {
        waits[v] = waits[v] || waits[a];
        given[v] = std::max(given[v], given[a]);
        given_before[v] = std::max(given_before[v], given_before[a]);
      });
      if (is_handed_over(v)) given[v] = std::max(given[v], values[v].tensor->id);
      if (!std::holds_alternative<Reduced>(values[v].how)) continue;
      waits[v] = true;
      given_before[v] = given[v];
    }
  }

  // Returns whether the value is a statistic that another kernel computes over the axes of this
  // kernel.
  bool is_handed_over(size_t v) const {
    const Tensor* t = values[v].tensor;
    return is_read(v) && !is_full(v) && !in_memory[t->id] &&
           !std::holds_alternative<Input>(t->definition);
  }

  bool is_read(size_t v) const { return std::holds_alternative<Read>(values[v].how); }
  bool is_full(size_t v) const { return values[v].axes == all; }
  bool is_per_element(size_t v) const { return fusion::is_per_element(values[v], all); }

  bool is_whole(size_t v) {
    if (!known_whole[v]) known_whole[v] = group.is_whole(static_cast<ValueId>(v));
    return *known_whole[v];
  }

  // Calls visit(a) for the operands of a value that the kernel holds.
  template <class Visit>
  void visit_inside(const Kernel& kernel, size_t v, const Visit& visit) const {
    visit_operands(values[v], [&](size_t a) {
      if (a >= kernel.begin) visit(a);
    });
  }

  // By value of the kernel: True if the kernels that compute its temporaries depend on it.
  std::vector<bool> shared(const Kernel& kernel) const {
    std::map<int, std::vector<size_t>> here;  // by tensor
    std::vector<const Tensor*> open;
    for (size_t v = kernel.begin; v < kernel.end; ++v) {
      visit_operands(values[v], [&](size_t a) {
        if (a < kernel.begin && is_handed_over(a)) open.push_back(values[a].tensor);
      });
      const Tensor* t = values[v].tensor;
      if (!t) continue;
      if (is_handed_over(v))
        open.push_back(t);
      else
        here[t->id].push_back(v);
    }
    std::vector<bool> out(kernel.end - kernel.begin, false);
    std::set<int> seen;
    // Values farther back than a kernel holds are computed by yet another kernel.
    while (!open.empty() && static_cast<int>(seen.size()) < max_values) {
      const Tensor* t = open.back();
      open.pop_back();
      for (const Tensor* operand : ir::operands(*t)) {
        const Tensor* a = graph.same[operand->id];
        if (!seen.insert(a->id).second) continue;
        if (const auto it = here.find(a->id); it != here.end())
          for (size_t v : it->second) out[v - kernel.begin] = true;
        else if (!in_memory[a->id])
          open.push_back(a);
      }
    }
    for (size_t v = kernel.end; v-- > kernel.begin;)
      if (out[v - kernel.begin])
        visit_inside(kernel, v, [&](size_t a) { out[a - kernel.begin] = true; });
    return out;
  }

  // By value: its last user in the kernel, or the kernel's end if a user is not shared or it is
  // stored.
  std::vector<size_t> last_uses(const Kernel& kernel, const std::vector<bool>& shared) const {
    std::vector<size_t> last(shared.size());
    std::iota(last.begin(), last.end(), kernel.begin);
    for (size_t v = kernel.begin; v < kernel.end; ++v) {
      const size_t at = shared[v - kernel.begin] ? v : kernel.end;
      visit_inside(kernel, v, [&](size_t a) {
        last[a - kernel.begin] = std::max(last[a - kernel.begin], at);
      });
      if (kernel.stores(v)) last[v - kernel.begin] = kernel.end;
    }
    return last;
  }

  Live live(size_t v) {
    Live out{.bytes = is_full(v) ? static_cast<double>(size_of(values[v].dtype)) : 0.0};
    if (is_read(v)) return out;
    const Tensor* t = values[v].tensor;
    out.computed = out.bytes;
    // A value that directly depends on a statistic would be computed by a later kernel, not by the
    // kernel that computes both.
    out.impossible = !t || t == root || given[v] > given_before[v] || !is_whole(v);
    if (t && results.count(t->id)) out.results = out.bytes;
    return out;
  }

  // Returns the bytes read or stored per element.
  double bytes(const Kernel& kernel, size_t v) const {
    return is_read(v) || kernel.stores(v) ? size_of(values[v].dtype) : 0.0;
  }

  // Properties of the values of a kernel, by value from its first.
  struct Shape {
    std::vector<bool> member;  // True if it may be materialized; small values stay in each kernel
    std::vector<size_t> last;  // last_uses()
    PhaseUse needed;
  };
  Shape shape_of(const Kernel& kernel) const {
    Shape out{.member = shared(kernel)};
    out.last = last_uses(kernel, out.member);
    for (size_t v = kernel.begin; v < kernel.end; ++v)
      if (!is_per_element(v) && !waits[v]) out.member[v - kernel.begin] = false;
    out.needed = phase_use({.values = values,
                            .all = all,
                            .begin = kernel.begin,
                            .end = kernel.end,
                            .stores = [&](size_t v) { return kernel.stores(v); }});
    return out;
  }

  // Returns the time saved if one kernel materializes the values that are live after a cut and
  // other kernels read them: this kernel, the kernel before it that computes them too, and, if they
  // depend on a reduction of this kernel (`waited`), a kernel that computes that reduction.
  static double gain(const Work& whole, double read, const Slots& before, const Live& live,
                     int phase, bool waited) {
    const Work again{.read = read, .stored = live.results, .slots = before.once};
    const double other = waited ? Work{.read = read, .slots = before.once}.time() : 0.0;
    const double was = whole.time() + again.time() + other;
    const Work rest{.read = whole.read - read + live.bytes,
                    .stored = whole.stored,
                    .slots = whole.slots - before.all()};
    const Work storing{.read = read, .stored = live.computed, .slots = before.until(phase)};
    const double is = rest.time() + cost::time_of(live.bytes, 0.0) + storing.time();
    return was - is > least_gain * was ? was - is : 0.0;
  }

  // Returns the value after which a cut saves the most time; the kernel's end if no cut saves time.
  size_t best_cut(const Kernel& kernel, const Shape& shape) {
    Slots all_slots;
    Work whole;
    const size_t count = kernel.end - kernel.begin;
    std::vector<Live> begins(count + 1), ends(count + 1);
    for (size_t i = 0; i < count; ++i) {
      const size_t v = kernel.begin + i;
      if (is_per_element(v)) all_slots.add(slots(values[v]), shape.needed.phases[i]);
      if (is_full(v)) (is_read(v) ? whole.read : whole.stored) += bytes(kernel, v);
      if (!shape.member[i] || shape.last[i] == v) continue;
      begins[i] = live(v);
      begins[i].impossible |= kernel.stores(v);
      ends[shape.last[i] - kernel.begin].add(begins[i], 1);
    }
    whole.slots = all_slots.all();
    double read = 0.0, most = 0.0;
    Slots before;
    Live now;
    bool waited = false;
    size_t best = kernel.end;
    for (size_t i = 0; i < count; ++i) {
      const size_t v = kernel.begin + i;
      now.add(ends[i], -1);
      now.add(begins[i], 1);
      if (!shape.member[i]) continue;
      if (is_per_element(v)) before.add(slots(values[v]), shape.needed.phases[i]);
      if (is_full(v) && is_read(v)) read += bytes(kernel, v);
      waited = waited || waits[v];
      if (now.impossible || now.computed == 0.0) continue;
      const double saved = gain(whole, read, before, now, shape.needed.first[i], waited);
      if (saved <= most) continue;
      most = saved;
      best = v;
    }
    return best;
  }

  // Returns the results of reductions of the kernel that the kernels of its temporaries compute
  // too.
  std::vector<const Tensor*> shared_reductions(const Kernel& kernel) {
    const std::vector<bool> in_others = shared(kernel);
    std::vector<const Tensor*> out;
    std::vector<bool> used(kernel.end - kernel.begin, false);  // by value, except by projections
    for (size_t v = kernel.end; v-- > kernel.begin;) {
      const bool projects = std::holds_alternative<Project>(values[v].how);
      if (!projects) visit_inside(kernel, v, [&](size_t a) { used[a - kernel.begin] = true; });
      const Tensor* t = values[v].tensor;
      if ((projects || std::holds_alternative<Reduced>(values[v].how)) && used[v - kernel.begin] &&
          in_others[v - kernel.begin] && t && t != root && is_whole(v))
        out.push_back(t);
    }
    return out;
  }

  // Returns the tensors that the kernel should read, at the best cut; empty if no cut saves time.
  // `kernel` becomes the kernel that stores them.
  std::vector<const Tensor*> cut(Kernel& kernel) {
    const Shape shape = shape_of(kernel);
    const size_t best = best_cut(kernel, shape);
    std::vector<const Tensor*> out;
    if (best == kernel.end) return out;
    Kernel storing{.end = best + 1};
    for (size_t v = kernel.begin; v <= best; ++v) {
      const size_t i = v - kernel.begin;
      if (!shape.member[i] || shape.last[i] <= best || is_read(v)) continue;
      storing.stored[v - storing.begin] = true;
      out.push_back(values[v].tensor);
    }
    kernel = std::move(storing);
    return out;
  }
};

}  // namespace

std::vector<std::vector<const Tensor*>> worth_materializing(const FusionGraph& graph,
                                                            KernelBuilder& group,
                                                            const std::vector<bool>& in_memory,
                                                            const std::set<int>& results,
                                                            const Tensor* root) {
  Rematerialized of{
      .graph = graph, .group = group, .in_memory = in_memory, .results = results, .root = root};
  of.prepare();
  Kernel kernel{.end = of.values.size()};
  for (const Store& s : group.refined().stores)
    if (const auto v = static_cast<size_t>(s.access.value); v >= kernel.begin)
      kernel.stored[v - kernel.begin] = true;
  // The kernel that stores them may benefit from a cut itself. Finding these cuts here avoids
  // computing the values of all kernels again.
  std::vector<std::vector<const Tensor*>> out;
  while (true) {
    std::vector<const Tensor*> more = of.cut(kernel);
    if (more.empty()) return out;
    out.push_back(std::move(more));
  }
}

std::vector<const Tensor*> shared_reductions(const FusionGraph& graph, KernelBuilder& group,
                                             const std::vector<bool>& in_memory,
                                             const Tensor* root) {
  const std::set<int> none;
  Rematerialized of{
      .graph = graph, .group = group, .in_memory = in_memory, .results = none, .root = root};
  of.prepare();
  return to_materialize(group, of.shared_reductions({.end = of.values.size()}), root);
}

}  // namespace fuser::fusion
