#include "torch/script/group.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>

#include "base/error.h"
#include "torch/script/python.h"
#include "torch/script/torchscript.h"

namespace fuser::script {

using namespace bridge;
using namespace driver;
using namespace ir;

namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Stack;
using torch::jit::Value;

constexpr size_t most_definitions = 100;  // definitions per group; further kinds of arguments run
                                          // eagerly

bool is_size(int64_t v) { return v > 1 && v < (int64_t{1} << 40); }

ArgumentRole role_of(const Value* v);

// Returns the role of a non-tensor argument in an op.
ArgumentRole role_in(const Node* user, size_t place) {
  if (user->kind() == script_symbols().region)
    return role_of(user->g(script_symbols().body)->inputs()[place]);
  const auto* schema = user->maybeSchema();
  if (!schema || place >= schema->arguments().size()) return ArgumentRole::Constant;
  const c10::Argument& argument = schema->arguments()[place];
  c10::TypePtr real = argument.real_type();
  if (const auto optional = real->cast<c10::OptionalType>()) real = optional->getElementType();
  const std::string type = real->str();
  if (type == "Scalar" || type == "number") return ArgumentRole::Number;
  if (type.find("SymInt") != std::string::npos || argument.name() == "size")
    return ArgumentRole::Sizes;
  return ArgumentRole::Constant;
}

// Returns the role of a value; all its users must agree.
ArgumentRole role_of(const Value* v) {
  if (is_tensor(v)) return ArgumentRole::Tensor;
  std::optional<ArgumentRole> role;
  for (const torch::jit::Use& use : v->uses()) {
    if (use.user->kind() == c10::aten::len) continue;  // the length is part of every signature
    const ArgumentRole here =
        unwraps(use.user) ? role_of(use.user->output()) : role_in(use.user, use.offset);
    if (role && *role != here) return ArgumentRole::Constant;
    role = here;
  }
  return role.value_or(ArgumentRole::Constant);
}

std::vector<ArgumentRole> roles_of(const Graph& graph) {
  std::vector<ArgumentRole> out;
  for (const Value* v : graph.inputs()) out.push_back(role_of(v));
  return out;
}

int64_t bits_of(double v) {
  int64_t bits = 0;
  static_assert(sizeof bits == sizeof v);
  memcpy(&bits, &v, sizeof v);
  return bits;
}

bool result_hides_order(const c10::IValue& v) {
  return v.isTensor() && v.toTensor().defined() && hides_order(v.toTensor().sizes());
}

// Returns whether batch_norm saved the value for its gradient; it has no elements if nothing was
// saved.
bool is_kept(const Value* v) {
  const auto& uses = v->uses();
  return !uses.empty() && std::all_of(uses.begin(), uses.end(), [](const torch::jit::Use& use) {
    if (use.user->kind() != c10::aten::_batch_norm_impl_index_backward) return false;
    const std::string& name = use.user->schema().arguments()[use.offset].name();
    return name == "reservedSpace" || name == "save_mean" || name == "save_var_transform";
  });
}

std::vector<bool> kept(const Graph& graph) {
  std::vector<bool> out;
  for (const Value* v : graph.inputs()) out.push_back(is_kept(v));
  return out;
}

// Is it a running statistic of batch_norm? Torch writes such a tensor without a new version, as the
// gradient of the call before may hold it.
bool is_statistic(const Value* v) {
  return std::any_of(v->uses().begin(), v->uses().end(), [](const torch::jit::Use& use) {
    if (use.user->kind() == script_symbols().region)
      return is_statistic(use.user->g(script_symbols().body)->inputs()[use.offset]);
    const auto* schema = use.user->maybeSchema();
    if (!schema || use.offset >= schema->arguments().size()) return false;
    if (use.user->kind() == c10::aten::instance_norm) return false;  // writes with a new version
    const std::string& name = schema->arguments()[use.offset].name();
    return name == "running_mean" || name == "running_var";
  });
}

std::vector<bool> statistics(const Graph& graph) {
  std::vector<bool> out;
  for (const Value* v : graph.inputs()) out.push_back(is_statistic(v));
  return out;
}

bool is_moved(const c10::IValue& v) {
  if (!v.isTensor() || !v.toTensor().defined()) return false;
  return !row_major(v.toTensor().sizes(), v.toTensor().strides());
}

std::vector<std::optional<Arrangement>> profiled_inputs(const Graph& graph) {
  std::vector<std::optional<Arrangement>> out;
  for (const Value* v : graph.inputs()) {
    const auto layout = profiled(v);
    out.push_back(layout ? std::optional(arrangement(layout->first, layout->second))
                         : std::nullopt);
  }
  return out;
}

// Returns whether the value changes the computation: dims to permute, a branch, the length of a
// list. Layouts were profiled for one of its values only.
bool chooses(const Value* v) {
  const bool list = v->type()->kind() == c10::TypeKind::ListType;
  return role_of(v) == ArgumentRole::Constant || list;
}

std::optional<std::vector<Places>> profiled_outputs(const Graph& graph) {
  const auto inputs = graph.inputs();
  if (std::any_of(inputs.begin(), inputs.end(), chooses)) return std::nullopt;
  std::vector<Places> out;
  for (const Value* v : graph.outputs()) {
    const auto layout = profiled(v);
    if (is_tensor(v) && (!layout || hides_order(layout->first))) return std::nullopt;
    out.push_back(layout ? places(layout->first, layout->second) : Places());
  }
  return out;
}

// ---- signatures

// Additional parts of the signature if not all tensors are row-major: which dims are expanded, and
// sizes up to a limit that decides whether a slice has one element.
struct Signed {
  bool expanded = false;
  int64_t sizes = 0;
};

// Appends the kind of a value and, if it selects the definition, the value itself.
void sign(const c10::IValue& v, ArgumentRole role, Signed also, Signature& out) {
  if (v.isTensor()) {
    const at::Tensor& t = v.toTensor();
    if (!t.defined()) {
      out.push_back(-1);
      return;
    }
    const Arrangement lies = arrangement(t.sizes(), t.strides());
    const int64_t device = t.is_cpu() ? 0 : t.get_device() + 1;
    out.push_back(static_cast<int64_t>(t.scalar_type()) | t.dim() << 8 | device << 16 |
                  int64_t{lies.order != 0} << 30 | lies.ones << 32);
    if (lies.order) out.push_back(lies.order);
    if (also.expanded) out.push_back(lies.expanded);
    if (also.sizes)
      for (int64_t n : t.sizes()) out.push_back(std::min(n, also.sizes + 1));
  } else if (v.isInt()) {
    const int64_t n = v.toInt();
    const bool of_run = role == ArgumentRole::Number || (role == ArgumentRole::Sizes && is_size(n));
    out.push_back(of_run ? -2 : -3);
    if (!of_run) out.push_back(n);
  } else if (v.isDouble()) {
    out.push_back(role == ArgumentRole::Number ? -4 : -5);
    if (role != ArgumentRole::Number) out.push_back(bits_of(v.toDouble()));
  } else if (v.isComplexDouble()) {  // definitions have no complex scalar arguments
    out.insert(out.end(),
               {-13, bits_of(v.toComplexDouble().real()), bits_of(v.toComplexDouble().imag())});
  } else if (v.isBool()) {
    out.push_back(v.toBool() ? -6 : -7);
  } else if (v.isNone()) {
    out.push_back(-8);
  } else if (v.isIntList()) {
    const auto list = v.toDimVector();
    out.push_back(-9);
    out.push_back(static_cast<int64_t>(list.size()));
    for (int64_t n : list) out.push_back(role == ArgumentRole::Sizes && is_size(n) ? -2 : n);
  } else if (v.isBoolList()) {
    const auto list = v.toBoolList();
    out.push_back(-10);
    out.push_back(static_cast<int64_t>(list.size()));
    for (bool b : list) out.push_back(b);
  } else if (v.isString()) {
    const std::string& text = v.toStringRef();
    out.push_back(-11);
    out.push_back(static_cast<int64_t>(text.size()));
    for (char each : text) out.push_back(each);
  } else if (v.isDevice()) {
    c10::Device device = v.toDevice();
    if (device.is_cuda() && !device.has_index())
      device = c10::impl::VirtualGuardImpl(device.type()).getDevice();
    out.push_back(-12);
    out.push_back(static_cast<int64_t>(device.type()) << 8 | (device.index() & 0xff));
  } else {
    throw Fault(FaultKind::Unsupported, "script-argument",
                text("unsupported argument of a fused group: ", v.tagKind()));
  }
}

}  // namespace

GroupCounters& group_counters() {
  static auto* const counters = new GroupCounters;
  return *counters;
}

namespace {

struct Compared {
  std::mutex mutex;
  std::atomic<bool> wanted{false};
  std::shared_ptr<const Comparison> by;
};

Compared& compared() {
  static auto* const it = new Compared;
  return *it;
}

std::shared_ptr<const Comparison> comparison() {
  if (!compared().wanted.load(std::memory_order_relaxed)) return nullptr;
  const std::lock_guard<std::mutex> lock(compared().mutex);
  return compared().by;
}

// Returns the arguments with cloned tensors, because a run may write into its arguments.
std::vector<c10::IValue> copies(c10::ArrayRef<c10::IValue> arguments) {
  std::vector<c10::IValue> out = arguments.vec();
  for (c10::IValue& v : out)
    if (v.isTensor() && v.toTensor().defined()) v = v.toTensor().clone();
  return out;
}

}  // namespace

void set_comparison(std::shared_ptr<const Comparison> wanted) {
  const std::lock_guard<std::mutex> lock(compared().mutex);
  compared().by.swap(wanted);
  compared().wanted = compared().by != nullptr;
}

size_t ScriptGroup::Hash::operator()(const Signature& s) const {
  uint64_t h = s.size();
  for (int64_t v : s) h = (h ^ static_cast<uint64_t>(v)) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
  return h;
}

ScriptGroup::ScriptGroup(std::shared_ptr<Graph> graph)
    : graph_(std::move(graph)),
      unfused_(graph_, "unfused_group"),
      roles_(roles_of(*graph_)),
      kept_(kept(*graph_)),
      statistics_(statistics(*graph_)),
      inputs_as_(profiled_inputs(*graph_)),
      outputs_as_(profiled_outputs(*graph_)),
      moves_(moves(*graph_->block())),
      deciding_sizes_(deciding_sizes(*graph_->block())) {}

ScriptGroup::~ScriptGroup() {
  std::vector<const TorchExecutor*> executors;
  for (const auto& made : all_)
    if (made->executor) executors.push_back(made->executor);
  release_definitions(executors);
}

ArgumentRole ScriptGroup::role(size_t place, bool by_value) const {
  const ArgumentRole role = roles_[place];
  return by_value && role != ArgumentRole::Tensor ? ArgumentRole::Constant : role;
}

Signature ScriptGroup::signature(c10::ArrayRef<c10::IValue> arguments, bool by_value) const {
  // Results do not follow the layout of an operand along its expanded dims. This matters only if
  // other tensors are not row-major.
  const bool moved = moves_ || std::any_of(arguments.begin(), arguments.end(), is_moved);
  const Signed also{.expanded = moved, .sizes = moved ? deciding_sizes_ : 0};
  Signature out;
  // The default dtype is the result type of integers in a division, or with a Python float.
  const auto floats = static_cast<int64_t>(c10::get_default_dtype_as_scalartype());
  out.push_back(by_value | moved << 1 | floats << 2);
  for (size_t i = 0; i < arguments.size(); ++i) sign(arguments[i], role(i, by_value), also, out);
  return out;
}

size_t ScriptGroup::count() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return all_.size();
}

const Specialization* ScriptGroup::find(const Signature& signature) {
  const Specialization* const last = last_.load(std::memory_order_acquire);
  if (last && last->signature == signature) return last;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = specializations_.find(signature);
  if (found == specializations_.end()) return nullptr;
  last_.store(found->second, std::memory_order_release);
  return found->second;
}

// Returns the layouts of eager results for these arguments. They follow the operands if all tensors
// are row-major, and the profile if the arguments have their profiled layouts. nullopt: one eager
// run must show them.
std::optional<std::vector<Places>> ScriptGroup::example_for(const Signature& signature,
                                                            c10::ArrayRef<c10::IValue> arguments) {
  bool plain = !moves_, as_profiled = outputs_as_.has_value() && !deciding_sizes_;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].isTensor() || !arguments[i].toTensor().defined()) continue;
    const at::Tensor& t = arguments[i].toTensor();
    const Arrangement lies = arrangement(t.sizes(), t.strides());
    plain &= lies.order == 0;
    as_profiled &= inputs_as_[i] && *inputs_as_[i] == lies;
  }
  if (plain) return std::vector<Places>(graph_->outputs().size());
  if (as_profiled) return outputs_as_;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = examples_.find(signature);
  return found == examples_.end() ? std::nullopt : std::optional(found->second);
}

const Specialization* ScriptGroup::specialize(const Signature& signature,
                                              c10::ArrayRef<c10::IValue> arguments, bool by_value,
                                              const std::vector<Places>& results_as) {
  std::vector<ArgumentRole> roles;
  for (size_t i = 0; i < roles_.size(); ++i) roles.push_back(role(i, by_value));
  Specialization made = write_definition(*graph_, roles, arguments, results_as);
  made.signature = signature;
  made.by_value = by_value;
  return keep(std::move(made), false);
}

// Stores a definition. If two threads write the same definition, then the first one is kept, unless
// it failed.
const Specialization* ScriptGroup::keep(Specialization made, bool replace) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Specialization*& place = specializations_[made.signature];
  if (place && !replace) {
    release_definitions({made.executor});
    return place;
  }
  if (made.executor) ++group_counters().definitions;
  all_.push_back(std::make_unique<const Specialization>(std::move(made)));
  place = all_.back().get();
  last_.store(place, std::memory_order_release);
  return place;
}

TorchArguments ScriptGroup::bind(const Specialization& how,
                                 c10::ArrayRef<c10::IValue> arguments) const {
  const Fusion& fusion = how.executor->executor.fusion();
  TorchArguments out;
  out.tensors.reserve(fusion.inputs.size());
  out.views.reserve(fusion.inputs.size());
  out.scalars.resize(fusion.scalars.size());
  size_t place = 0;
  const auto number = [&](Number value) { out.scalars[fusion.arguments[place++].index] = value; };
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& v = arguments[i];
    const ArgumentRole how_taken = role(i, how.by_value);
    if (v.isTensor()) {
      const at::Tensor& given = v.toTensor();
      if (!given.defined()) continue;
      out.tensors.push_back(is_lazy(given)   ? resolved(given)
                            : statistics_[i] ? given.variable_data()
                                             : given);
      out.views.push_back(view_of(out.tensors.back(), place++));
      if (out.device == cpu_device) out.device = out.views.back().device;
    } else if (how_taken == ArgumentRole::Number && v.isDouble()) {
      number({.real = v.toDouble()});
    } else if (v.isInt()) {
      if (how_taken == ArgumentRole::Number ||
          (how_taken == ArgumentRole::Sizes && is_size(v.toInt())))
        number({.integer = v.toInt()});
    } else if (how_taken == ArgumentRole::Sizes && v.isIntList()) {
      for (int64_t n : v.toDimVector())
        if (is_size(n)) number({.integer = n});
    }
  }
  return out;
}

// A run by kernels, or the state that an eager run in its place continues from.
struct ScriptGroup::Attempt {
  const Specialization* how = nullptr;
  Results results;
  bool done = false;
  Signature key;
  bool by_value = false;
  bool shows = false;         // the eager run shows the layouts of results
  std::exception_ptr failed;  // error of the kernels
};

void ScriptGroup::run_fused(c10::ArrayRef<c10::IValue> arguments, bool by_value, Attempt& attempt) {
  attempt.by_value = by_value;
  attempt.key = signature(arguments, by_value);
  const Specialization*& how = attempt.how;
  how = find(attempt.key);
  try {
    if (!how) {
      if (!python_alive() || count() >= most_definitions) return;
      const auto results_as = example_for(attempt.key, arguments);
      attempt.shows = !results_as;
      if (attempt.shows) return;
      how = specialize(attempt.key, arguments, by_value, *results_as);
    }
    if (!how->executor) return;
    TorchArguments bound = bind(*how, arguments);
    const RecordRef record = prepare(how->executor->executor, bound, {});
    attempt.results = bridge::run(*record, bound);
    attempt.done = true;
  } catch (const std::exception&) {
    const bool numbers = std::any_of(roles_.begin(), roles_.end(), [](ArgumentRole r) {
      return r == ArgumentRole::Number || r == ArgumentRole::Sizes;
    });
    if (!how && numbers && !by_value) {
      by_value_ = true;
      return run_fused(arguments, true, attempt);
    }
    attempt.failed = std::current_exception();
  }
}

void ScriptGroup::run(Stack& stack) {
  const size_t count = roles_.size();
  const auto given = torch::jit::last(stack, count);
  bool fuses = !c10::impl::dispatch_mode_enabled();  // a mode, like a wrapper, must see each op
  for (size_t i = 0; i < count && fuses; ++i) {
    const bool tensor = given[i].isTensor() && given[i].toTensor().defined();
    // Tensors without elements have special strides, and eager execution is free for them.
    fuses = !tensor ||
            (!is_wrapper(given[i].toTensor()) && (kept_[i] || given[i].toTensor().numel() != 0));
  }
  if (!fuses) return torch::jit::InterpreterState(unfused_).run(stack);
  const auto by = comparison();
  Stack unfused;
  if (by && by->unfused) unfused = copies(torch::jit::last(stack, count));
  Attempt attempt;
  run_fused(torch::jit::last(stack, count), by_value_, attempt);
  if (!attempt.done) {
    run_unfused(stack, attempt);
    return;
  }
  ++group_counters().runs;
  torch::jit::drop(stack, count);
  for (const Specialization::Output& o : attempt.how->outputs) {
    if (o.result < 0) {
      stack.push_back(o.value);
    } else {
      stack.emplace_back(attempt.results[o.result]);
    }
  }
  if (!by) return;
  if (by->unfused) torch::jit::InterpreterState(unfused_).run(unfused);
  by->look(torch::jit::last(stack, attempt.how->outputs.size()), unfused, *graph_);
}

// Runs eagerly. An error of the eager run is the user's, and is not cached. If kernels failed and
// eager execution did not, then the failure is reported once, and later runs of this kind are
// eager.
void ScriptGroup::run_unfused(Stack& stack, const Attempt& attempt) {
  const auto given = torch::jit::last(stack, roles_.size());
  const std::vector<c10::IValue> arguments =
      attempt.failed ? given.vec() : std::vector<c10::IValue>();
  torch::jit::InterpreterState(unfused_).run(stack);
  if (attempt.shows) {
    const auto results = torch::jit::last(stack, graph_->outputs().size());
    if (std::any_of(results.begin(), results.end(), result_hides_order)) return;
    std::vector<Places> results_as;
    for (const c10::IValue& v : results) {
      const bool tensor = v.isTensor() && v.toTensor().defined();
      results_as.push_back(tensor ? places(v.toTensor().sizes(), v.toTensor().strides())
                                  : Places());
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    examples_.emplace(attempt.key, std::move(results_as));
    return;
  }
  ++group_counters().fallbacks;
  if (!attempt.failed) return;
  keep({.signature = attempt.key, .by_value = attempt.by_value, .executor = nullptr, .outputs = {}},
       true);
  if (reported_.exchange(true)) return;
  try {
    std::rethrow_exception(attempt.failed);
  } catch (const std::exception& error) {
    const TorchExecutor* executor = attempt.how ? attempt.how->executor : nullptr;
    if (!report_fallback(*graph_, executor, roles_, arguments, error.what())) return;
    reported_ = false;
    throw;
  }
}

namespace {

// Returns whether the tensor has a tangent of forward-mode AD, which kernels would drop.
bool has_tangent(const at::Tensor& t) { return t.unsafeGetTensorImpl()->_fw_grad(0, t).defined(); }

// Conditions of a guard on a tensor. The group itself checks sizes and strides. For an optional
// tensor, only memory and gradients are checked here.
struct Expected {
  bool optional = false;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::Device device = c10::kCPU;
  int64_t rank = 0;

  explicit Expected(const c10::TypePtr& given) {
    const auto type = given->cast<c10::TensorType>();
    optional = !type;
    if (optional) return;
    dtype = *type->scalarType();
    device = *type->device();
    rank = static_cast<int64_t>(*type->dim());
  }

  bool holds(const c10::IValue& v, bool gradients) const {
    if (v.isNone()) return optional;
    if (!v.isTensor()) return false;
    const at::Tensor& t = v.toTensor();
    if (!t.defined()) return false;
    // The group runs unfused for a wrapper: the alternative of the guard would be profiled with it.
    if (!is_wrapper(t) && ((gradients && t.requires_grad()) || !has_memory(t) || has_tangent(t)))
      return false;
    return optional || (t.scalar_type() == dtype && t.device() == device && t.dim() == rank);
  }
};

}  // namespace

void register_script_operators() {
  register_copies();
  using torch::jit::Operator;
  const auto group = [](const Node* node) -> torch::jit::Operation {
    const auto run = std::make_shared<ScriptGroup>(node->g(torch::jit::attr::Subgraph)->copy());
    return [run](Stack& stack) { run->run(stack); };
  };
  const auto guard = [](const Node* node) -> torch::jit::Operation {
    const auto& types = node->tys(torch::jit::attr::types);
    return [expected = std::vector<Expected>(types.begin(), types.end())](Stack& stack) {
      const auto arguments = torch::jit::last(stack, expected.size());
      const bool gradients = c10::GradMode::is_enabled();
      bool holds = true;
      for (size_t i = 0; i < expected.size() && holds; ++i)
        holds = expected[i].holds(arguments[i], gradients);
      torch::jit::drop(stack, expected.size());
      stack.emplace_back(holds);
    };
  };
  // Operator of a region in a group that runs unfused.
  const auto region = [](const Node* node) -> torch::jit::Operation {
    return [code = torch::jit::Code(node->g(script_symbols().body)->copy(), "region")](
               Stack& stack) { torch::jit::InterpreterState(code).run(stack); };
  };
  static const torch::jit::RegisterOperators registered({
      sizes_operator(),
      numbers_operator(),
      Operator(script_symbols().region, region, c10::AliasAnalysisKind::PURE_FUNCTION),
      Operator(c10::prim::CudaFusionGroup, group, c10::AliasAnalysisKind::INTERNAL_SPECIAL_CASE),
      Operator("prim::CudaFusionGuard(...) -> bool", guard, c10::AliasAnalysisKind::FROM_SCHEMA),
  });
}

}  // namespace fuser::script
