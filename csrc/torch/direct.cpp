#include "torch/direct.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/python_variable.h>

#include "base/error.h"
#include "torch/python_executor.h"

namespace py = pybind11;

namespace fuser::bridge {
struct Saved;  // names the specialization below
}  // namespace fuser::bridge
// AutogradContext exposes its saved variables only to torch's nodes, which release them after a
// complete backward pass. This specialization for a type of fuser gains that access.
template <>
struct torch::autograd::CppNode<fuser::bridge::Saved> {
  static void release(AutogradContext& context) {
    context.saved_variables_.clear();
    context.has_freed_buffers_ = true;
  }
};

namespace fuser::bridge {

using namespace driver;

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Throws the current Python error as torch's Python functions do, so that engine and caller
// preserve it. The interpreter's lock must be held.
[[noreturn]] void throw_python_error() {
  python_error raised;
  raised.persist();
  throw raised;
}

// Called in a handler. Returns if Python should run the graph instead, because its function meets
// the error again and selects a fallback. Rethrows failed launches, and exceptions that are no
// Exception.
void leave_to_python() {
  const py::gil_scoped_acquire gil;
  py::detail::try_translate_exceptions();
  py::error_already_set error;
  const py::object launch_error = py::module_::import("fuser.errors").attr("LaunchError");
  if (error.matches(PyExc_Exception) && !error.matches(launch_error)) return;
  error.restore();
  throw_python_error();
}

// Returns the results of the graph, or nullopt if the definition cannot run; then torch's ops run.
std::optional<variable_list> run_whole(const WholeGraph& graph, const variable_list& given) {
  Executor& executor = graph.executor->executor;
  TorchArguments arguments;
  arguments.scalars.resize(executor.fusion().scalars.size());
  Results made;
  try {
    for (size_t i = 0; i < graph.arguments.size(); ++i) {
      at::Tensor t = given[graph.arguments[i]];
      if (is_lazy(t)) t = resolved(t);
      arguments.views.push_back(view_of(t, i));
      if (arguments.device == cpu_device) arguments.device = arguments.views.back().device;
      arguments.tensors.push_back(std::move(t));
    }
    made = run_for_python(*prepare(executor, arguments, {}), arguments);
  } catch (...) {
    leave_to_python();
    return std::nullopt;
  }
  variable_list out;
  out.reserve(graph.results.size() + 1);
  for (const std::optional<int>& r : graph.results)
    out.push_back(!r ? at::Tensor() : *r < 0 ? given[~*r] : made[*r]);
  return out;
}

variable_list run_in_python(const CompiledGraph& graph, variable_list given) {
  const py::gil_scoped_acquire gil;
  try {
    py::list arguments(given.size());
    for (size_t i = 0; i < given.size(); ++i)
      PyList_SET_ITEM(arguments.ptr(), i, THPVariable_Wrap(std::move(given[i])));
    given.clear();
    const py::object results = graph.call(arguments);
    variable_list out;
    for (const py::handle result : results) {
      FUSER_ASSERT(result.is_none() || THPVariable_Check(result.ptr()), "a result is not a tensor");
      out.push_back(result.is_none() ? at::Tensor() : THPVariable_Unpack(result.ptr()));
    }
    return out;
  } catch (py::error_already_set& error) {
    error.restore();
    throw_python_error();
  }
}

bool runs_whole(const CompiledGraph& graph) {
  return graph.whole && !python_runs_graphs().load(std::memory_order_relaxed) &&
         !graph.whole->executor->is_awaited.load(std::memory_order_relaxed);
}

// Disables autocast during the run of a graph: the graph contains its casts, and ops that it
// computes in float32 must not be cast again.
struct WithoutAutocast {
  const c10::impl::ExcludeDispatchKeyGuard guard{c10::autocast_dispatch_keyset};
};

variable_list run_graph(const CompiledGraph& graph, variable_list given) {
  const WithoutAutocast without_autocast;
  if (runs_whole(graph))
    if (auto results = run_whole(*graph.whole, given)) return std::move(*results);
  return run_in_python(graph, std::move(given));
}

// Returns a gradient with the traced strides. Torch also passes expanded gradients.
at::Tensor laid_out(const at::Tensor& gradient, const DirectFunction::Tangent& wanted) {
  if (gradient.strides().equals(wanted.strides)) return gradient;
  if (!gradient.sizes().equals(wanted.sizes)) return gradient.contiguous();
  return at::empty_strided(wanted.sizes, wanted.strides, gradient.options()).copy_(gradient);
}

// Marks gradients as depending on `sources`, and raises an error if their own gradients are
// requested.
struct Once : torch::autograd::Function<Once> {
  static variable_list forward(AutogradContext*, at::TensorList, const variable_list* results) {
    return *results;
  }
  static variable_list backward(AutogradContext*, const variable_list&) {
    throw std::runtime_error(
        "backend=\"fuser\" and memory_efficient_fusion do not support double backward");
  }
};

// Adds placeholder tensors with the gradient edges of a node's inputs, because the inputs
// themselves may be freed.
void add_stand_ins(variable_list& sources) {
  const auto node = torch::autograd::get_current_node();
  if (!node) return;
  for (const torch::autograd::Edge& edge : node->next_edges())
    if (edge.is_valid())
      torch::autograd::impl::set_gradient_edge(sources.emplace_back(at::empty({0})), edge);
}

void refuse_gradients(variable_list& gradients, const variable_list& sources) {
  const at::AutoGradMode with_gradients(true);
  variable_list defined;
  for (const at::Tensor& g : gradients)
    if (g.defined()) defined.push_back(g);
  const at::TensorList list = sources;
  defined = Once::apply(list, &defined);
  auto next = defined.begin();
  for (at::Tensor& g : gradients)
    if (g.defined()) g = *next++;
}

using SavedBy = torch::autograd::CppNode<Saved>;

constexpr const char* saved_function = "function";

// Detaches a saved view. Otherwise it would keep its base, a result of the same node, alive
// forever.
at::Tensor no_view(const at::Tensor& t) { return t.defined() && t.is_view() ? t.detach() : t; }

// Returns a separate autograd result for a view. Writes into it also change its base, which may be
// saved, so both share a version counter.
at::Tensor no_view_of_autograd(const at::Tensor& t) {
  at::Tensor result = at::_unsafe_view(t, t.sizes());
  torch::autograd::impl::set_version_counter(result, torch::autograd::impl::version_counter(t));
  return result;
}

struct Direct : torch::autograd::Function<Direct> {
  static variable_list forward(AutogradContext* context, at::TensorList inputs,
                               const DirectFunctionRef* function) {
    const DirectFunction& f = *function->operator->();
    variable_list results = run_graph(f.forward, inputs.vec());
    variable_list kept;
    kept.reserve(results.size() - f.results);
    for (size_t i = f.results; i < results.size(); ++i) kept.push_back(no_view(results[i]));
    context->save_for_backward(std::move(kept));
    results.resize(f.results);
    for (at::Tensor& t : results)
      if (t.is_view()) t = no_view_of_autograd(t);
    if (f.tangents.size() < f.results)
      context->mark_non_differentiable(without_tangents(f, results));
    context->saved_data[saved_function] = function->memory;
    return results;
  }

  static variable_list without_tangents(const DirectFunction& f, const variable_list& results) {
    variable_list out;
    auto tangent = f.tangents.begin();
    for (size_t i = 0; i < results.size(); ++i) {
      if (tangent != f.tangents.end() && tangent->result == i)
        ++tangent;
      else
        out.push_back(results[i]);
    }
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list given) {
    const DirectFunctionRef kept{context->saved_data.at(saved_function).toTensor()};
    const DirectFunction& f = *kept.operator->();
    if (!f.backward->whole && !f.deterministic && at::globalContext().deterministicAlgorithms())
      throw std::runtime_error(
          "torch.use_deterministic_algorithms(True) was called after the forward pass of a "
          "compiled "
          "function; its backward pass was compiled without");
    variable_list sources;
    const bool again = at::GradMode::is_enabled();
    if (again) {
      sources = given;
      add_stand_ins(sources);
    }
    const at::AutoGradMode no_gradients(false);
    variable_list arguments = context->get_saved_variables();
    // The graph frees each at its last use, unless the node keeps them for another backward pass.
    if (!torch::autograd::get_current_graph_task_keep_graph()) SavedBy::release(*context);
    arguments.reserve(arguments.size() + f.tangents.size());
    for (const DirectFunction::Tangent& t : f.tangents)
      arguments.push_back(laid_out(given[t.result], t));
    given.clear();
    variable_list gradients = run_graph(*f.backward, std::move(arguments));
    if (again) refuse_gradients(gradients, sources);
    gradients.emplace_back();  // gradient of the function argument
    return gradients;
  }
};

}  // namespace
}  // namespace fuser::bridge

// Torch's own version also records the node's name in each pass, for error messages, and copies
// gradients back and forth.
template <>
torch::autograd::variable_list torch::autograd::CppNode<fuser::bridge::Direct>::apply(
    variable_list&& given) {
  const std::lock_guard<std::mutex> lock(mutex_);
  c10::OptionalDeviceGuard guard;
  for (size_t i = 0; i < given.size(); ++i)
    if (!given[i].defined()) given[i] = output_info_[i].zeros(guard);
  variable_list gradients = fuser::bridge::Direct::backward(&ctx_, std::move(given));
  gradients.pop_back();  // the function argument is no tensor
  return gradients;
}

namespace fuser::bridge {
namespace {

bool autocasts() {
  const auto autocast = c10::autocast_dispatch_keyset;
  return (c10::impl::tls_local_dispatch_key_set().excluded_ & autocast) != autocast;
}

// Returns whether autocast is enabled for tensors of the device, and the dtype it casts to.
int64_t autocast_of(c10::DeviceType device) {
  if (!at::autocast::is_autocast_available(device)) return -1;
  const auto type = static_cast<int64_t>(at::autocast::get_autocast_dtype(device));
  return type << 1 | int64_t{at::autocast::is_autocast_enabled(device)};
}

// Computes the key of a trace. Returns false if no trace may run.
bool layouts(PyObject* const* given, size_t count, std::vector<int64_t>& key) {
  key.clear();
  if (!at::GradMode::is_enabled() || is_transformed()) return false;
  const bool casts = autocasts();
  for (size_t i = 0; i < count; ++i) {
    if (!THPVariable_CheckExact(given[i])) return false;
    const at::Tensor& t = THPVariable_Unpack(given[i]);
    if (t.layout() != c10::kStrided || t.unsafeGetTensorImpl()->_fw_grad(0, t).defined())
      return false;
    key.push_back(static_cast<int64_t>(t.scalar_type()) | int64_t{t.requires_grad()} << 8 |
                  static_cast<int64_t>(t.device().type()) << 16 |
                  static_cast<int64_t>(static_cast<uint8_t>(t.device().index())) << 24 |
                  t.dim() << 32 | int64_t{casts} << 40);
    if (casts) key.push_back(autocast_of(t.device().type()));
    key.insert(key.end(), t.sizes().begin(), t.sizes().end());
    key.insert(key.end(), t.strides().begin(), t.strides().end());
  }
  return true;
}

}  // namespace

DirectFunctionRef shared(std::unique_ptr<DirectFunction> function) {
  const auto free = [](void* memory) {
    if (!python_alive()) return;
    const py::gil_scoped_acquire gil;
    delete static_cast<DirectFunction*>(memory);
  };
  return {at::from_blob(function.release(), {1}, free, at::kByte)};
}

std::atomic<bool>& python_runs_graphs() {
  static std::atomic<bool> set{false};
  return set;
}

namespace {

// Calls a graph without gradients in Python, with its arguments unchanged.
py::object call_in_python(const DirectFunction& f, PyObject* const* given, size_t count) {
  py::list arguments(count);
  for (size_t i = 0; i < count; ++i) PyList_SET_ITEM(arguments.ptr(), i, Py_NewRef(given[i]));
  return py::tuple(f.forward.call(arguments));
}

variable_list run_with_gradients(const DirectFunctionRef& function, variable_list inputs) {
  for (const int i : function->detached) inputs[i] = inputs[i].detach();
  const at::AutoGradMode with_gradients(true);
  const at::TensorList list = inputs;
  return Direct::apply(list, &function);
}

}  // namespace

bool is_transformed() {
  return c10::impl::TorchDispatchModeTLS::stack_len() > 0 ||
         c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Tracer) ||
         c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}

py::object call_direct(const DirectFunctionRef& function, PyObject* const* given, size_t count) {
  const DirectFunction& f = *function.operator->();
  std::optional<at::AutoGradMode> no_gradients;
  if (!f.backward) no_gradients.emplace(false);
  if (!f.backward && !runs_whole(f.forward)) {
    const WithoutAutocast without_autocast;
    return call_in_python(f, given, count);
  }
  variable_list inputs;
  inputs.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    if (!THPVariable_Check(given[i])) throw py::type_error("expected tensors");
    inputs.push_back(THPVariable_Unpack(given[i]));
  }
  variable_list results = f.backward ? run_with_gradients(function, std::move(inputs))
                                     : run_graph(f.forward, std::move(inputs));
  if (f.finish.is_none())
    return py::reinterpret_steal<py::object>(THPVariable_Wrap(std::move(results[0])));
  py::tuple wrapped(results.size());
  for (size_t i = 0; i < results.size(); ++i)
    PyTuple_SET_ITEM(wrapped.ptr(), i, THPVariable_Wrap(std::move(results[i])));
  const bool as_it_is = f.finish.ptr() == reinterpret_cast<PyObject*>(&PyTuple_Type);
  return as_it_is ? py::object(std::move(wrapped)) : f.finish(wrapped);
}

size_t DirectTraces::Hash::operator()(const std::vector<int64_t>& key) const {
  uint64_t h = key.size();
  for (int64_t v : key) h = (h ^ static_cast<uint64_t>(v)) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
  return h;
}

bool DirectTraces::lacks(PyObject* const* given, size_t count) const {
  std::vector<int64_t> key;
  return layouts(given, count, key) && !traces_.contains(key);
}

void DirectTraces::add(PyObject* const* given, size_t count,
                       std::optional<DirectFunctionRef> function) {
  std::vector<int64_t> key;
  if (layouts(given, count, key)) traces_[std::move(key)] = std::move(function);
}

PyObject* DirectTraces::call(PyObject* const* given, size_t count) const {
  thread_local std::vector<int64_t> key;
  const auto found = layouts(given, count, key) ? traces_.find(key) : traces_.end();
  if (found == traces_.end() || !found->second) Py_RETURN_NOTIMPLEMENTED;
  // a copy, because another thread may add traces
  const DirectFunctionRef function = *found->second;
  return call_direct(function, given, count).release().ptr();
}

}  // namespace fuser::bridge
