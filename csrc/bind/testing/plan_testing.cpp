// driver/compile.h as fuser._core_testing.plan: plans of a definition for any device, for inputs of
// which only the layout is known. Allocates, compiles and caches nothing.
#include <pybind11/stl.h>

#include <array>
#include <functional>
#include <optional>

#include "base/error.h"
#include "bind/handles.h"
#include "bind/plan.h"
#include "bind/testing/testing.h"
#include "codegen/cpp.h"
#include "driver/compile.h"
#include "lower/passes.h"
#include "schedule/schedule_text.h"
#include "schedulers/legal.h"

namespace py = pybind11;

namespace fuser::bind {

using namespace codegen;
using namespace driver;
using namespace fusion;
using namespace ir;
using namespace program;
using namespace schedule;
using namespace schedulers;

namespace {

using Sizes = std::vector<int64_t>;
using Layout = std::tuple<Sizes, Sizes, int64_t>;  // sizes, strides, address modulo 16

std::vector<TensorView> views_of(const Fusion& fusion, const std::vector<Layout>& inputs) {
  // Scalars of random numbers do not affect plans.
  FUSER_ASSERT(fusion.scalars.size() == (fusion.random.ops ? 2 : 0),
               "plan_testing: expected a definition without scalars");
  FUSER_CHECK(inputs.size() == fusion.inputs.size(), User, "argument-count",
              "plan_testing: expected ", fusion.inputs.size(), " tensors, got ", inputs.size());
  std::vector<TensorView> out;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto& [of, strides, address] = inputs[i];
    FUSER_CHECK(of.size() == strides.size(), Shape, "argument-rank", "plan_testing: tensor ", i,
                " has ", of.size(), " sizes and ", strides.size(), " strides");
    // Distinct high bits: no input overlaps another.
    const uintptr_t at = ((uintptr_t{i} + 1) << 48) + static_cast<uintptr_t>(address);
    out.push_back({.data = reinterpret_cast<char*>(at),
                   .sizes = of.data(),
                   .strides = strides.data(),
                   .rank = static_cast<int>(of.size()),
                   .dtype = fusion.inputs[i]->dtype});
  }
  return out;
}

// A planned kernel of a definition.
struct Planned {
  std::shared_ptr<const Specialized> definition;
  Group& group;  // group of the definition
  bool index64;
  Decision decision;  // never fission
  Device device;
  std::vector<Answer> answers;  // to guards

  const Plan& plan() const { return *plan_of(decision); }
};

py::dict texts_of(const Planned& p, const Plan& plan) {
  const Schedule schedule = scheduled(p.group, p.decision, plan);
  const bool cpu = p.group.scheduler->for_cpu;
  const KernelIR kernel =
      cpu ? lower::lower_cpu(p.group.problem, schedule, p.index64, p.group.scheduler->name)
          : lower::lower(p.group.problem, schedule, p.index64, p.group.scheduler->name);
  if (!cpu) check_resources(p.plan(), plan, kernel, kernel.shared_bytes(), p.device);
  py::dict out;
  out["schedule"] = schedule::to_string(schedule);
  out["ir"] = ir::to_text(kernel);
  out[cpu ? "cpp" : "cuda"] = cpu ? print_cpp(kernel) : print_cuda(kernel);
  return out;
}

std::vector<std::string> guards(const Planned& p) {
  std::vector<std::string> out;
  for (const Answer& a : p.answers) out.push_back(fusion::to_string(a));
  return out;
}

py::dict texts(const Planned& p) { return texts_of(p, p.plan()); }

// Returns the texts of a kernel with a plan of the user's.
py::dict changed_texts(const Planned& p, const py::dict& fields) {
  const Plan wanted = plans_of(fields).at(0);
  return texts_of(p, changed_plan(p.group, p.decision, wanted));
}

// A definition segmented into kernels of GPUs or of CPUs, for inputs with these layouts.
class Segmented {
 public:
  Segmented(const Fusion& fusion, std::vector<Layout> inputs, bool cpu)
      : inputs_(std::move(inputs)),
        views_(views_of(fusion, inputs_)),
        scalars_(fusion.scalars.size()) {
    check_arguments(fusion, arguments());
    // Learn size equalities step by step, as Executor::specialized_for() does.
    const std::vector<bool> overlapping(views_.size(), false);
    std::vector<std::shared_ptr<Specialized>> made;  // kept alive because `sizes` refers to them
    KnownSizes sizes;
    Key key;
    do {
      made.push_back(specialize_fusion(fusion, layout_classes(arguments()), overlapping,
                                       cpu ? Device::Kind::Cpu : Device::Kind::Gpu, sizes));
      made.back()->constraints.program.run(SizeLeaf{arguments()}, values_);
    } while (learn_sizes(made.back()->fusion, made.back()->constraints, values_, sizes, key));
    specialized_ = made.back();
  }

  std::vector<Planned> planned(const Device& device) {
    std::vector<Planned> out;
    const int64_t largest = largest_size(specialized_->constraints, arguments(), values_);
    const std::function<void(Group&)> add = [&](Group& g) {
      GroupSizes sizes = group_sizes(g, arguments(), largest);
      if (sizes.empty) return;
      const Arguments call = arguments();
      SizeHints hints = hints_for(g, sizes, call);
      Decision decision = g.scheduler->plan(g.problem, hints, device);
      if (!plan_of(decision)) {
        FUSER_ASSERT(!g.fission.empty(), "fission of a kernel that has none");
        for (int index : g.fission) add(specialized_->groups[index]);
        return;
      }
      out.push_back({specialized_, g, sizes.index64, std::move(decision), device, hints.answers()});
    };
    for (const Step& step : specialized_->program.steps)
      if (const auto* kernel = std::get_if<KernelStep>(&step))
        add(specialized_->groups[kernel->group]);
    return out;
  }

  // Returns the number of expressions in the arenas of all problems.
  size_t expressions() const {
    size_t count = 0;
    for (const Group& g : specialized_->groups) count += g.problem.refined.exprs.size();
    return count;
  }

 private:
  Arguments arguments() const { return {.tensors = views_, .scalars = scalars_}; }

  const std::vector<Layout> inputs_;
  const std::vector<TensorView> views_;
  const std::vector<Number> scalars_;
  std::shared_ptr<Specialized> specialized_;
  SizeValues values_;
};

py::list plans(const Fusion& fusion, const std::vector<Layout>& inputs, const Device& device,
               bool text) {
  Segmented segmented(fusion, inputs, device.kind == Device::Kind::Cpu);
  py::list out;
  for (const Planned& p : segmented.planned(device)) {
    py::dict kernel = text ? texts(p) : py::dict();
    kernel["plan"] = plan_dict(p.plan());
    out.append(kernel);
  }
  return out;
}

using Tree = GuardTree<std::optional<int>>;

// Inserts answers (slot, divisor, truth) to "the divisor divides the size in this slot".
void insert_planned(Tree& tree, const std::vector<std::array<int, 3>>& answers, int planned) {
  std::vector<Answer> path;
  for (const auto& [slot, divisor, truth] : answers)
    path.push_back({{.kind = Guard::Kind::Divides, .subject = slot, .divisor = divisor}, truth});
  tree.insert(path, planned);
}

std::optional<int> find_planned(const Tree& tree, Sizes sizes) {
  const auto* found = tree.find({.values = std::move(sizes), .aligned = {}});
  return found ? *found : std::nullopt;
}

}  // namespace

void bind_plan_testing(py::module_& tests) {
  py::module_ m = tests.def_submodule("plan", "Plans for any device, without a run.");
  m.def("plans", &plans, py::arg("definition"), py::arg("inputs"), py::arg("device"),
        py::arg("text") = false,
        "The kernels of a definition, in order, for (sizes, strides, address modulo 16) of each "
        "tensor input: a dict with `plan`, and with `text` `schedule`, `ir`, and `cuda` or `cpp`.");
  py::class_<Planned>(m, "Planned", "One of them.")
      .def_property_readonly("plan", [](const Planned& p) { return plan_dict(p.plan()); })
      .def_property_readonly("guards", &guards, "Text of each guard and its answer.")
      .def("texts", &texts, "`schedule`, `ir` and `cuda`, or `cpp` of a CPU kernel.")
      .def("changed", &changed_texts, py::arg("plan"),
           "Returns the kernel of a changed plan, with the checks of fd.execute.");
  py::class_<Segmented>(m, "Segmented", "The same step by step: the definition cut into kernels.")
      .def(py::init<const Fusion&, std::vector<Layout>, bool>(), py::arg("definition"),
           py::arg("inputs"), py::arg("cpu") = false, py::keep_alive<1, 2>())
      .def("planned", &Segmented::planned, py::arg("device"))
      .def("expressions", &Segmented::expressions, "Nodes in the arenas of all kernels.");
  py::class_<Tree>(m, "GuardTree", "Numbers by answers to whether sizes divide.")
      .def(py::init<>())
      .def("insert", &insert_planned, py::arg("answers"), py::arg("planned"))
      .def("find", &find_planned, py::arg("sizes"));
}

}  // namespace fuser::bind
