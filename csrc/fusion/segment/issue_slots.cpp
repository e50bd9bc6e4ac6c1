#include "fusion/segment/issue_slots.h"

#include "cost/tuning.h"

namespace fuser::fusion {

using namespace ir;
using namespace cost::slot_count;

namespace {

double elements(AxisSet axes, std::span<const int64_t> extents) {
  double count = 1.0;
  for (size_t i = 0; i < extents.size(); ++i)
    if (axes >> i & 1) count *= static_cast<double>(extents[i]);
  return count;
}

}  // namespace

int slots(const Value& v) {
  if (const auto* a = std::get_if<Apply>(&v.how)) return row(a->op).cost;
  if (const auto* r = std::get_if<Reduced>(&v.how))
    return row(r->op).has_state() ? merge : accumulate;
  if (std::holds_alternative<Read>(v.how)) return access;
  if (std::holds_alternative<Convert>(v.how)) return convert;
  return std::holds_alternative<Select>(v.how) ? select : 0;
}

double issue_slots(const Refined& refined, std::span<const int64_t> extents) {
  double total = 0.0;
  for (const Value& v : refined.values) {
    const auto* r = std::get_if<Reduced>(&v.how);
    total += slots(v) * elements(v.axes | (r ? r->over : 0), extents);
  }
  for (const Store& s : refined.stores) total += elements(axes_of(s.at), extents);
  return total;
}

}  // namespace fuser::fusion
