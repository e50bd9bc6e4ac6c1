// Kernel fission: several kernels that materialize the results of reductions, so that no row need
// be persistent.
#include <algorithm>

#include "base/error.h"
#include "fusion/index/kernel_builder.h"

namespace fuser::fusion {

using namespace ir;

namespace {

// Returns whether the coordinate visits every index of a dim of this size once, along nested axes.
bool covers(Exprs& exprs, Expr coordinate, Expr size, const std::vector<Axis>& axes) {
  const auto form = linear(exprs, coordinate, static_cast<int>(axes.size()));
  if (!form || !form->rest->is_constant(0)) return false;
  Expr stride = exprs.constant(1);
  AxisSet left = axes_of({coordinate});
  while (left) {
    AxisId next = -1;
    for (size_t a = 0; a < axes.size() && next < 0; ++a)
      if ((left >> a & 1) && form->coefficients[a] == stride) next = static_cast<AxisId>(a);
    if (next < 0) return false;
    stride = exprs.mul(stride, axes[next].extent);
    left &= ~(AxisSet{1} << next);
  }
  return stride == rewrite(exprs, size, [](Expr) -> Expr { return nullptr; });
}

// Reduction stage of each value and store: the number of reductions over R, with materialized
// results, that must be complete before it.
struct Stages {
  std::vector<int> of_value, of_store;
  int last = 0;  // last stage of the stores
};

// is_result(v): whether v is over K alone and depends on a reduction over R.
template <class IsResult>
Stages stages_of(const Refined& from, AxisSet rows, const IsResult& is_result) {
  Stages out{.of_value = std::vector<int>(from.values.size(), 0), .of_store = {}};
  std::vector<int>& stage = out.of_value;
  for (size_t v = 0; v < stage.size(); ++v) {
    const Value& value = from.values[v];
    const bool in_loop = (value.axes & rows) || std::holds_alternative<Reduced>(value.how);
    visit_operands(value, [&](ValueId a) {
      stage[v] = std::max(stage[v], stage[a] + (in_loop && is_result(a)));
    });
  }
  for (const Store& s : from.stores) {
    const ValueId v = s.access.value;
    out.of_store.push_back(stage[v] + (is_result(v) && (axes_of(s.at) & rows)));
    out.last = std::max(out.last, out.of_store.back());
  }
  return out;
}

// Returns the values as other kernels would read them if they are stored in any case, and by value
// the output to read, -1 if it is not stored yet.
std::pair<std::vector<Value>, std::vector<int>> stored_anyway(const Fusion& fusion,
                                                              const Refined& from) {
  std::vector<Value> read = from.values;
  std::vector<int> output_of(from.values.size(), -1);
  for (const Store& s : from.stores) {
    const Output& o = fusion.outputs[s.output];
    Value& v = read[s.access.value];
    if (o.alias >= 0 || output_of[s.access.value] >= 0 || axes_of(s.at) != v.axes) continue;
    v.tensor = o.tensor;
    v.at = s.at;
    output_of[s.access.value] = s.output;
  }
  return {std::move(read), std::move(output_of)};
}

}  // namespace

bool covers(Exprs& exprs, const Tensor& tensor, const std::vector<Expr>& at,
            const std::vector<Axis>& axes) {
  AxisSet used = 0;
  for (int d = 0; d < tensor.rank(); ++d) {
    if (tensor.shape[d]->is_constant(1)) continue;
    const AxisSet mine = axes_of({at[d]});
    if ((mine & used) || !covers(exprs, at[d], tensor.shape[d], axes)) return false;
    used |= mine;
  }
  return true;
}

bool is_whole(Exprs& exprs, const Value& value, const std::vector<Axis>& axes) {
  if (!value.tensor || std::holds_alternative<Read>(value.how)) return false;
  return axes_of(value.at) == value.axes && covers(exprs, *value.tensor, value.at, axes);
}

std::vector<Refined> fission(Fusion& fusion, Refined& whole) {
  std::optional<Refined> shorter = single_pass(whole);
  Refined& from = shorter ? *shorter : whole;
  const auto sets = reduction_sets(from);
  FUSER_ASSERT(sets, "fission expects valid sets of reduced axes");
  const std::vector<AxisSet> overs = reduced_sets(from);
  const std::vector<uint8_t> fed = fed_by(from, overs);
  uint8_t by_rows = 0, by_columns = 0;
  for (size_t s = 0; s < overs.size(); ++s)
    (overs[s] == sets->rows ? by_rows : by_columns) |= static_cast<uint8_t>(1 << s);

  // A value over K that depends on a reduction over R.
  const auto is_result = [&](ValueId v) {
    return (fed[v] & by_rows) && !(from.values[v].axes & sets->rows);
  };
  const Stages stages = stages_of(from, sets->rows, is_result);
  if (stages.last == 0 && !sets->columns) return {};
  auto [read, output_of] = stored_anyway(fusion, from);
  const auto to_materialize = [&](ValueId v) {
    return is_result(v) && is_whole(from.exprs, from.values[v], from.axes);
  };

  std::vector<Refined> out;
  std::vector<bool> made(from.values.size(), false);  // True if an output was added for it
  for (int now = stages.last; now >= 0; --now) {
    std::vector<Value> values = from.values;
    std::vector<Store> stores;
    for (size_t i = 0; i < from.stores.size(); ++i)
      if (stages.of_store[i] == now) stores.push_back(from.stores[i]);
    for (size_t v = 0; v < values.size(); ++v) {
      if (made[v] && stages.of_value[v] == now)
        stores.push_back({.output = output_of[v],
                          .access = {.value = static_cast<ValueId>(v)},
                          .at = values[v].at});
      if (!to_materialize(static_cast<ValueId>(v)) || stages.of_value[v] >= now) continue;
      values[v] = read[v];
      values[v].how = Read{};
    }
    // Reductions over K are in kernels of their own.
    for (const bool columns : {true, false}) {
      std::vector<Store> here;
      for (const Store& s : stores)
        if (((fed[s.access.value] & by_columns) != 0) == columns) here.push_back(s);
      if (here.empty()) continue;
      std::vector<ValueId> image;
      Refined kernel = extract(from.axes, values, here, image);
      for (size_t v = 0; v < values.size(); ++v) {
        if (image[v] < 0 || !to_materialize(static_cast<ValueId>(v)) || stages.of_value[v] >= now)
          continue;
        if (output_of[v] < 0) {
          made[v] = true;
          output_of[v] = static_cast<int>(fusion.outputs.size());
          fusion.outputs.push_back({.tensor = values[v].tensor, .alias = -1, .temp = true});
        }
        std::get<Read>(kernel.values[image[v]].how).output = output_of[v];
      }
      out.push_back(std::move(kernel));
    }
  }
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace fuser::fusion
