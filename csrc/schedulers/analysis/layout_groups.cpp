#include "schedulers/analysis/layout_groups.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "cost/tuning.h"
#include "schedulers/analysis/collapse.h"

namespace fuser::schedulers {

using namespace fusion;
using namespace ir;
using namespace schedule;
using namespace cost::layout_groups;

namespace {

bool varies(const Problem& p, const MemoryAccess& a, AxisId axis) {
  return axes_of(p, a) >> axis & 1;
}

// Returns the two innermost axes with the most accessed bytes; nullopt if all accesses agree on
// one.
std::optional<std::array<AxisId, 2>> innermost_axes(const Problem& p) {
  std::vector<int> bytes(p.refined.axes.size(), 0);
  for (const MemoryAccess& a : p.accesses)
    if (const AxisId near = near_axis(a); near >= 0 && std::popcount(axes_of(p, a)) > 1)
      bytes[near] += size_of(a.dtype);
  const auto most = [&](AxisId without) {
    AxisId best = -1;
    for (size_t i = p.order.size(); i-- > 0;)
      if (const AxisId a = p.order[i]; a != without && bytes[a] > (best < 0 ? 0 : bytes[best]))
        best = a;
    return best;
  };
  const AxisId x = most(-1), y = most(x);
  if (y < 0) return std::nullopt;
  return std::array{x, y};
}

// By value: bit set of the groups that it is computed from.
std::vector<uint8_t> sources(const Problem& p, const std::vector<LayoutGroup>& group_of_access) {
  std::vector<uint8_t> from(p.refined.values.size(), 0);
  for (size_t i = 0; i < p.accesses.size(); ++i)
    if (!p.accesses[i].store) from[p.accesses[i].index] = bit_of(group_of_access[i]);
  for (size_t v = 0; v < from.size(); ++v)
    visit_operands(p.refined.values[v], [&](ValueId o) { from[v] |= from[o]; });
  return from;
}

// Returns the values of group `s` alone that stores of the other group depend on: the reads, or
// (`late`) the last values that depend on `s` alone.
std::vector<ValueId> staged_values(const Problem& p, const LayoutGroups& groups, LayoutGroup s,
                                   bool late) {
  const std::vector<Value>& values = p.refined.values;
  std::vector<bool> seen(values.size(), false), crosses(values.size(), false);
  for (size_t i = 0; i < p.accesses.size(); ++i)
    if (p.accesses[i].store && groups.of[i] == other(s))
      if (const ValueId v = stored_value(p, p.accesses[i]); v >= 0) seen[v] = true;
  for (size_t v = values.size(); v-- > 0;) {
    if (!seen[v] || !(groups.from[v] & bit_of(s))) continue;
    const bool read = std::holds_alternative<Read>(values[v].how);
    crosses[v] = read || (late && groups.from[v] == bit_of(s));
    if (!crosses[v]) visit_operands(values[v], [&](ValueId o) { seen[o] = true; });
  }
  std::vector<ValueId> out;
  for (size_t v = 0; v < values.size(); ++v)
    if (crosses[v]) out.push_back(static_cast<ValueId>(v));
  return out;
}

int bytes_of(const Problem& p, const std::vector<ValueId>& values) {
  int bytes = 0;
  for (ValueId v : values) bytes += size_of(p.refined.values[v].dtype);
  return bytes;
}

// Vector lengths of both groups: 16 bytes of the widest element, fewer if the loads of a thread
// would exceed its registers.
std::array<int, 2> vectors_of(const Problem& p, const LayoutGroups& groups) {
  std::array<int, 2> widest{1, 1}, loaded{0, 0};
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const LayoutGroup s = groups.of[i];
    if (s == None) continue;
    widest[s] = std::max(widest[s], size_of(p.accesses[i].dtype));
    if (!p.accesses[i].store) loaded[s] += size_of(p.accesses[i].dtype);
  }
  std::array<int, 2> v{};
  for (const LayoutGroup s : {X, Y}) v[s] = std::max(1, vector_bytes / widest[s]);
  const int bytes = std::max(loaded[X], loaded[Y]);
  // If both groups load, the loads of the second are in flight while values of the first are
  // staged.
  const bool both = loaded[X] && loaded[Y];
  const auto count =
      static_cast<int>(groups.staged_values[X].size() + groups.staged_values[Y].size());
  const int staged_values = std::max(count, both ? 2 : 1);
  const int bytes_staged = staged_bytes(p, groups) * staged_values / std::max(1, count);
  const auto fits = [&](int elements) {
    return (staged_values * elements <= turned_elements ||
            bytes_staged * elements <= turned_bytes) &&
           bytes * elements / 4 <= live_registers;
  };
  while (v[X] * v[Y] > 1 && !fits(v[X] * v[Y])) (v[X] > v[Y] ? v[X] : v[Y]) /= 2;
  return v;
}

}  // namespace

ValueId stored_value(const Problem& p, const MemoryAccess& a) {
  return p.refined.stores[a.index].access.value;
}

int staged_bytes(const Problem& p, const LayoutGroups& s) {
  return bytes_of(p, s.staged_values[X]) + bytes_of(p, s.staged_values[Y]);
}

FoundLayoutGroups find_layout_groups(const Problem& p) {
  const auto refuse = [](const char* rule, const char* why) {
    return FoundLayoutGroups{.groups = {}, .rule = rule, .why = why};
  };
  if (p.reduced) return refuse("transpose-1", "the kernel has reductions");
  const auto axes = innermost_axes(p);
  if (!axes) return refuse("transpose-2", "all tensors have the same innermost axis");
  const auto [x, y] = *axes;
  LayoutGroups s;
  std::vector<const MemoryAccess*> sided;
  for (const MemoryAccess& a : p.accesses) {
    if (is_loaded(a)) return refuse("transpose-3", "an access uses loaded indices as coordinates");
    const bool both = varies(p, a, x) && varies(p, a, y);
    if (a.store && !both)
      return refuse("transpose-4", "an output does not vary along both innermost axes");
    s.of.push_back(!both ? None : near_axis(a) == y ? Y : X);
    if (both) sided.push_back(&a);
  }
  s.from = sources(p, s.of);
  for (const LayoutGroup group : {X, Y}) {
    std::vector<ValueId> early = staged_values(p, s, group, false),
                         late = staged_values(p, s, group, true);
    s.staged_values[group] =
        bytes_of(p, early) < bytes_of(p, late) ? std::move(early) : std::move(late);
  }
  if (s.staged_values[X].empty() && s.staged_values[Y].empty())
    return refuse("transpose-5", "no output reads a tensor with another innermost axis");
  s.stages = s.staged_values[X].empty() ? std::vector{Y, X} : std::vector{X, Y};
  if (!s.staged_values[X].empty() && !s.staged_values[Y].empty()) s.stages.push_back(X);
  s.vector = vectors_of(p, s);
  Dims last;
  for (std::vector<AxisId>& dim : collapse(p, p.order, sided)) {
    const bool is_x = std::find(dim.begin(), dim.end(), x) != dim.end();
    const bool is_y = std::find(dim.begin(), dim.end(), y) != dim.end();
    if (is_x)
      last.push_back(std::move(dim));
    else if (is_y)
      last.insert(last.begin(), std::move(dim));
    else
      s.dims.push_back(std::move(dim));
  }
  if (last.size() != 2) return refuse("transpose-6", "the two innermost axes form one loop");
  std::move(last.begin(), last.end(), std::back_inserter(s.dims));
  return {.groups = std::move(s)};
}

LayoutGroups layout_groups_of(const Problem& p) {
  FoundLayoutGroups found = find_layout_groups(p);
  FUSER_ASSERT(found.groups, "the scheduler rejects this kernel: ", found.why);
  return std::move(*found.groups);
}

LayoutGroup group_of(const Problem& p, const LayoutGroups& s, size_t access) {
  if (s.of[access] != None) return s.of[access];
  for (const LayoutGroup group : {X, Y})
    if (varies(p, p.accesses[access], s.axes(group).back())) return group;
  return None;
}

std::array<int, 2> stored_bytes(const Problem& p, const LayoutGroups& s) {
  std::array<int, 2> bytes{};
  for (size_t i = 0; i < p.accesses.size(); ++i)
    if (p.accesses[i].store && s.of[i] != None) bytes[s.of[i]] += size_of(p.accesses[i].dtype);
  return bytes;
}

LayoutGroup stored_group(const Problem& p, const LayoutGroups& s) {
  const std::array<int, 2> bytes = stored_bytes(p, s);
  return bytes[X] && bytes[Y] ? None : bytes[X] ? X : Y;
}

std::vector<AxisId> order_of_stores(const Problem& p, const LayoutGroups& s) {
  const std::array<int, 2> bytes = stored_bytes(p, s);
  Dims dims = s.dims;
  if (bytes[Y] > bytes[X]) std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
  std::vector<AxisId> order;
  for (const auto& axes : dims) order.insert(order.end(), axes.begin(), axes.end());
  return order;
}

}  // namespace fuser::schedulers
