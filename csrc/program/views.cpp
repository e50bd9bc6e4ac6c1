#include "program/views.h"

#include <algorithm>
#include <set>

#include "fusion/index/views.h"

namespace fuser::program {

using namespace fusion;
using namespace ir;

namespace {

// Returns whether the tensor is an input, or an input with permuted dims. A library call reads both
// directly.
bool is_permuted_input(const Tensor* t) {
  while (const auto* permute = std::get_if<Permute>(&t->definition)) t = permute->arg;
  return std::holds_alternative<Input>(t->definition);
}

}  // namespace

std::vector<ViewSlots> find_views(Fusion& fusion, const std::vector<LayoutClass>& layouts,
                                  const std::vector<bool>& overlapping, IntProgram& shapes) {
  std::vector<ViewSlots> out;
  std::vector<bool> written = overlapping;
  for (const Output& o : fusion.outputs)
    if (o.alias >= 0) written[o.alias] = true;
  const bool shared = std::find(overlapping.begin(), overlapping.end(), true) != overlapping.end();
  // Returns the output that holds a result of a library call. New outputs are appended at the
  // end.
  std::vector<Output> made;
  const auto stored = [&](const Tensor* t) {
    const auto holds = [&](const Output& o) { return o.tensor == t && o.alias < 0 && o.input < 0; };
    const auto& outputs = fusion.outputs;
    const auto it = std::find_if(outputs.begin(), outputs.end(), holds);
    if (it != outputs.end()) return static_cast<int>(it - outputs.begin());
    const auto other = std::find_if(made.begin(), made.end(), holds);
    const auto place = static_cast<int>(outputs.size() + (other - made.begin()));
    if (other == made.end()) made.push_back({.tensor = t, .alias = -1, .temp = true});
    return place;
  };
  const auto take = [&](const View& view, int input, ViewSlots& slots) {
    slots = {.input = input,
             .output = input >= 0 ? -1 : stored(view.base),
             .offset = shapes.add(view.offset),
             .strides = {}};
    for (Expr e : view.strides) slots.strides.push_back(shapes.add(e));
  };
  const auto find = [&](const Output& o, ViewSlots& slots) {
    if (shared || o.alias >= 0) return false;
    const auto view = view_of(fusion, *o.tensor, layouts);
    if (!view || (library_call(*view->base) && (view->base == o.tensor || o.temp))) return false;
    const auto* input = std::get_if<Input>(&view->base->definition);
    if (input && written[input->index]) return false;
    take(*view, input ? input->index : -1, slots);
    return true;
  };
  std::set<const Tensor*> known;
  for (Output& o : fusion.outputs) {
    ViewSlots& slots = out.emplace_back();
    if (o.input >= 0) {
      o.view = true;
      take(*view_of(fusion, *fusion.inputs[o.input], layouts), o.input, slots);
    } else if ((o.view = find(o, slots))) {
      known.insert(o.tensor);
    }
  }
  for (const Output& o : made) {
    fusion.outputs.push_back(o);
    out.emplace_back();
  }
  for (const Tensor& t : fusion.tensors) {
    const auto* call = std::get_if<Library>(&t.definition);
    if (!call) continue;
    for (const Tensor* operand : call->args) {
      if (is_permuted_input(operand) || !known.insert(operand).second) continue;
      const Output output{.tensor = operand, .alias = -1, .temp = true, .view = true};
      ViewSlots slots;
      if (!find(output, slots)) continue;
      fusion.outputs.push_back(output);
      out.push_back(std::move(slots));
    }
  }
  return out;
}

}  // namespace fuser::program
