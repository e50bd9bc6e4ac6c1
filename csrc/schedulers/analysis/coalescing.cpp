#include "schedulers/analysis/coalescing.h"

#include <algorithm>

#include "cost/tuning.h"
#include "fusion/kernel/transpose_operands.h"
#include "schedulers/analysis/collapse.h"

namespace fuser::schedulers {

using namespace fusion;
using namespace ir;
using namespace cost::coalescing;

bool reads_earlier(const Problem& p) {
  return std::any_of(p.buffers.begin(), p.buffers.end(),
                     [](const BufferUse& b) { return b.output >= 0 && b.read && !b.written; });
}

bool has_uncoalesced(const Problem& p, SizeHints& hints) {
  constexpr int sector = 32;  // bytes of a transaction; neighbours in one sector are read together
  const std::vector<size_t> uncoalesced = uncoalesced_accesses(p, {});
  if (uncoalesced.empty()) return false;
  const int64_t elements = hints.at_most(extent_of(p, hints.exprs(), kept_axes(p))) *
                           hints.at_most(extent_of(p, hints.exprs(), reduced_axes(p)));
  return std::any_of(uncoalesced.begin(), uncoalesced.end(), [&](size_t i) {
    const MemoryAccess& a = p.accesses[i];
    return elements >= (a.store ? least_stored : least_read) &&
           hints.at_most(p.refined.axes[near_axis(a)].extent) * size_of(a.dtype) >= sector;
  });
}

bool can_transpose_operands(const Problem& p, SizeHints& hints) {
  return hints.fission() == Fission::TransposeOperands && has_uncoalesced(p, hints);
}

}  // namespace fuser::schedulers
