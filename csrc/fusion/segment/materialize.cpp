#include "fusion/segment/materialize.h"

#include <algorithm>

#include "base/error.h"
#include "fusion/kernel/reduction_phases.h"

namespace fuser::fusion {

using namespace ir;

namespace {

// Returns whether the range has at most 1/part of the values of a kernel, and no more statements
// and issue slots than a kernel. Both count once per reduction loop that computes them.
bool fits(const ValueRange& range, int part) {
  if (static_cast<int>(range.end - range.begin) > max_values / part) return false;
  const TextSize size = text_size(range);
  return size.statements <= max_values && size.slots <= max_slots;
}

// Returns the cost of materializing a value: its bytes, weighted by the number of axes it varies
// over.
int64_t handing_over(const Value& value, const Tensor* root) {
  if (!value.tensor || value.tensor == root) return int64_t{1} << 45;  // cannot be materialized
  constexpr int64_t more_axes = 1 << 10;
  int64_t cost = size_of(value.dtype);
  for (int a = std::min(__builtin_popcountll(value.axes), 3); a > 0; --a) cost *= more_axes;
  return cost;
}

// Splits a kernel into ranges of its values.
struct Cutter {
  const KernelBuilder& group;
  const Tensor* root = nullptr;
  int part = 1;  // a range may take 1/part of a kernel
  const std::vector<Value>& values = group.refined().values;
  size_t count = values.size();
  std::vector<size_t> last = std::vector<size_t>(count, 0);  // by value: its last user
  size_t ranges = 0;
  size_t room = 0;  // distance that a cut may move to either side

  bool is_materialized(size_t v) const {
    return last[v] > v && !std::holds_alternative<Read>(values[v].how) &&
           !std::holds_alternative<Splat>(values[v].how);
  }

  // Position of a cut that has not moved.
  size_t middle(size_t materialized) const { return materialized * count / ranges; }

  // Cost of a cut before each value: the cost of the values that are live there.
  std::vector<int64_t> costs() const {
    std::vector<int64_t> cost(count + 1, 0);
    for (size_t v = 0; v < count; ++v) {
      if (!is_materialized(v)) continue;
      const int64_t own = handing_over(values[v], root);
      cost[v + 1] += own;
      cost[last[v] + 1] -= own;
    }
    for (size_t at = 1; at <= count; ++at) cost[at] += cost[at - 1];
    return cost;
  }

  bool all_fit(AxisSet all) const {
    for (size_t i = 0; i < ranges; ++i) {
      const size_t end = i + 1 < ranges ? middle(i + 1) + room : count;
      const ValueRange range{.values = values,
                             .all = all,
                             .begin = i ? middle(i) - room : 0,
                             .end = end,
                             .stores = [&](size_t v) { return last[v] >= end || last[v] <= v; }};
      if (!fits(range, part)) return false;
    }
    return true;
  }

  void choose_ranges() {
    // Ranges of three quarters of the limit leave the cuts some room to move.
    const auto ranges_of = [&](size_t have, int hold) {
      const size_t three = 3 * static_cast<size_t>(hold / part);
      return (4 * have + three - 1) / three;
    };
    ranges = std::max({size_t{2}, ranges_of(count, max_values),
                       ranges_of(static_cast<size_t>(group.reads_and_stores()), max_buffers)});
    // The more dependent reductions a range has, the more loops it has, each with statements of its
    // own. The length that fits is found by trying.
    const AxisSet all = used_axes(values);
    for (;; ranges += ranges / 4 + 1) {
      const size_t length = count / ranges, least = length / 8;
      for (room = length / 2; room > least && !all_fit(all);) room = std::max(room / 2, least);
      if (length <= 1 || all_fit(all)) break;
    }
  }

  // Returns the position of each cut with the lowest cost.
  std::vector<size_t> cuts() const {
    const std::vector<int64_t> cost = costs();
    std::vector<size_t> out;
    for (size_t i = 1; i < ranges; ++i) {
      // Cut only after a value that can be materialized: a cut between reads would materialize
      // nothing.
      size_t best = 0;
      for (size_t at = std::max<size_t>(1, middle(i) - room);
           at < std::min(count, middle(i) + room + 1); ++at)
        if (is_materialized(at - 1) && (!best || cost[at] < cost[best])) best = at;
      if (best && (out.empty() || out.back() < best)) out.push_back(best);
    }
    return out;
  }

  std::vector<const Tensor*> materialized() {
    for (size_t v = 0; v < count; ++v) visit_operands(values[v], [&](ValueId a) { last[a] = v; });
    choose_ranges();
    const std::vector<size_t> at = cuts();
    std::vector<const Tensor*> out;
    for (size_t v = 0; v < count; ++v) {
      if (!is_materialized(v) || !values[v].tensor || values[v].tensor == root) continue;
      const auto behind = std::upper_bound(at.begin(), at.end(), v);
      if (behind != at.end() && *behind <= last[v]) out.push_back(values[v].tensor);
    }
    return out;
  }
};

}  // namespace

bool fits(const KernelBuilder& group, int part) {
  const Refined& r = group.refined();
  std::vector<bool> stored(r.values.size(), false);
  for (const Store& s : r.stores)
    if (s.access.value >= 0) stored[s.access.value] = true;  // else it was rejected
  const ValueRange whole{.values = r.values,
                         .all = used_axes(r.values),
                         .end = r.values.size(),
                         .stores = [&](size_t v) { return stored[v]; }};
  return fits(whole, part) && group.reads_and_stores() <= max_buffers / part;
}

std::vector<const Tensor*> to_materialize(const KernelBuilder& group,
                                          const std::vector<const Tensor*>& refused,
                                          const Tensor* root) {
  const Refined& r = group.refined();
  const std::vector<uint8_t> fed = fed_by(r, reduced_sets(r));
  std::vector<std::vector<ValueId>> users(r.values.size());
  for (size_t v = 0; v < r.values.size(); ++v)
    visit_operands(r.values[v], [&](ValueId a) {
      if (users[a].empty() || users[a].back() != static_cast<ValueId>(v))
        users[a].push_back(static_cast<ValueId>(v));
    });
  const auto sizes = [](const Tensor* x) {
    std::vector<Expr> out;
    for (Expr e : x->shape)
      if (!e->is_constant(1)) out.push_back(e);
    std::sort(out.begin(), out.end(), [](Expr a, Expr b) { return a->id < b->id; });
    return out;
  };
  std::vector<const Tensor*> out;
  for (const Tensor* t : refused) {
    const Tensor* best = t;
    const std::vector<Expr> size = sizes(t);
    ValueId at = group.value_of(t);
    while (users[at].size() == 1) {
      const ValueId user = users[at][0];
      const Value& value = r.values[user];
      if (!std::holds_alternative<Apply>(value.how) && !std::holds_alternative<Convert>(value.how))
        break;
      uint8_t others = 0;
      visit_operands(value, [&](ValueId a) {
        if (a != at) others |= fed[a];
      });
      if (others || (value.tensor && (value.tensor == root || sizes(value.tensor) != size))) break;
      if (value.tensor && size_of(value.tensor->dtype) <= size_of(best->dtype)) best = value.tensor;
      at = user;
    }
    out.push_back(best);
  }
  return out;
}

std::vector<const Tensor*> dead_reductions(const Refined& r) {
  std::vector<bool> live(r.values.size(), false);
  for (const Store& s : r.stores) live[s.access.value] = true;
  std::vector<const Tensor*> out;
  for (size_t v = live.size(); v-- > 0;) {
    if (live[v]) visit_operands(r.values[v], [&](ValueId a) { live[a] = true; });
    if (!live[v] && std::holds_alternative<Reduced>(r.values[v].how))
      out.push_back(r.values[v].tensor);
  }
  return out;
}

std::vector<const Tensor*> incompatible_reductions(const KernelBuilder& group) {
  const Refined& r = group.refined();
  if (reduction_sets(r)) return {};
  const std::vector<AxisSet> overs = reduced_sets(r);
  FUSER_ASSERT(overs.size() == 2, "an output alone reduces ", overs.size(),
               " sets of axes, expected 2");
  const std::vector<uint8_t> fed = fed_by(r, overs);
  const Store& store = r.stores[0];
  const uint8_t nearest = fed[store.access.value];
  size_t away = nearest == 1 ? 1 : 0;
  if (nearest == 3) {
    bool feeds[2] = {false, false};  // by set: True if it feeds the other set
    for (const Value& v : r.values)
      if (const auto* reduced = std::get_if<Reduced>(&v.how))
        for (size_t s = 0; s < 2; ++s)
          feeds[s] |= reduced->over != overs[s] && (fed_operands(v, fed) >> s & 1);
    AxisSet innermost = 0;
    for (Expr e : store.at)
      if (axes_of({e})) innermost = axes_of({e});
    away = feeds[0] != feeds[1] ? (feeds[0] ? 0 : 1) : (overs[0] & innermost) ? 1 : 0;
  }
  std::vector<const Tensor*> out;
  std::vector<bool> seen(r.values.size(), false);
  std::vector<ValueId> open{store.access.value};
  while (!open.empty()) {
    const ValueId v = open.back();
    open.pop_back();
    if (seen[v]) continue;
    seen[v] = true;
    const Value& value = r.values[v];
    const auto* project = std::get_if<Project>(&value.how);
    const auto* reduced =
        std::get_if<Reduced>(project ? &r.values[project->reduced].how : &value.how);
    if (reduced && reduced->over == overs[away])
      out.push_back(value.tensor);
    else
      visit_operands(value, [&](ValueId a) { open.push_back(a); });
  }
  return out;
}

std::vector<const Tensor*> over_budget(const KernelBuilder& group, const Tensor* root, int part) {
  if (fits(group, part)) return {};
  return Cutter{.group = group, .root = root, .part = part}.materialized();
}

}  // namespace fuser::fusion
