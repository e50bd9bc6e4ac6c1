#include "fusion/walks.h"

#include <algorithm>

namespace fuser {

// An output is stored by the last walk that computes its value anyway: an earlier one would compute
// it (a mask of random numbers, say) for that alone.
Walks walks_of(const Problem& p) {
  const std::vector<Value>& values = p.refined.values;
  Walks w{.phase = std::vector<int>(values.size(), 0), .store = {}};
  std::vector<bool> finish(values.size(), false);  // behind all walks: waits for a reduction over K
  for (size_t v = 0; v < values.size(); ++v) {
    visit_operands(values[v], [&](ValueId o) {
      w.phase[v] = std::max(w.phase[v], w.phase[o]);
      finish[v] = finish[v] || finish[o];
    });
    const auto* r = std::get_if<Reduced>(&values[v].how);
    if (r && r->over == p.reduced) ++w.phase[v];
    if (r && r->over != p.reduced) finish[v] = true;
    w.phases = std::max(w.phases, w.phase[v]);
  }
  std::vector<int> last(values.size(), -1);  // walk that computes a value
  const auto value_of = [&](const MemoryAccess& store) {
    return p.refined.stores[store.index].access.value;
  };
  const auto earliest = [&](const MemoryAccess& store) {
    const ValueId v = value_of(store);
    return waits_for_reads(p, store) ? w.phases : v >= 0 ? w.phase[v] : 0;
  };
  for (const MemoryAccess& a : p.accesses)
    if (a.store && value_of(a) >= 0) last[value_of(a)] = std::max(last[value_of(a)], earliest(a));
  for (size_t v = values.size(); v-- > 0;) {
    const auto* r = std::get_if<Reduced>(&values[v].how);
    if (finish[v] && !r) continue;
    const int walk = !r ? last[v] : w.phase[v] - (r->over == p.reduced ? 1 : 0);
    visit_operands(values[v], [&](ValueId o) { last[o] = std::max(last[o], walk); });
  }
  for (const MemoryAccess& a : p.accesses) {
    const ValueId v = a.store ? value_of(a) : -1;
    w.store.push_back(!a.store ? -1 : v >= 0 ? last[v] : earliest(a));
  }
  return w;
}

}  // namespace fuser
