#include "schedulers/analysis/collapse.h"

#include <algorithm>
#include <optional>

#include "fusion/index/access.h"

namespace fuser::schedulers {

using namespace fusion;
using namespace ir;

int ceil_pow2(int64_t n) {
  constexpr int most = 1 << 30;
  int p = 1;
  while (p < n && p < most) p *= 2;
  return p;
}

Expr extent_of(const Problem& p, Exprs& exprs, const std::vector<AxisId>& axes) {
  Expr e = exprs.constant(1);
  for (AxisId a : axes) e = exprs.mul(e, p.refined.axes[a].extent);
  return e;
}

Expr extent_of(Problem& p, const std::vector<AxisId>& axes) {
  return extent_of(p, p.refined.exprs, axes);
}

Expr coefficient(const Problem& p, const MemoryAccess& access, const std::vector<AxisId>& axes) {
  if (!access.strides) return nullptr;
  // A mask on one axis needs its coordinate, for which a collapsed index would have to be divided.
  if (axes.size() > 1)
    for (const Pred::Bound& b : access.in.bounds)
      for (AxisId a : axes)
        if (axes_of({b.coord}) >> a & 1) return nullptr;
  const auto& c = access.strides->coefficients;
  std::optional<Exprs> products;  // only for products that are not folded
  const auto is_product = [&](Expr stride, Expr inner, Expr extent) {
    if (inner->is_constant(1)) return stride == extent;
    if (inner->is_constant(0)) return stride->is_constant(0);
    if (!products) products.emplace(Exprs::on_top_of(p.refined.exprs));
    return stride == products->mul(inner, extent);
  };
  for (size_t i = 0; i + 1 < axes.size(); ++i)
    if (!is_product(c[axes[i]], c[axes[i + 1]], p.refined.axes[axes[i + 1]].extent)) return nullptr;
  return axes.empty() ? nullptr : c[axes.back()];
}

Expr offset_along(Exprs& exprs, const MemoryAccess& access, const std::vector<AxisId>& axes) {
  Expr offset = access.strides->rest;
  for (AxisId k : axes)
    offset = exprs.add(offset,
                       exprs.mul(access.strides->coefficients[k], exprs.symbol(Symbol::Axis, k)));
  return offset;
}

Dims collapse(const Problem& p, const std::vector<AxisId>& axes,
              const std::vector<const MemoryAccess*>& accesses) {
  Dims dims;
  for (AxisId a : axes) {
    if (!dims.empty()) {
      std::vector<AxisId> both = dims.back();
      both.push_back(a);
      if (std::all_of(accesses.begin(), accesses.end(),
                      [&](const MemoryAccess* m) { return coefficient(p, *m, both) != nullptr; })) {
        dims.back() = std::move(both);
        continue;
      }
    }
    dims.push_back({a});
  }
  return dims;
}

std::vector<const MemoryAccess*> all_accesses(const Problem& p) {
  std::vector<const MemoryAccess*> out;
  for (const MemoryAccess& a : p.accesses) out.push_back(&a);
  return out;
}

namespace {

std::vector<AxisId> axes_in(const Problem& p, bool reduced) {
  std::vector<AxisId> out;
  for (AxisId a : p.order)
    if (((p.reduced >> a & 1) != 0) == reduced) out.push_back(a);
  return out;
}

}  // namespace

std::vector<AxisId> kept_axes(const Problem& p) { return axes_in(p, false); }
std::vector<AxisId> reduced_axes(const Problem& p) { return axes_in(p, true); }

}  // namespace fuser::schedulers
