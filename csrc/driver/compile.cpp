#include "driver/compile.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "driver/cuda_api.h"
#include "driver/kernel_name.h"
#include "fusion/across.h"
#include "fusion/define.h"
#include "fusion/layouts.h"
#include "fusion/rules.h"
#include "fusion/views.h"
#include "lower/passes.h"
#include "schedulers/legal.h"

namespace fuser {
namespace {

bool has_reductions(const Refined& r) {
  return std::any_of(r.values.begin(), r.values.end(),
                     [](const Value& v) { return std::holds_alternative<Reduced>(v.how); });
}

// Returns whether value `v` is an operand, directly or not, of a value of `group` that varies along
// axes outside `kept`, or of a reduction.
bool reaches_rows(const Refined& group, ValueId v, AxisSet kept) {
  std::vector<bool> from(group.values.size(), false);
  from[v] = true;
  for (size_t i = static_cast<size_t>(v) + 1; i < group.values.size(); ++i) {
    const Value& value = group.values[i];
    bool found = false;
    visit_operands(value, [&](ValueId operand) { found |= from[operand]; });
    if (!found) continue;
    if ((value.axes & ~kept) || std::holds_alternative<Reduced>(value.how)) return true;
    from[i] = true;
  }
  return false;
}

const Store* store_of(const Refined& group, int output) {
  for (const Store& s : group.stores)
    if (s.output == output) return &s;
  return nullptr;
}

bool is_read_of(const Value& v, const Tensor* input) {
  const auto* read = std::get_if<Read>(&v.how);
  return read && read->output < 0 && v.tensor == input;
}

bool reads(const Refined& group, const Tensor* t) {
  return std::any_of(group.values.begin(), group.values.end(),
                     [&](const Value& v) { return is_read_of(v, t); });
}

// Returns whether each thread reads only the elements of `target` that it stores itself, and reads
// them before its store. This holds at equal coordinates, in a group with reductions for reads
// - over all axes: every phase maps a thread to the same elements, and the store is in the last
//   phase;
// - over kept axes alone, unless a value over the reduced axes depends on the read. All threads of
//   a row would read the element, and one of them may store it while the other threads need it.
bool reads_own_elements(const Refined& group, const Store& store, const Tensor* target) {
  const AxisSet all = (group.axes.size() < 64 ? AxisSet{1} << group.axes.size() : 0) - 1;
  const ReductionSets sets = reduction_sets(group).value();
  const AxisSet reduced = sets.rows ? sets.rows : sets.columns;
  for (size_t i = 0; i < group.values.size(); ++i) {
    const Value& v = group.values[i];
    if (!is_read_of(v, target)) continue;
    if (v.at != store.at) return false;
    if (!reduced || v.axes == all) continue;
    if (v.axes != (all & ~reduced)) return false;
    if (reaches_rows(group, static_cast<ValueId>(i), v.axes)) return false;
  }
  return true;
}

// The kernel of one group of values, and the kernels of its fission in order.
struct Kernels {
  Refined whole;
  std::vector<Refined> pieces;
};

// Calls f(input, output) for all memory that this step reads; one of the two is -1.
template <class F>
void visit_reads(const Step& step, const std::vector<Kernels>& kernels, const F& f) {
  if (const auto* call = std::get_if<LibraryCall>(&step)) {
    for (const LibraryCall::Source& s : call->args) f(s.input, s.output);
    return;
  }
  for (const Value& v : kernels[std::get<KernelStep>(step).group].whole.values) {
    const auto* read = std::get_if<Read>(&v.how);
    if (!read) continue;
    const auto* input = std::get_if<Input>(&v.tensor->definition);
    f(read->output < 0 && input ? input->index : -1, read->output);
  }
}

// Returns the last step that reads each tensor input, or -1.
std::vector<int> last_reads(const Program& program, const Fusion& fusion,
                            const std::vector<Kernels>& kernels) {
  std::vector<int> out(fusion.inputs.size(), -1);
  for (size_t i = 0; i < program.steps.size(); ++i)
    visit_reads(program.steps[i], kernels, [&](int input, int) {
      if (input >= 0) out[input] = static_cast<int>(i);
    });
  return out;
}

// Moves kernels to the end of the program if they overwrite memory that later steps read, and if no
// later step reads their outputs. An optimizer's step counter, which all of its kernels read, is
// then incremented last.
void write_after_reads(Program& program, const Fusion& fusion,
                       const std::vector<Kernels>& kernels) {
  const std::vector<int> last = last_reads(program, fusion, kernels);
  std::vector<bool> read(fusion.outputs.size(), false);
  for (const Step& step : program.steps)
    visit_reads(step, kernels, [&](int, int output) {
      if (output >= 0) read[output] = true;
    });
  std::vector<Step> early, late;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const auto* kernel = std::get_if<KernelStep>(&program.steps[i]);
    bool overwrites = false, gives = false;
    if (kernel) {
      for (const Store& s : kernels[kernel->group].whole.stores) {
        const int input = fusion.outputs[s.output].alias;
        overwrites |= input >= 0 && last[input] > static_cast<int>(i);
        gives |= read[s.output];
      }
    }
    (overwrites && !gives ? late : early).push_back(std::move(program.steps[i]));
  }
  std::move(late.begin(), late.end(), std::back_inserter(early));
  program.steps = std::move(early);
}

// Returns whether `kernels`, which run as step `at`, may store output `output` into its alias
// input. That requires that no later step reads this memory. Kernels of the same fission may read
// it before the store.
bool may_store_in_place(const Fusion& fusion, const Kernels& kernels, int output, int at,
                        const std::vector<int>& last_read, const std::vector<bool>& overlapping) {
  const int input = fusion.outputs[output].alias;
  if (input < 0 || overlapping[input] || last_read[input] > at) return false;
  const Tensor* target = fusion.inputs[input];
  if (!reads_own_elements(kernels.whole, *store_of(kernels.whole, output), target)) return false;
  bool stored = false;
  for (const Refined& piece : kernels.pieces) {
    const Store* here = store_of(piece, output);
    if (stored && reads(piece, target)) return false;
    if (here && !reads_own_elements(piece, *here, target)) return false;
    stored |= here != nullptr;
  }
  return true;
}

// Returns, by output, whether it is stored straight into its alias input.
std::vector<bool> find_in_place(const Program& program, const Fusion& fusion,
                                const std::vector<Kernels>& kernels,
                                const std::vector<bool>& overlapping) {
  const std::vector<int> last = last_reads(program, fusion, kernels);
  std::vector<bool> out(fusion.outputs.size(), false);
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const auto* kernel = std::get_if<KernelStep>(&program.steps[i]);
    if (!kernel) continue;
    const Kernels& k = kernels[kernel->group];
    for (const Store& s : k.whole.stores)
      out[s.output] =
          may_store_in_place(fusion, k, s.output, static_cast<int>(i), last, overlapping);
  }
  return out;
}

// Appends the group of these values and returns its index.
int add_group(Specialized& specialized, Refined refined, OutputOrders& orders) {
  Group& g = specialized.groups.emplace_back();
  g.problem = make_problem(specialized.fusion, std::move(refined), specialized.layouts,
                           specialized.in_place, orders);
  g.scheduler = &choose(g.problem, g.verdict);
  for (const Axis& a : g.problem.refined.axes) g.extent_slots.push_back(g.sizes.add(a.extent));
  for (const Fact& f : g.verdict.facts) g.fact_slots.push_back(g.sizes.add(f.value));
  for (Expr e : g.verdict.extents) g.bucket_slots.push_back(g.sizes.add(e));
  for (const Store& s : g.problem.refined.stores) g.store_axes.push_back(axes_of(s.at));
  return static_cast<int>(specialized.groups.size()) - 1;
}

// Appends the group of these values, and behind it the groups of its fission.
int add_groups(Specialized& s, Kernels kernels, OutputOrders& orders) {
  const int whole = add_group(s, std::move(kernels.whole), orders);
  const auto add_pieces = [&](int of, Pieces kind, std::vector<Refined> pieces) {
    if (pieces.empty()) return;
    s.groups[of].pieces_are = kind;
    for (Refined& piece : pieces) {
      const int index = add_group(s, std::move(piece), orders);
      s.groups[of].pieces.push_back(index);
    }
  };
  AlongLanes along = along_lanes(s.fusion, s.groups[whole].problem, s.in_place, orders);
  if (along.kernels.empty()) {
    add_pieces(whole, Pieces::Cut, std::move(kernels.pieces));
    return whole;
  }
  // The remaining kernel may have a fission itself.
  std::vector<Refined> further = pieces(s.fusion, along.kernels[along.main]);
  const auto main = s.groups.size() + along.main;
  add_pieces(whole, Pieces::AlongLanes, std::move(along.kernels));
  add_pieces(static_cast<int>(main), Pieces::Cut, std::move(further));
  return whole;
}

// Returns whether the tensor is an input, or an input with permuted dims. A library call reads both
// directly.
bool is_permuted_input(const Tensor* t) {
  while (const auto* permute = std::get_if<Permute>(&t->definition)) t = permute->arg;
  return std::holds_alternative<Input>(t->definition);
}

// Marks the outputs that no kernel stores, and records their strides: views of inputs or of results
// of library calls, and results that are the memory of an input they are written into. Operands of
// library calls that are views of inputs become temporary outputs. An input that is overwritten, or
// that may overlap one, yields no other view, because a result must hold its old value.
void find_views(Specialized& s, const std::vector<bool>& overlapping) {
  std::vector<bool> written = overlapping;
  for (const Output& o : s.fusion.outputs)
    if (o.alias >= 0) written[o.alias] = true;
  const bool shared = std::find(overlapping.begin(), overlapping.end(), true) != overlapping.end();
  // Returns the output that holds a result of a library call. New outputs are appended at the
  // end.
  std::vector<Output> made;
  const auto stored = [&](const Tensor* t) {
    const auto holds = [&](const Output& o) { return o.tensor == t && o.alias < 0 && o.input < 0; };
    const auto& outputs = s.fusion.outputs;
    const auto it = std::find_if(outputs.begin(), outputs.end(), holds);
    if (it != outputs.end()) return static_cast<int>(it - outputs.begin());
    const auto other = std::find_if(made.begin(), made.end(), holds);
    const auto place = static_cast<int>(outputs.size() + (other - made.begin()));
    if (other == made.end()) made.push_back({.tensor = t, .alias = -1, .temp = true});
    return place;
  };
  const auto take = [&](const View& view, int input, Specialized::ViewSlots& slots) {
    slots = {.input = input,
             .output = input >= 0 ? -1 : stored(view.base),
             .offset = s.shapes.add(view.offset),
             .strides = {}};
    for (Expr e : view.strides) slots.strides.push_back(s.shapes.add(e));
  };
  const auto find = [&](const Output& o, Specialized::ViewSlots& slots) {
    if (shared || o.alias >= 0) return false;
    const auto view = view_of(s.fusion, *o.tensor, s.layouts);
    if (!view || (library_call(*view->base) && (view->base == o.tensor || o.temp))) return false;
    const auto* input = std::get_if<Input>(&view->base->definition);
    if (input && written[input->index]) return false;
    take(*view, input ? input->index : -1, slots);
    return true;
  };
  std::set<const Tensor*> known;
  for (Output& o : s.fusion.outputs) {
    Specialized::ViewSlots& slots = s.views.emplace_back();
    if (o.input >= 0) {
      o.view = true;
      take(*view_of(s.fusion, *s.fusion.inputs[o.input], s.layouts), o.input, slots);
    } else if ((o.view = find(o, slots))) {
      known.insert(o.tensor);
    }
  }
  for (const Output& o : made) {
    s.fusion.outputs.push_back(o);
    s.views.emplace_back();
  }
  for (const Tensor& t : s.fusion.tensors) {
    const auto* call = std::get_if<Library>(&t.definition);
    if (!call) continue;
    for (const Tensor* operand : call->args) {
      if (is_permuted_input(operand) || !known.insert(operand).second) continue;
      const Output output{.tensor = operand, .alias = -1, .temp = true, .view = true};
      Specialized::ViewSlots slots;
      if (!find(output, slots)) continue;
      s.fusion.outputs.push_back(output);
      s.views.push_back(std::move(slots));
    }
  }
}

}  // namespace

std::unique_ptr<Specialized> specialize_fusion(const Fusion& fusion,
                                               std::vector<LayoutClass> layouts,
                                               const std::vector<bool>& overlapping,
                                               const KnownSizes& known) {
  std::vector<std::vector<bool>> ones;
  for (const LayoutClass& l : layouts) ones.push_back(l.one);
  auto out = std::make_unique<Specialized>();
  out->fusion = specialize(fusion, ones, known);
  out->layouts = std::move(layouts);
  out->constraints = constraints_of(out->fusion);
  if (dump_enabled("fusion", "")) dump("fusion", "fusion", to_python(out->fusion));
  find_views(*out, overlapping);
  // Segmentation and fission both append temporaries to the outputs.
  std::vector<Kernels> kernels;
  std::vector<LibraryCall> calls;
  Program& program = out->program;
  for (Segment& segment : refine(out->fusion, &out->partings)) {
    if (auto* call = std::get_if<LibraryCall>(&segment)) {
      calls.push_back(*call);
      program.steps.emplace_back(std::move(*call));
    } else {
      program.steps.emplace_back(KernelStep{static_cast<int>(kernels.size())});
      kernels.push_back({.whole = std::move(std::get<Refined>(segment)), .pieces = {}});
    }
  }
  for (Kernels& k : kernels)
    if (has_reductions(k.whole)) k.pieces = pieces(out->fusion, k.whole);
  write_after_reads(program, out->fusion, kernels);
  out->in_place = find_in_place(program, out->fusion, kernels, overlapping);
  OutputOrders orders = result_orders(out->fusion, out->layouts);
  for (const LibraryCall& c : calls)
    for (int o : c.outputs)
      if (o >= 0) orders.emplace(o, row_major(out->fusion.outputs[o].tensor->rank()));
  for (Step& step : program.steps)
    if (auto* kernel = std::get_if<KernelStep>(&step))
      kernel->group = add_groups(*out, std::move(kernels[kernel->group]), orders);
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

Device planning_device(int device) {
  return device == cpu_device ? host_device(static_cast<int>(options().host_arch))
                              : cuda_device_for_plans(device);
}

Target target_of(int device) {
  if (device == cpu_device) return {.host = true, .arch = 0, .debug = options().host_debug};
  return {.host = false, .arch = cuda_device(device).arch, .debug = false};
}

namespace {

[[noreturn]] void raise_uncountable(const Group& group, const std::vector<int64_t>& extents) {
  const std::vector<Value>& values = group.problem.refined.values;
  const auto last =
      std::find_if(values.rbegin(), values.rend(), [](const Value& v) { return v.tensor; });
  const std::string where = last == values.rend() ? "" : "\n  " + rules::where(*last->tensor);
  throw Fault(FaultKind::Shape, "elements-1",
              text("execute(): axes of sizes [", joined(extents),
                   "] have more elements than can be counted; expected at most 2^59", where));
}

}  // namespace

GroupSizes group_sizes(Group& group, const Arguments& arguments, int64_t largest) {
  GroupSizes out;
  thread_local std::vector<int64_t> values;
  group.sizes.run(SizeLeaf{arguments}, values);
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
  out.hints.truth.reserve(group.fact_slots.size());
  for (size_t i = 0; i < group.fact_slots.size(); ++i)
    out.hints.truth.push_back(values[group.fact_slots[i]] % group.verdict.facts[i].divisor == 0);
  out.hints.pieces = group.pieces_are;
  out.hints.buckets.reserve(group.bucket_slots.size());
  out.hints.aligned.reserve(group.problem.buffers.size());
  for (int slot : group.bucket_slots) out.hints.buckets.push_back(bucket_of(values[slot]));
  // Threads past the end still compute an index, so leave room for the largest block that a plan
  // may have. `largest` matters too: a few elements may belong to a larger range that has no
  // memory, e.g. of an arange or an expanded tensor.
  constexpr int64_t limit = (int64_t{1} << 31) - (1 << 21);
  out.hints.index64 = many || elements >= limit || largest >= limit;
  constexpr int64_t wave = 1 << 20;  // elements that a large GPU's resident threads hold with four
                                     // each
  out.hints.one_wave = !many && elements > wave / 4 && elements <= wave;
  for (const BufferUse& b : group.problem.buffers) {
    if (b.input < 0) {
      out.hints.aligned.push_back(true);  // allocators align to 16 bytes at least
      continue;
    }
    const TensorView& t = arguments.tensors[b.input];
    out.hints.aligned.push_back(reinterpret_cast<uintptr_t>(t.data) % 16 == 0);
    out.hints.index64 = out.hints.index64 || t.span() >= limit;
  }
  return out;
}

namespace {

// Appends the device that a kernel runs on, and the architecture that it is planned for. The host
// executor emulates one.
void append_place(int device, bool index64, Key& key) {
  const int64_t arch = device == cpu_device ? options().host_arch : cuda_device(device).arch;
  key.push_back(static_cast<uint64_t>(static_cast<uint32_t>(device)));
  key.push_back(static_cast<uint64_t>(arch));
  key.push_back(index64);
}

void append_hints(const Hints& hints, Key& key) {
  key.push_back(hints.one_wave);
  for (const auto* bits : {&hints.truth, &hints.aligned}) {
    for (size_t i = 0; i < bits->size(); ++i) {
      if (i % 64 == 0) key.push_back(0);
      key.back() |= uint64_t{(*bits)[i]} << (i % 64);
    }
  }
  for (size_t i = 0; i < hints.buckets.size(); ++i) {
    if (i % 8 == 0) key.push_back(0);
    key.back() |= static_cast<uint64_t>(hints.buckets[i]) << (8 * (i % 8));
  }
}

// Makes a variant from a plan: schedule, Kernel IR, text, and the sizes that a launch evaluates.
std::shared_ptr<const Variant> make_variant(Group& group, Plan plan, bool index64) {
  auto made = std::make_shared<Variant>();
  made->plan = std::move(plan);
  made->schedule = group.scheduler->schedule(group.problem, made->plan);
  const std::string name = kernel_name(group.problem.refined, group.scheduler->moves);
  if (dump_enabled("schedule", name))
    dump("schedule", name, text(to_string(made->plan), "\n", to_string(made->schedule), "\n"));
  made->ir = lower(group.problem, made->schedule, index64, name);
  made->text = print_cuda(made->ir);
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

// Checks the resources of a changed plan. Sizes with equal hints may need a quarter more shared
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

Plan changed_plan(Group& group, const Plan& planned, const Plan& wanted) {
  FUSER_CHECK(wanted.scheduler == planned.scheduler, User, "plan-1", "plan: scheduler ",
              wanted.scheduler, " does not take this fusion here; planned: ", to_string(planned));
  Plan all = merged(planned, wanted);
  group.scheduler->check(group.problem, planned, all);
  return all;
}

std::shared_ptr<const Variant> find_variant(Group& group, GroupSizes& sizes,
                                            const Arguments& arguments, const Plan* wanted,
                                            bool prefer) {
  const int device = arguments.device;
  thread_local Key seen;
  seen.clear();
  append_place(device, sizes.hints.index64, seen);
  append_hints(sizes.hints, seen);
  if (!wanted) {
    const auto it = group.by_hints.find(seen);
    if (it != group.by_hints.end()) return it->second;
  }
  // Guards affect only the plan, so equal plans share a variant.
  sizes.hints.facts = group.verdict.facts;
  sizes.hints.extents = group.verdict.extents;
  Plan plan = group.scheduler->plan(group.problem, sizes.hints, planning_device(device));
  if (plan.in_pieces()) {
    FUSER_ASSERT(!group.pieces.empty(), "a plan in pieces for a group that has none");
    auto made = std::make_shared<Variant>();
    made->plan = std::move(plan);
    return group.by_hints[seen] = std::move(made);
  }
  Plan planned;
  if (wanted) {
    planned = std::move(plan);
    plan = changed_plan(group, planned, *wanted);
  }
  Key plan_key;
  append_place(device, sizes.hints.index64, plan_key);
  append_key(plan, plan_key);
  std::shared_ptr<const Variant>& variant = group.variants[plan_key];
  if (!variant) variant = make_variant(group, std::move(plan), sizes.hints.index64);
  if (wanted) check_room(planned, *variant, arguments, planning_device(device));
  if (!wanted || prefer) group.by_hints[seen] = variant;
  return variant;
}

}  // namespace fuser
