#include "driver/compile.h"

#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "driver/cuda_api.h"
#include "fusion/define.h"

namespace fuser {
namespace {

// May output `o` be stored into its alias input while this group's kernel runs? Only if every read
// of that memory is by the same thread at the same coordinates and no other kernel reads it.
bool may_store_in_place(const Fusion& fusion, const std::vector<Refined>& groups, int output,
                        const std::vector<bool>& overlapping) {
  const int input = fusion.outputs[output].alias;
  if (input < 0 || overlapping[input]) return false;
  const Tensor* target = fusion.inputs[input];
  for (const Refined& g : groups) {
    const std::vector<Expr>* stored_at = nullptr;
    for (const Store& s : g.stores)
      if (s.output == output) stored_at = &s.at;
    for (const Value& v : g.values) {
      if (!std::holds_alternative<Read>(v.how) || v.tensor != target) continue;
      if (!stored_at || v.at != *stored_at) return false;
    }
  }
  return true;
}

// "add_gelu_tanh_mul": the last ops of the kernel, as people would call it.
std::string kernel_name(const Scheduler& scheduler, const Refined& refined) {
  std::vector<std::string> ops;
  for (const Value& v : refined.values)
    if (const auto* a = std::get_if<Apply>(&v.how)) ops.emplace_back(row(a->op).name);
  constexpr size_t most = 4;
  if (ops.size() > most) ops.erase(ops.begin(), ops.end() - most);
  if (ops.empty()) ops.emplace_back("copy");
  return text(scheduler.name, "_", joined(ops, "_"));
}

}  // namespace

std::unique_ptr<Specialized> specialize_fusion(const Fusion& fusion,
                                               std::vector<LayoutClass> layouts,
                                               const std::vector<bool>& overlapping) {
  std::vector<std::vector<bool>> ones;
  for (const LayoutClass& l : layouts) ones.push_back(l.one);
  auto out = std::make_unique<Specialized>();
  out->fusion = specialize(fusion, ones);
  out->layouts = std::move(layouts);
  if (dump_enabled("fusion", "")) dump("fusion", "fusion", to_python(out->fusion));
  std::vector<Refined> refined = refine(out->fusion);
  for (size_t o = 0; o < out->fusion.outputs.size(); ++o)
    out->in_place.push_back(
        may_store_in_place(out->fusion, refined, static_cast<int>(o), overlapping));
  for (Refined& r : refined) {
    Group& g = out->groups.emplace_back();
    g.problem = make_problem(out->fusion, std::move(r), out->layouts, out->in_place);
    g.scheduler = &choose(g.problem, g.verdict);
    for (const Axis& a : g.problem.refined.axes) g.extent_slots.push_back(g.sizes.add(a.extent));
    for (const Fact& f : g.verdict.facts) g.fact_slots.push_back(g.sizes.add(f.value));
    out->program.steps.emplace_back(KernelStep{static_cast<int>(out->groups.size()) - 1});
  }
  for (const Output& o : out->fusion.outputs) {
    std::vector<int>& slots = out->shape_slots.emplace_back();
    for (Expr e : o.tensor->shape) slots.push_back(out->shapes.add(e));
  }
  for (size_t o = 0; o < out->fusion.outputs.size(); ++o)
    if (out->fusion.outputs[o].alias >= 0 && !out->in_place[o])
      out->program.steps.emplace_back(CopyStep{static_cast<int>(o)});
  return out;
}

Device planning_device(int device) {
  return device == cpu_device ? host_device(static_cast<int>(options().host_arch))
                              : cuda_device(device);
}

Target target_of(int device) {
  if (device == cpu_device) return {.host = true, .arch = 0, .debug = options().host_debug};
  return {.host = false, .arch = cuda_device(device).arch, .debug = false};
}

GroupSizes group_sizes(const Specialized& specialized, Group& group, const Arguments& arguments) {
  GroupSizes out;
  std::vector<int64_t> values;
  group.sizes.run(
      [&](Symbol s, int a, int b) -> int64_t {
        if (s == Symbol::Size) return arguments.tensors[a].sizes[b];
        if (s == Symbol::Stride) return arguments.tensors[a].strides[b];
        return arguments.scalars[a].integer;
      },
      values);
  int64_t elements = 1;
  for (size_t i = 0; i < group.extent_slots.size(); ++i) {
    const int64_t e = values[group.extent_slots[i]];
    FUSER_CHECK(e >= 0, Shape, "size-1", "a size of ", e, " was computed for axis ", i,
                " of output t",
                specialized.fusion.outputs[group.problem.refined.stores[0].output].tensor->id,
                "; expected at least 0");
    out.extents.push_back(e);
    out.empty |= e == 0;
  }
  if (out.empty) return out;
  for (int64_t e : out.extents) elements *= e;
  out.hints.facts = group.verdict.facts;
  for (size_t i = 0; i < group.fact_slots.size(); ++i)
    out.hints.truth.push_back(values[group.fact_slots[i]] % group.verdict.facts[i].divisor == 0);
  // Threads past the end still compute an index: leave room for a block of them.
  constexpr int64_t limit = (int64_t{1} << 31) - (1 << 16);
  out.hints.index64 = elements >= limit;
  for (const BufferUse& b : group.problem.buffers) {
    if (b.input < 0) {
      out.hints.aligned.push_back(true);  // allocators give at least 16 bytes
      continue;
    }
    const TensorView& t = arguments.tensors[b.input];
    out.hints.aligned.push_back(reinterpret_cast<uintptr_t>(t.data) % 16 == 0);
    out.hints.index64 = out.hints.index64 || t.span() >= limit;
  }
  return out;
}

namespace {

// Where a kernel runs, and what it is planned as: a GPU, or the host executor dressed as one.
Key place_key(int ordinal, const Device& device, bool index64) {
  return {static_cast<uint64_t>(static_cast<uint32_t>(ordinal)), static_cast<uint64_t>(device.arch),
          index64};
}

Key hints_key(const Hints& hints, Key key) {
  for (const auto* bits : {&hints.truth, &hints.aligned}) {
    for (size_t i = 0; i < bits->size(); ++i) {
      if (i % 64 == 0) key.push_back(0);
      key.back() |= uint64_t{(*bits)[i]} << (i % 64);
    }
  }
  return key;
}

}  // namespace

std::shared_ptr<const Variant> find_variant(Group& group, const GroupSizes& sizes, int device,
                                            const Plan* wanted) {
  const Device planned_for = planning_device(device);
  const Key place = place_key(device, planned_for, sizes.hints.index64);
  const Key seen = hints_key(sizes.hints, place);
  if (!wanted) {
    const auto it = group.by_hints.find(seen);
    if (it != group.by_hints.end()) return it->second;
  }
  // Facts decide nothing but the plan: the variants are those of equal plans.
  Plan plan = group.scheduler->plan(group.problem, sizes.hints, planned_for);
  if (wanted) {
    FUSER_CHECK(wanted->scheduler == plan.scheduler, User, "plan-1", "plan: scheduler ",
                wanted->scheduler, " does not take this fusion here; planned: ", to_string(plan));
    Plan merged = plan;
    for (const auto& [name, value] : wanted->fields) {
      const auto it = std::find_if(merged.fields.begin(), merged.fields.end(),
                                   [&](const auto& f) { return f.first == name; });
      FUSER_CHECK(it != merged.fields.end(), User, "plan-2", "plan: no field ", name, " in ",
                  to_string(plan));
      it->second = value;
    }
    group.scheduler->check(plan, merged);
    plan = std::move(merged);
  }
  Key plan_key = place;
  for (const auto& field : plan.fields) plan_key.push_back(static_cast<uint64_t>(field.second));
  std::shared_ptr<const Variant>& variant = group.variants[plan_key];
  if (!variant) {
    auto made = std::make_shared<Variant>();
    made->plan = std::move(plan);
    made->schedule = group.scheduler->schedule(group.problem, made->plan);
    const std::string name = kernel_name(*group.scheduler, group.problem.refined);
    if (dump_enabled("schedule", name))
      dump("schedule", name, text(to_string(made->plan), "\n", to_string(made->schedule), "\n"));
    made->ir = lower(group.problem, made->schedule, sizes.hints.index64, name);
    made->text = print_cuda(made->ir);
    for (const Param& p : made->ir.params)
      made->param_slots.push_back(p.value ? made->sizes.add(p.value) : -1);
    made->work_slot = made->sizes.add(made->ir.work);
    if (dump_enabled("cuda", made->text.name)) dump("cuda", made->text.name, made->text.text);
    variant = std::move(made);
  }
  if (!wanted) group.by_hints[seen] = variant;
  return variant;
}

}  // namespace fuser
