#include "driver/compile.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "codegen/cpp.h"
#include "driver/cuda/cuda_api.h"
#include "driver/cuda/kernel_name.h"
#include "fusion/build/define.h"
#include "fusion/build/rules.h"
#include "fusion/index/layouts.h"
#include "fusion/kernel/transpose_operands.h"
#include "lower/passes.h"
#include "program/in_place.h"
#include "schedule/schedule_text.h"
#include "schedulers/by_hand.h"
#include "schedulers/legal.h"

namespace fuser::driver {

using namespace codegen;
using namespace fusion;
using namespace ir;
using namespace lower;
using namespace program;
using namespace schedule;
using namespace schedulers;

namespace {

bool has_reductions(const Refined& r) {
  return std::any_of(r.values.begin(), r.values.end(),
                     [](const Value& v) { return std::holds_alternative<Reduced>(v.how); });
}

// Appends the group of these values and returns its index.
int add_group(Specialized& specialized, Refined refined, OutputOrders& orders, Device::Kind kind) {
  Group& g = specialized.groups.emplace_back();
  g.problem = make_problem(specialized.fusion, std::move(refined), specialized.layouts,
                           specialized.in_place, orders);
  if (kind == Device::Kind::Cpu) g.scheduler = choose_cpu(g.problem);
  if (!g.scheduler) g.scheduler = &choose(g.problem);
  g.guards.exprs = Exprs::on_top_of(g.problem.refined.exprs);
  for (const Axis& a : g.problem.refined.axes)
    g.extent_slots.push_back(g.guards.program.add(a.extent));
  for (const Store& s : g.problem.refined.stores) g.store_axes.push_back(axes_of(s.at));
  return static_cast<int>(specialized.groups.size()) - 1;
}

// Appends the group of these values, and behind it the groups of its fission.
int add_groups(Specialized& s, GroupKernels kernels, OutputOrders& orders, Device::Kind kind) {
  const int whole = add_group(s, std::move(kernels.whole), orders, kind);
  const auto add_fission = [&](int of, Fission fission_kind, std::vector<Refined> fission) {
    if (fission.empty()) return;
    s.groups[of].fission_kind = fission_kind;
    for (Refined& kernel : fission) {
      const int index = add_group(s, std::move(kernel), orders, kind);
      s.groups[of].fission.push_back(index);
    }
  };
  TransposedOperands along =
      transpose_operands(s.fusion, s.groups[whole].problem, s.in_place, orders);
  if (along.kernels.empty()) {
    add_fission(whole, Fission::Split, std::move(kernels.fission));
    return whole;
  }
  // The remaining kernel may have a fission itself.
  std::vector<Refined> further = fission(s.fusion, along.kernels[along.main]);
  const auto main = s.groups.size() + along.main;
  add_fission(whole, Fission::TransposeOperands, std::move(along.kernels));
  add_fission(static_cast<int>(main), Fission::Split, std::move(further));
  return whole;
}

}  // namespace

std::unique_ptr<Specialized> specialize_fusion(const Fusion& fusion,
                                               std::vector<LayoutClass> layouts,
                                               const std::vector<bool>& overlapping,
                                               Device::Kind kind, const KnownSizes& known) {
  std::vector<std::vector<bool>> ones;
  for (const LayoutClass& l : layouts) ones.push_back(l.one);
  auto out = std::make_unique<Specialized>();
  out->fusion = specialize(fusion, ones, known);
  out->layouts = std::move(layouts);
  out->constraints = constraints_of(out->fusion);
  if (dump_enabled("fusion", "")) dump("fusion", "fusion", to_python(out->fusion));
  out->views = find_views(out->fusion, out->layouts, overlapping, out->shapes);
  // Segmentation and fission both append temporaries to the outputs.
  std::vector<GroupKernels> kernels;
  std::vector<LibraryCall> calls;
  Program& program = out->program;
  for (Segment& segment : refine(out->fusion, &out->fusion_breaks)) {
    if (auto* call = std::get_if<LibraryCall>(&segment)) {
      calls.push_back(*call);
      program.steps.emplace_back(std::move(*call));
    } else {
      program.steps.emplace_back(KernelStep{static_cast<int>(kernels.size())});
      kernels.push_back({.whole = std::move(std::get<Refined>(segment)), .fission = {}});
    }
  }
  for (GroupKernels& k : kernels)
    if (has_reductions(k.whole)) k.fission = fission(out->fusion, k.whole);
  write_after_reads(program, out->fusion, kernels);
  out->in_place = find_in_place(program, out->fusion, kernels, overlapping);
  OutputOrders orders = result_orders(out->fusion, out->layouts);
  for (const LibraryCall& c : calls)
    for (int o : c.outputs)
      if (o >= 0) orders.emplace(o, row_major(out->fusion.outputs[o].tensor->rank()));
  for (Step& step : program.steps)
    if (auto* kernel = std::get_if<KernelStep>(&step))
      kernel->group = add_groups(*out, std::move(kernels[kernel->group]), orders, kind);
  out->in_place.resize(out->fusion.outputs.size(), false);
  for (const Output& o : out->fusion.outputs) {
    std::vector<int>& slots = out->shape_slots.emplace_back();
    for (Expr e : o.tensor->shape) slots.push_back(out->shapes.add(e));
  }
  for (size_t o = 0; o < out->fusion.outputs.size(); ++o)
    if (out->fusion.outputs[o].alias >= 0 && !out->in_place[o])
      program.steps.emplace_back(CopyStep{static_cast<int>(o)});
  return out;
}

namespace {

[[noreturn]] void raise_uncountable(const Group& group, const std::vector<int64_t>& extents) {
  const std::vector<Value>& values = group.problem.refined.values;
  const auto last =
      std::find_if(values.rbegin(), values.rend(), [](const Value& v) { return v.tensor; });
  const std::string where = last == values.rend() ? "" : "\n  " + rules::where(*last->tensor);
  throw Fault(FaultKind::Shape, "elements-1",
              text("execute(): axes of sizes [", joined(extents),
                   "] have too many elements; expected at most 2^59", where));
}

}  // namespace

GroupSizes group_sizes(const Group& group, const Arguments& arguments, int64_t largest) {
  GroupSizes out;
  std::vector<int64_t>& values = out.sizes.values;
  group.guards.program.run(SizeLeaf{arguments}, values);
  AxisSet no_elements = 0;
  int64_t elements = 1;
  bool many = false;
  out.extents.resize(group.extent_slots.size());
  for (size_t i = 0; i < group.extent_slots.size(); ++i) {
    const int64_t e = values[group.extent_slots[i]];
    FUSER_ASSERT(e >= 0, "axis ", i, " has size ", e);
    out.extents[i] = e;
    if (e == 0) no_elements |= AxisSet{1} << i;
    // If one axis is empty, then other axes may have any size, and 32-bit indices cannot hold them.
    many |= __builtin_mul_overflow(elements, std::max<int64_t>(1, e), &elements);
  }
  // A reduction over an empty axis still has a result: its identity.
  out.empty = std::all_of(group.store_axes.begin(), group.store_axes.end(),
                          [&](AxisSet axes) { return (axes & no_elements) != 0; });
  if (out.empty) return out;
  // Reject element counts that exceed any memory, because later products would overflow.
  if (!no_elements && (many || elements > int64_t{1} << 59)) raise_uncountable(group, out.extents);
  out.sizes.aligned.reserve(group.problem.buffers.size());
  // Threads past the end still compute an index, so leave room for the largest block that a plan
  // may have. `largest` matters too: a few elements may belong to a larger range that has no
  // memory, e.g. of an arange or an expanded tensor.
  constexpr int64_t limit = (int64_t{1} << 31) - (1 << 21);
  out.index64 = many || elements >= limit || largest >= limit;
  constexpr int64_t wave = 1 << 20;  // elements that a large GPU's resident threads hold with four
                                     // each
  out.sizes.one_wave = !many && elements > wave / 4 && elements <= wave;
  for (const BufferUse& b : group.problem.buffers) {
    if (b.input < 0) {
      out.sizes.aligned.push_back(true);  // allocators align to 16 bytes at least
      continue;
    }
    const TensorView& t = arguments.tensors[b.input];
    out.sizes.aligned.push_back(reinterpret_cast<uintptr_t>(t.data) % 16 == 0);
    out.index64 = out.index64 || t.span() >= limit;
  }
  return out;
}

SizeHints hints_for(Group& group, GroupSizes& sizes, const Arguments& arguments) {
  return {group.problem, group.fission_kind, group.guards, sizes.sizes, SizeLeaf{arguments}};
}

namespace {

// Appends the device that a kernel runs on, and the type of its indices.
void append_place(int device, bool index64, Key& key) {
  key.push_back(uint64_t{device_key(device)} | uint64_t{index64} << 32);
}

// Makes a variant from a plan: schedule, Kernel IR, text, and the sizes that a launch evaluates.
std::shared_ptr<const Variant> make_variant(Group& group, const Decision& decision, Plan plan,
                                            bool index64) {
  auto made = std::make_shared<Variant>();
  made->plan = std::move(plan);
  made->schedule = scheduled(group, decision, made->plan);
  const std::string name = kernel_name(group.problem.refined, group.scheduler->moves);
  if (dump_enabled("schedule", name))
    dump("schedule", name, text(to_string(made->plan), "\n", to_string(made->schedule), "\n"));
  if (group.scheduler->for_cpu) {
    made->ir = lower_cpu(group.problem, made->schedule, index64, name);
    made->text = print_cpp(made->ir);
  } else {
    made->ir = lower::lower(group.problem, made->schedule, index64, name);
    made->text = print_cuda(made->ir);
  }
  for (const Param& p : made->ir.params)
    made->param_slots.push_back(p.value ? made->sizes.add(p.value) : -1);
  for (const Buffer& b : made->ir.buffers) {
    const bool scratch = b.kind == Buffer::Kind::Workspace || b.kind == Buffer::Kind::Counters;
    made->buffer_slots.push_back(scratch ? made->sizes.add(b.elements) : -1);
  }
  made->blocks_slot = made->sizes.add(made->ir.blocks);
  if (made->ir.shared_rows) made->shared_slot = made->sizes.add(made->ir.shared_rows);
  if (dump_enabled("cuda", made->text.name)) dump("cuda", made->text.name, made->text.text);
  return made;
}

// Checks the resources of a changed plan. Sizes with equal answers may need a quarter more shared
// memory, so the check includes that margin.
void check_room(const Plan& planned, const Variant& made, const Arguments& arguments,
                const Device& device) {
  int64_t shared = made.ir.shared_bytes();
  if (made.ir.shared_rows) {
    thread_local std::vector<int64_t> values;
    made.sizes.run(SizeLeaf{arguments}, values);
    shared += values[made.shared_slot] + values[made.shared_slot] / 4;
  }
  check_resources(planned, made.plan, made.ir, shared, device);
}

}  // namespace

Schedule scheduled(Group& group, const Decision& decision, const Plan& plan) {
  Schedule made = schedule_of(*group.scheduler, group.problem, decision, plan);
  if (plan.schedule.empty()) return made;
  return group.scheduler->for_cpu ? cpu_schedule_by_hand(group.problem, made, plan.schedule)
                                  : schedule_by_hand(group.problem, made, plan.schedule);
}

Plan changed_plan(const Group& group, const Decision& decision, const Plan& wanted) {
  const Plan& planned = *plan_of(decision);
  const bool by_hand = wanted.scheduler.empty() && !wanted.schedule.empty();
  FUSER_CHECK(by_hand || wanted.scheduler == planned.scheduler, User, "plan-1",
              "plan: scheduler=", wanted.scheduler, " is not allowed; expected ", planned.scheduler,
              ", the first scheduler that accepts this kernel\n  planned: ", to_string(planned));
  Plan all = merged(planned, wanted);
  check_plan(*group.scheduler, group.problem, decision, all);
  return all;
}

std::shared_ptr<const Variant> find_variant(Group& group, GroupSizes& sizes,
                                            const Arguments& arguments, const Plan* wanted,
                                            bool prefer) {
  const int device = arguments.device;
  thread_local Key seen;
  seen.clear();
  append_place(device, sizes.index64, seen);
  GuardTree<std::shared_ptr<const Variant>>& planned_before = group.by_answers[seen];
  if (!wanted)
    if (const auto* known = planned_before.find(sizes.sizes)) return *known;
  SizeHints hints = hints_for(group, sizes, arguments);
  const Device planned_for = planning_device(device, *group.scheduler);
  const Decision decision = group.scheduler->plan(group.problem, hints, planned_for);
  const Plan* planned = plan_of(decision);
  if (!planned) {
    FUSER_ASSERT(!group.fission.empty(), "fission of a kernel that has none");
    auto made = std::make_shared<Variant>();
    made->fission = true;
    planned_before.insert(hints.answers(), made);
    return made;
  }
  Plan plan = wanted ? changed_plan(group, decision, *wanted) : *planned;
  // Answers affect only the plan, so equal plans share a variant.
  Key plan_key;
  append_place(device, sizes.index64, plan_key);
  append_key(plan, plan_key);
  std::shared_ptr<const Variant>& variant = group.variants[plan_key];
  if (!variant) variant = make_variant(group, decision, std::move(plan), sizes.index64);
  if (wanted && !group.scheduler->for_cpu) check_room(*planned, *variant, arguments, planned_for);
  if (!wanted || prefer) planned_before.insert(hints.answers(), variant);
  return variant;
}

}  // namespace fuser::driver
