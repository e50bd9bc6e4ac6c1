#include "fusion/kernel/reduction_phases.h"

#include <algorithm>
#include <bit>
#include <map>

#include "fusion/segment/issue_slots.h"

namespace fuser::fusion {

// A store is in the last loop that computes its value anyway. An earlier loop might compute it (a
// random mask, say) for the store alone.
ReductionPhases reduction_phases(const Problem& p) {
  const std::vector<Value>& values = p.refined.values;
  ReductionPhases w{.phase = std::vector<int>(values.size(), 0), .store = {}};
  // True if it waits for a reduction over K, which ends after all loops.
  std::vector<bool> finish(values.size(), false);
  for (size_t v = 0; v < values.size(); ++v) {
    visit_operands(values[v], [&](ValueId o) {
      w.phase[v] = std::max(w.phase[v], w.phase[o]);
      finish[v] = finish[v] || finish[o];
    });
    const auto* r = std::get_if<Reduced>(&values[v].how);
    if (r && r->over == p.reduced) ++w.phase[v];
    if (r && r->over != p.reduced) finish[v] = true;
    w.count = std::max(w.count, w.phase[v]);
  }
  std::vector<int> last(values.size(), -1);  // last loop that computes a value
  const auto value_of = [&](const MemoryAccess& store) {
    return p.refined.stores[store.index].access.value;
  };
  const auto earliest = [&](const MemoryAccess& store) {
    const ValueId v = value_of(store);
    return waits_for_reads(p, store) ? w.count : v >= 0 ? w.phase[v] : 0;
  };
  for (const MemoryAccess& a : p.accesses)
    if (a.store && value_of(a) >= 0) last[value_of(a)] = std::max(last[value_of(a)], earliest(a));
  for (size_t v = values.size(); v-- > 0;) {
    const auto* r = std::get_if<Reduced>(&values[v].how);
    if (finish[v] && !r) continue;
    const int phase = !r ? last[v] : w.phase[v] - (r->over == p.reduced ? 1 : 0);
    visit_operands(values[v], [&](ValueId o) { last[o] = std::max(last[o], phase); });
  }
  for (const MemoryAccess& a : p.accesses) {
    const ValueId v = a.store ? value_of(a) : -1;
    w.store.push_back(!a.store ? -1 : v >= 0 ? last[v] : earliest(a));
  }
  return w;
}

bool may_split(const Problem& p) {
  const ReductionPhases phases = reduction_phases(p);
  if (phases.count != 1) return false;
  for (size_t i = 0; i < p.accesses.size(); ++i)
    if (p.accesses[i].store && phases.store[i] >= 1 && (axes_of(p, p.accesses[i]) & p.reduced))
      return false;
  return true;
}

bool is_per_element(const Value& value, AxisSet all) {
  const auto* r = std::get_if<Reduced>(&value.how);
  return (value.axes | (r ? r->over : 0)) == all;
}

AxisSet used_axes(const std::vector<Value>& values) {
  AxisSet all = 0;
  for (const Value& v : values) all |= v.axes;
  return all;
}

PhaseUse phase_use(const ValueRange& range) {
  const auto& [values, all, begin, end, stores] = range;
  const size_t count = end - begin;
  PhaseUse out{.first = std::vector<int>(count, 0), .phases = std::vector<uint64_t>(count, 0)};
  std::vector<bool> waits(count, false);  // True if it depends on a reduction
  for (size_t v = begin; v < end; ++v) {
    waits[v - begin] = std::holds_alternative<Reduced>(values[v].how);
    visit_operands(values[v], [&](size_t a) {
      if (a < begin) return;
      const bool behind =
          waits[a - begin] && values[a].axes != all && is_per_element(values[v], all);
      int& phase = out.first[v - begin];
      phase = std::min(std::max(phase, out.first[a - begin] + behind), max_phases - 1);
      if (waits[a - begin]) waits[v - begin] = true;
    });
  }
  for (size_t v = end; v-- > begin;) {
    const uint64_t mine = uint64_t{1} << out.first[v - begin];
    uint64_t& phases = out.phases[v - begin];
    if (stores(v)) phases |= mine;
    if (std::holds_alternative<Reduced>(values[v].how)) phases = mine;  // its result is kept
    if (!is_per_element(values[v], all)) continue;
    visit_operands(values[v], [&](size_t a) {
      if (a >= begin) out.phases[a - begin] |= phases;
    });
  }
  return out;
}

TextSize text_size(const ValueRange& range) {
  const auto& [values, all, begin, end, stores] = range;
  const PhaseUse needed = phase_use(range);
  std::map<size_t, uint64_t> read;  // loops that read a value before the range
  TextSize out;
  const auto add = [&](size_t v, uint64_t phases) {
    const int times = is_per_element(values[v], all) ? std::max(1, std::popcount(phases)) : 1;
    out.statements += times;
    out.slots += int64_t{times} * slots(values[v]);
  };
  for (size_t v = begin; v < end; ++v) {
    const uint64_t phases = needed.phases[v - begin];
    add(v, phases);
    visit_operands(values[v], [&](size_t a) {
      if (a < begin) read[a] |= phases;
    });
  }
  for (const auto& [v, phases] : read) add(v, phases);
  return out;
}

}  // namespace fuser::fusion
