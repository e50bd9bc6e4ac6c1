// The Python module fuser._torchscript: switches the TorchScript fuser, and exports graphs as data.
#include "torch/script/torchscript.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/pass_manager.h>
#include <torch/csrc/jit/runtime/profiling_record.h>

#include <mutex>
#include <unordered_map>

#include "bind/text.h"
#include "torch/script/python.h"

namespace py = pybind11;

namespace fuser::script {

using namespace bind;
using namespace bridge;

namespace {

using namespace torch::jit;  // NOLINT: most names in this file belong to it
using torch::jit::Value;

// fuser.adapters.torchscript; leaked, because scripts may run until the process ends
PyObject* adapter = nullptr;

// Returns the FusionDefinition of each executor, and the executor as a Python object. Groups use
// the executor without the interpreter's lock, which protects the map.
std::unordered_map<const TorchExecutor*, py::handle>& definitions() {
  static auto* map = new std::unordered_map<const TorchExecutor*, py::handle>;
  return *map;
}

// Executors of destroyed groups. A destructor may run where waiting for the interpreter's lock
// would block forever.
struct Released {
  std::mutex mutex;
  std::vector<const TorchExecutor*> executors;
};

Released& released() {
  static auto* const it = new Released;
  return *it;
}

// Frees the released executors. Requires the interpreter's lock.
void free_released() {
  std::vector<const TorchExecutor*> executors;
  {
    const std::lock_guard<std::mutex> lock(released().mutex);
    executors.swap(released().executors);
  }
  for (const TorchExecutor* executor : executors)
    if (const auto found = definitions().find(executor); found != definitions().end()) {
      const py::handle definition = found->second;
      definitions().erase(found);
      definition.dec_ref();
    }
}

py::object to_python(const c10::IValue& v) {
  if (v.isNone()) return py::none();
  if (v.isBool()) return py::bool_(v.toBool());
  if (v.isInt()) return py::int_(v.toInt());
  if (v.isDouble()) return py::float_(v.toDouble());
  if (v.isComplexDouble()) {
    const c10::complex<double> z = v.toComplexDouble();
    return py::reinterpret_steal<py::object>(PyComplex_FromDoubles(z.real(), z.imag()));
  }
  if (v.isString()) return from_text(v.toStringRef());
  if (v.isDevice()) return py::module_::import("torch").attr("device")(v.toDevice().str());
  if (v.isTensor()) return py::reinterpret_steal<py::object>(THPVariable_Wrap(v.toTensor()));
  if (v.isList()) {
    py::list out;
    for (const c10::IValue& item : v.toListRef()) out.append(to_python(item));
    return out;
  }
  throw std::runtime_error("a constant of type " + v.tagKind());
}

py::list to_python(c10::ArrayRef<c10::IValue> values) {
  py::list out;
  for (const c10::IValue& v : values) out.append(to_python(v));
  return out;
}

py::list to_python(const std::vector<ArgumentRole>& roles) {
  py::list out;
  for (ArgumentRole role : roles) out.append(static_cast<int>(role));
  return out;
}

// Returns the message without the traceback, which leads through the executor.
std::string message_of(const py::error_already_set& error) {
  return to_text(error.type().attr("__name__")) + ": " + to_text(error.value());
}

py::list ids(at::ArrayRef<const Value*> values) {
  py::list out;
  for (const Value* v : values) out.append(v->unique());
  return out;
}

py::tuple graph_data(const Graph& graph);

// Returns (inputs, nodes, outputs): values are numbers, a node is (name, attributes, inputs,
// outputs).
py::tuple block_data(const Block& block) {
  py::list nodes;
  for (const Node* n : block.nodes()) {
    py::dict attributes;
    if (n->kind() == prim::Constant) {
      attributes["value"] = to_python(toIValue(n->output()).value_or(c10::IValue()));
    } else if (n->kind() == prim::ConstantChunk) {
      attributes["chunks"] = n->i(attr::chunks);
      attributes["dim"] = n->i(attr::dim);
    } else if (n->kind() == script_symbols().region) {
      attributes["body"] = graph_data(*n->g(script_symbols().body));
    }
    if (!n->blocks().empty()) {
      py::list blocks;
      for (const Block* inner : n->blocks()) blocks.append(block_data(*inner));
      attributes["blocks"] = blocks;
    }
    nodes.append(py::make_tuple(overload_name(n), attributes, ids(n->inputs()), ids(n->outputs())));
  }
  return py::make_tuple(ids(block.inputs()), nodes, ids(block.outputs()));
}

py::tuple graph_data(const Graph& graph) { return block_data(*graph.block()); }

}  // namespace

Specialization write_definition(const Graph& graph, const std::vector<ArgumentRole>& roles,
                                c10::ArrayRef<c10::IValue> arguments,
                                const std::vector<Places>& results_as) {
  const py::gil_scoped_acquire gil;
  try {
    const py::tuple made = py::handle(adapter).attr("write_definition")(
        graph_data(graph), to_python(roles), to_python(arguments), results_as);
    const py::object definition = made[0];
    py::object executor = definition.attr("fec").attr("executor");
    Specialization out{.signature = {},
                       .by_value = false,
                       .executor = executor.cast<TorchExecutor*>(),
                       .outputs = {}};
    for (const auto& [result, value] :
         made[1].cast<std::vector<std::pair<int, std::optional<int64_t>>>>())
      out.outputs.push_back(
          {.result = result, .value = value ? c10::IValue(*value) : c10::IValue(at::Tensor())});
    free_released();
    definitions()[out.executor] = py::make_tuple(definition, executor).release();
    return out;
  } catch (const py::error_already_set& error) {
    throw std::runtime_error(message_of(error));
  }
}

void release_definitions(const std::vector<const TorchExecutor*>& executors) {
  const std::lock_guard<std::mutex> lock(released().mutex);
  released().executors.insert(released().executors.end(), executors.begin(), executors.end());
}

bool report_fallback(const Graph& graph, const TorchExecutor* executor,
                     const std::vector<ArgumentRole>& roles, c10::ArrayRef<c10::IValue> arguments,
                     const std::string& error) {
  if (!python_alive()) return false;
  const py::gil_scoped_acquire gil;
  try {
    const auto found = definitions().find(executor);
    py::object definition = py::none();
    if (found != definitions().end())
      definition = py::reinterpret_borrow<py::tuple>(found->second)[0];
    return py::handle(adapter)
        .attr("report_fallback")(graph.toString(false), definition, to_python(roles),
                                 to_python(arguments), error)
        .cast<bool>();
  } catch (const py::error_already_set& raised) {
    throw std::runtime_error(message_of(raised));
  }
}

namespace {

void install(const py::object& module) {
  if (adapter) return;
  adapter = module.inc_ref().ptr();
  register_script_operators();
  registerPrePass(fuse_script);
  // Without it the executor does not profile biases, nor operands of ops that only gradients use.
  // Torch calls it for each node, in order, of a graph that it is about to profile. No pass of ours
  // runs between that and the moment when torch cuts out differentiable graphs.
  RegisterProfilingNode([](const Node* n) {
    const ScriptRulesRef rules = script_rules();
    if (!rules->cuda && !rules->cpu) return false;
    take_out_of_place(const_cast<Node*>(n), *rules);
    return find_op(*rules, n) || find_in_place(*rules, n) || adds_a_bias(n);
  });
}

// Sets the observer of fused runs; `look` is a Python function or None.
void compare(bool unfused, const py::object& look) {
  if (look.is_none()) return set_comparison(nullptr);
  const std::shared_ptr<PyObject> kept(look.inc_ref().ptr(), [](PyObject* function) {
    if (!python_alive()) return;
    const py::gil_scoped_acquire gil;
    Py_DECREF(function);
  });
  set_comparison(std::make_shared<Comparison>(Comparison{
      unfused, [kept](c10::ArrayRef<c10::IValue> fused, c10::ArrayRef<c10::IValue> others,
                      const Graph& graph) {
        if (!python_alive()) return;
        const py::gil_scoped_acquire gil;
        try {
          py::handle(kept.get())(to_python(fused), to_python(others), graph.toString(false));
        } catch (const py::error_already_set& error) {
          throw std::runtime_error(message_of(error));
        }
      }}));
}

using Forms = std::tuple<std::unordered_map<std::string, std::optional<std::string>>, bool, bool>;

void set_rules(bool cuda, bool cpu, bool single_nodes, bool siblings,
               const std::unordered_map<std::string, std::tuple<bool, int, bool>>& ops,
               const std::unordered_map<std::string, Forms>& forms,
               const std::unordered_map<std::string, std::pair<bool, bool>>& out_of_place,
               std::unordered_map<std::string, bool> makers) {
  ScriptRules rules{.cuda = cuda,
                    .cpu = cpu,
                    .single_nodes = single_nodes,
                    .siblings = siblings,
                    .ops = {},
                    .out_of_place = {},
                    .makers = std::move(makers)};
  for (const auto& [name, op] : ops)
    rules.ops[name] = {.computes = std::get<0>(op),
                       .sizes = static_cast<SizesOf>(std::get<1>(op)),
                       .gives_bools = std::get<2>(op)};
  for (const auto& [name, form] : forms) {
    ScriptOp& op = rules.ops[name];
    std::tie(op.only, op.halves, op.complexes) = form;
  }
  for (const auto& [name, op] : out_of_place)
    rules.out_of_place[name] = {.any_type = op.first, .kept = op.second};
  set_script_rules(std::move(rules));
}

}  // namespace
}  // namespace fuser::script

PYBIND11_MODULE(_torchscript, m) {
  using namespace fuser;
  using namespace fuser::bind;
  using namespace fuser::bridge;
  using namespace fuser::script;
  py::module_::import("fuser._torch");  // class of executors
  m.def("install", &install, py::arg("adapter"),
        "Registers pass and operators with torch, once per process.");
  m.def("set_rules", &set_rules, py::arg("cuda"), py::arg("cpu"), py::arg("single_nodes"),
        py::arg("siblings"), py::arg("ops"), py::arg("forms"), py::arg("out_of_place"),
        py::arg("makers"),
        "Sets the rules of the pass. single_nodes: fuse groups of a single compute node. siblings: "
        "join groups that read the same tensor. ops: by overload, whether it computes, its sizes "
        "(0 unknown, 1 from the first tensor, 2 broadcast of all), and whether it returns bools. "
        "forms: by op, arguments that must be a string or None, and whether half and complex "
        "tensors are accepted. out_of_place: by kind, ops that replace their in-place forms, "
        "whether for all types, and whether only the in-place form saves its result for the "
        "gradient. makers: by kind, ops whose results are new and not saved for gradients, and "
        "whether they are always real floats.");
  m.def("compare", &compare, py::arg("unfused"), py::arg("look"),
        "Calls look(results, results of the unfused graph, graph as text) after each fused run, or "
        "nothing for None. Without `unfused` the second list is empty.");
  m.def("counters", [] {
    const GroupCounters& c = group_counters();
    py::dict out;
    out["definitions"] = c.definitions.load();
    out["runs"] = c.runs.load();
    out["fallbacks"] = c.fallbacks.load();
    return out;
  });
}
