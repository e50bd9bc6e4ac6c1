#include "fusion/kernel/transpose_operands.h"

#include <algorithm>
#include <optional>

#include "fusion/index/kernel_builder.h"

namespace fuser::fusion {

using namespace ir;

namespace {

// Returns the axes along which reduction schedulers vectorize: R or K.
AxisSet lanes_of(const Problem& p) {
  return p.columns || (p.reduced >> p.order.back() & 1) ? p.reduced : ~p.reduced;
}

// Returns the memory order of the axes that these vectors need, outermost first.
std::vector<AxisId> order_along(const Problem& p) {
  std::vector<AxisId> order = p.order;
  if (!(lanes_of(p) >> order.back() & 1))
    std::stable_partition(order.begin(), order.end(),
                          [&](AxisId a) { return !(lanes_of(p) >> a & 1); });
  return order;
}

ValueId value_of(const Problem& p, const MemoryAccess& a) {
  return a.store ? p.refined.stores[a.index].access.value : a.index;
}

bool same_value(const std::vector<Value>& values, ValueId x, ValueId y) {
  if (x == y) return true;
  const auto* a = std::get_if<Convert>(&values[x].how);
  const auto* b = std::get_if<Convert>(&values[y].how);
  return a && b && values[x].dtype == values[y].dtype && a->arg.value == b->arg.value &&
         a->arg.value >= 0;
}

}  // namespace

std::vector<size_t> uncoalesced_accesses(const Problem& p, const std::vector<bool>& in_place) {
  std::vector<size_t> out;
  if (!p.reduced) return out;
  Exprs scratch = Exprs::on_top_of(p.refined.exprs);
  const size_t axes_of_all = p.refined.axes.size();
  const AxisSet lanes = lanes_of(p);
  const AxisSet all = (axes_of_all < 64 ? AxisSet{1} << axes_of_all : 0) - 1;
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    const AxisSet axes = axes_of(p, a);
    if (axes != all || !a.strides || is_loaded(a)) continue;
    if (!a.in.bounds.empty() || value_of(p, a) < 0) continue;
    const AxisId near = near_axis(a);
    if (near < 0 || (lanes >> near & 1) || !a.strides->coefficients[near]->is_constant(1)) continue;
    bool expanded = false;
    for (size_t x = 0; x < p.refined.axes.size(); ++x)
      expanded |= (axes >> x & 1) && a.strides->coefficients[x]->is_constant(0);
    if (expanded) continue;
    const size_t output = a.store ? p.refined.stores[a.index].output : 0;
    if (a.store && output < in_place.size() && in_place[output]) continue;
    const Tensor& tensor = *p.buffers[a.buffer].tensor;
    if (covers(scratch, tensor, a.at, p.refined.axes)) out.push_back(i);
  }
  return out;
}

namespace {

// Returns a coalesced store of the value that the uncoalesced store `a` stores, over all its
// elements.
std::optional<size_t> stored_along(const Fusion& fusion, Problem& p,
                                   const std::vector<bool>& across, const MemoryAccess& a) {
  const Refined& whole = p.refined;
  const Access& wanted = whole.stores[a.index].access;
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& b = p.accesses[i];
    if (!b.store || across[i]) continue;
    const Store& store = whole.stores[b.index];
    if (fusion.outputs[store.output].alias < 0 && store.access.value >= 0 &&
        same_value(whole.values, store.access.value, wanted.value) &&
        axes_of(p, b) == axes_of(p, a) &&
        covers(p.refined.exprs, *p.buffers[b.buffer].tensor, b.at, whole.axes))
      return b.index;
  }
  return std::nullopt;
}

// Builds the kernels of transpose_operands(). Uncoalesced reads are replaced by reads of transposed
// copies. Uncoalesced stores are replaced by coalesced ones, which another kernel copies.
struct OperandTransposer {
  Fusion& fusion;
  Problem& p;
  OutputOrders& orders;
  std::vector<bool> across;  // by access: True if it is uncoalesced
  const Refined& whole = p.refined;
  std::vector<AxisId> order = order_along(p);
  std::vector<ValueId> image = {};
  std::vector<Refined> before = {}, after = {};
  std::vector<Value> values = whole.values;  // values and stores of the main kernel
  std::vector<Store> stores = {};

  // Adds a temporary with the elements of `tensor`, in the memory order of the vectors.
  int new_output(const Tensor* tensor, const std::vector<Expr>& at) {
    const int output = static_cast<int>(fusion.outputs.size());
    fusion.outputs.push_back({.tensor = tensor, .alias = -1, .temp = true});
    orders.emplace(output, dims_in_order(tensor->rank(), at, order));
    return output;
  }

  void transpose_read(const MemoryAccess& a) {
    const Value& read = whole.values[a.index];
    const int copy = new_output(read.tensor, read.at);
    const Access element{.value = static_cast<ValueId>(a.index)};
    before.push_back(extract(whole.axes, whole.values,
                             {{.output = copy, .access = element, .at = read.at}}, image));
    values[a.index].how = Read{.output = copy};
  }

  void transpose_store(const MemoryAccess& a) {
    const Store& store = whole.stores[a.index];
    Store from;
    if (const auto given = stored_along(fusion, p, across, a)) {
      from = whole.stores[*given];
    } else {
      from = {.output = new_output(p.buffers[a.buffer].tensor, store.at),
              .access = store.access,
              .at = store.at};
      stores.push_back(from);
    }
    const Tensor* tensor = fusion.outputs[from.output].tensor;
    const std::vector<Value> stored{{.tensor = tensor,
                                     .at = from.at,
                                     .dtype = tensor->dtype,
                                     .how = Read{.output = from.output},
                                     .axes = axes_of(from.at)}};
    after.push_back(extract(whole.axes, stored,
                            {{.output = store.output, .access = {.value = 0}, .at = store.at}},
                            image));
  }

  TransposedOperands kernels() {
    for (size_t i = 0; i < p.accesses.size(); ++i) {
      const MemoryAccess& a = p.accesses[i];
      if (across[i] && a.store)
        transpose_store(a);
      else if (across[i])
        transpose_read(a);
      else if (a.store)
        stores.push_back(whole.stores[a.index]);
    }
    TransposedOperands out{.kernels = std::move(before), .main = 0};
    out.main = out.kernels.size();
    out.kernels.push_back(extract(whole.axes, values, stores, image));
    std::move(after.begin(), after.end(), std::back_inserter(out.kernels));
    return out;
  }
};

}  // namespace

TransposedOperands transpose_operands(Fusion& fusion, Problem& p, const std::vector<bool>& in_place,
                                      OutputOrders& orders) {
  std::vector<bool> across(p.accesses.size());
  for (size_t access : uncoalesced_accesses(p, in_place)) across[access] = true;
  if (std::find(across.begin(), across.end(), true) == across.end()) return {};
  return OperandTransposer{.fusion = fusion, .p = p, .orders = orders, .across = std::move(across)}
      .kernels();
}

}  // namespace fuser::fusion
