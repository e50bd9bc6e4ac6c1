// driver/compile.h as fuser._core.plan_testing: how a definition would run on any device, for
// inputs of which only the layout is known. Nothing is allocated, compiled or kept.
#include <pybind11/stl.h>

#include <functional>

#include "base/error.h"
#include "bind/bind.h"
#include "bind/handles.h"
#include "driver/compile.h"
#include "lower/passes.h"

namespace py = pybind11;

namespace fuser {
namespace {

using Sizes = std::vector<int64_t>;
using Input = std::tuple<Sizes, Sizes, int64_t>;  // sizes, strides, address modulo 16

py::dict planned(Group& group, GroupSizes& sizes, Plan plan, bool text) {
  py::dict fields;
  fields["scheduler"] = plan.scheduler;
  for (const auto& [name, value] : plan.fields) fields[name.c_str()] = value;
  py::dict out;
  out["plan"] = fields;
  if (!text) return out;
  const Schedule schedule = group.scheduler->schedule(group.problem, plan);
  const KernelIR kernel =
      lower(group.problem, schedule, sizes.hints.index64, group.scheduler->name);
  out["schedule"] = to_string(schedule);
  out["ir"] = to_text(kernel);
  out["cuda"] = print_cuda(kernel);
  return out;
}

py::list plans(const Fusion& fusion, const std::vector<Input>& inputs, const Device& device,
               bool text) {
  // Those of random numbers are nothing that a plan depends on.
  FUSER_ASSERT(fusion.scalars.size() == (fusion.random.ops ? 2 : 0),
               "plan_testing: definitions without scalars of their own only");
  const std::vector<Number> scalars(fusion.scalars.size());
  std::vector<TensorView> views;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto& [of, strides, address] = inputs[i];
    // No input overlaps another.
    const uintptr_t at = ((uintptr_t{i} + 1) << 48) + static_cast<uintptr_t>(address);
    views.push_back({.data = reinterpret_cast<char*>(at),
                     .sizes = of.data(),
                     .strides = strides.data(),
                     .rank = static_cast<int>(of.size()),
                     .dtype = fusion.inputs.at(i)->dtype});
  }
  const Arguments arguments{.tensors = views, .scalars = scalars};
  check_arguments(fusion, arguments);
  // As the executor does for a call: what sizes tell is known one after the other.
  const std::vector<bool> overlapping(views.size(), false);
  std::vector<std::unique_ptr<Specialized>> made;  // `nested` speaks of them
  Units units;
  Nested nested;
  for (Key key;;) {
    made.push_back(
        specialize_fusion(fusion, layout_classes(arguments), overlapping, units, nested));
    const Specialized& s = *made.back();
    const Units found = check_constraints(s.fusion, s.constraints, arguments);
    if (found.empty() && !add_nested(s.nestings, arguments, nested, key)) break;
    units.insert(found.begin(), found.end());
  }
  const auto& specialized = made.back();
  py::list out;
  const std::function<void(Group&)> add = [&](Group& g) {
    GroupSizes sizes = group_sizes(g, arguments);
    if (sizes.empty) return;
    sizes.hints.facts = g.verdict.facts;
    sizes.hints.extents = g.verdict.extents;
    Plan plan = g.scheduler->plan(g.problem, sizes.hints, device);
    if (plan.in_pieces()) {
      FUSER_ASSERT(!g.pieces.empty(), "a plan in pieces for a group that has none");
      for (int piece : g.pieces) add(specialized->groups[piece]);
      return;
    }
    out.append(planned(g, sizes, std::move(plan), text));
  };
  for (const Step& step : specialized->program.steps)
    if (const auto* kernel = std::get_if<KernelStep>(&step))
      add(specialized->groups[kernel->group]);
  return out;
}

}  // namespace

void bind_plan_testing(py::module_& core) {
  py::module_ m = core.def_submodule("plan_testing", "Plans for any device; nothing runs.");
  m.def("plans", &plans, py::arg("definition"), py::arg("inputs"), py::arg("device"),
        py::arg("text") = false,
        "The kernels of a definition, in order, for (sizes, strides, address modulo 16) of each "
        "tensor input: a dict with `plan`, and with `text` `schedule`, `ir` and `cuda` too.");
}

}  // namespace fuser
