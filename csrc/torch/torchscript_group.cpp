#include "torch/torchscript_group.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>

#include "base/error.h"
#include "torch/torchscript.h"
#include "torch/torchscript_python.h"

namespace fuser {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Stack;
using torch::jit::Value;

bool is_size(int64_t v) { return v > 1 && v < (int64_t{1} << 40); }

ArgumentRole role_of(const Value* v);

// What an op says about an argument that is not a tensor.
ArgumentRole role_in(const Node* user, size_t place) {
  if (user->kind() == script_region())
    return role_of(user->g(script_region_body())->inputs()[place]);
  const auto* schema = user->maybeSchema();
  if (!schema || place >= schema->arguments().size()) return ArgumentRole::Constant;
  const c10::Argument& argument = schema->arguments()[place];
  const std::string type = argument.real_type()->str();
  if (type == "Scalar" || type == "number") return ArgumentRole::Number;
  if (type.find("SymInt") != std::string::npos || argument.name() == "size")
    return ArgumentRole::Sizes;
  return ArgumentRole::Constant;
}

// All of whose users must agree.
ArgumentRole role_of(const Value* v) {
  if (is_tensor(v)) return ArgumentRole::Tensor;
  std::optional<ArgumentRole> role;
  for (const torch::jit::Use& use : v->uses()) {
    if (use.user->kind() == c10::aten::len) continue;  // part of every choice
    const ArgumentRole here = role_in(use.user, use.offset);
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

// The kind of a value and, where it chooses the definition, the value itself.
void sign(const c10::IValue& v, ArgumentRole role, Signature& out) {
  if (v.isTensor()) {
    const at::Tensor& t = v.toTensor();
    if (!t.defined()) {
      out.push_back(-1);
      return;
    }
    int64_t ones = 0;
    const auto sizes = t.sizes();
    for (size_t d = 0; d < sizes.size(); ++d) ones |= int64_t{sizes[d] == 1} << d;
    const int64_t device = t.is_cpu() ? 0 : t.get_device() + 1;
    out.push_back(static_cast<int64_t>(t.scalar_type()) | static_cast<int64_t>(sizes.size()) << 8 |
                  device << 16 | ones << 32);
  } else if (v.isInt()) {
    const int64_t n = v.toInt();
    const bool of_run = role == ArgumentRole::Number || (role == ArgumentRole::Sizes && is_size(n));
    out.push_back(of_run ? -2 : -3);
    if (!of_run) out.push_back(n);
  } else if (v.isDouble()) {
    out.push_back(role == ArgumentRole::Number ? -4 : -5);
    if (role != ArgumentRole::Number) out.push_back(bits_of(v.toDouble()));
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
    out.push_back(-11);
    out.push_back(static_cast<int64_t>(std::hash<std::string>()(v.toStringRef())));
  } else {
    throw Fault(FaultKind::Unsupported, "script-argument",
                text("a fused group was given a ", v.tagKind()));
  }
}

}  // namespace

GroupCounters& group_counters() {
  static auto* const counters = new GroupCounters;
  return *counters;
}

size_t ScriptGroup::Hash::operator()(const Signature& s) const {
  uint64_t h = s.size();
  for (int64_t v : s) h = (h ^ static_cast<uint64_t>(v)) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
  return h;
}

ScriptGroup::ScriptGroup(std::shared_ptr<Graph> graph)
    : graph_(std::move(graph)), unfused_(graph_, "unfused_group"), roles_(roles_of(*graph_)) {}

ArgumentRole ScriptGroup::role(size_t place, bool by_value) const {
  const ArgumentRole role = roles_[place];
  return by_value && role != ArgumentRole::Tensor ? ArgumentRole::Constant : role;
}

Signature ScriptGroup::signature(c10::ArrayRef<c10::IValue> arguments, bool by_value) const {
  Signature out;
  out.push_back(by_value);
  for (size_t i = 0; i < arguments.size(); ++i) sign(arguments[i], role(i, by_value), out);
  return out;
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

const Specialization* ScriptGroup::specialize(const Signature& signature,
                                              c10::ArrayRef<c10::IValue> arguments, bool by_value) {
  std::vector<ArgumentRole> roles;
  for (size_t i = 0; i < roles_.size(); ++i) roles.push_back(role(i, by_value));
  Specialization made = write_definition(*graph_, roles, arguments);
  made.signature = signature;
  made.by_value = by_value;
  return keep(std::move(made), false);
}

// Two threads may write the same definition at a time; the first one stays, unless it failed.
const Specialization* ScriptGroup::keep(Specialization made, bool replace) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Specialization*& place = specializations_[made.signature];
  if (place && !replace) return place;
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
      const bool lazy = given.is_conj() || given.is_neg();
      out.tensors.push_back(lazy ? given.resolve_conj().resolve_neg() : given);
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

// False: eager is to compute it.
bool ScriptGroup::run_fused(c10::ArrayRef<c10::IValue> arguments, std::vector<at::Tensor>& results,
                            const Specialization*& how) {
  const bool by_value = by_value_;
  const Signature key = signature(arguments, by_value);
  how = find(key);
  try {
    if (!how) {
      if (!python_alive()) return false;
      how = specialize(key, arguments, by_value);
    }
    if (!how->executor) return false;
    TorchArguments bound = bind(*how, arguments);
    const RecordRef record = prepare(how->executor->executor, bound, {});
    results = fuser::run(*record, bound);
    return true;
  } catch (const std::exception& error) {
    const bool numbers = std::any_of(roles_.begin(), roles_.end(), [](ArgumentRole r) {
      return r == ArgumentRole::Number || r == ArgumentRole::Sizes;
    });
    if (!how && numbers && !by_value) {
      by_value_ = true;
      return run_fused(arguments, results, how);
    }
    keep({.signature = key, .by_value = by_value, .executor = nullptr, .outputs = {}}, true);
    if (!reported_.exchange(true) && report_fallback(*graph_, arguments, error.what())) {
      reported_ = false;
      throw;
    }
    return false;
  }
}

void ScriptGroup::run(Stack& stack) {
  const size_t count = roles_.size();
  std::vector<at::Tensor> results;
  const Specialization* how = nullptr;
  if (!run_fused(torch::jit::last(stack, count), results, how)) {
    run_unfused(stack);
    return;
  }
  ++group_counters().runs;
  torch::jit::drop(stack, count);
  for (const Specialization::Output& o : how->outputs) {
    if (o.result < 0) {
      stack.push_back(o.value);
    } else {
      stack.emplace_back(results[o.result]);
    }
  }
}

void ScriptGroup::run_unfused(Stack& stack) {
  ++group_counters().fallbacks;
  torch::jit::InterpreterState(unfused_).run(stack);
}

namespace {

// What a guard asks of a tensor. Sizes and strides are the group's own business.
struct Expected {
  c10::ScalarType dtype;
  c10::Device device;
  int64_t rank;

  explicit Expected(const c10::TypePtr& type)
      : dtype(*type->expectRef<c10::TensorType>().scalarType()),
        device(*type->expectRef<c10::TensorType>().device()),
        rank(static_cast<int64_t>(*type->expectRef<c10::TensorType>().dim())) {}

  bool holds(const c10::IValue& v, bool gradients) const {
    if (!v.isTensor()) return false;
    const at::Tensor& t = v.toTensor();
    return t.defined() && t.scalar_type() == dtype && t.device() == device && t.dim() == rank &&
           !(gradients && t.requires_grad());
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
  // Where a fused group is run unfused.
  const auto region = [](const Node* node) -> torch::jit::Operation {
    return [code = torch::jit::Code(node->g(script_region_body())->copy(), "region")](
               Stack& stack) { torch::jit::InterpreterState(code).run(stack); };
  };
  static const torch::jit::RegisterOperators registered({
      Operator(script_region(), region, c10::AliasAnalysisKind::PURE_FUNCTION),
      Operator(c10::prim::CudaFusionGroup, group, c10::AliasAnalysisKind::INTERNAL_SPECIAL_CASE),
      Operator("prim::CudaFusionGuard(...) -> bool", guard, c10::AliasAnalysisKind::FROM_SCHEMA),
  });
}

}  // namespace fuser
