#include "driver/executor.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "driver/background.h"
#include "driver/horizontal.h"
#include "driver/specialize.h"
#include "fusion/build/rules.h"
#include "fusion/index/layouts.h"
#include "schedule/schedule_text.h"

namespace fuser::driver {

using namespace codegen;
using namespace fusion;
using namespace ir;
using namespace program;
using namespace schedule;

namespace {

constexpr size_t max_records = 4096;  // per definition; beyond it the least recently used half is
                                      // dropped
// elements that take microseconds on one CPU core
constexpr int64_t max_elements_with_gil = 1 << 14;
constexpr int max_specialized = 16;  // records of a definition that get specialized kernels

struct Totals {
  std::atomic<int64_t> definitions{0}, plans{0}, hits{0}, misses{0};
  std::mutex mutex;
  std::set<Executor*> executors;
};
Totals& totals() {
  static auto* t = [] {
    pthread_atfork(lock_for_fork, unlock_after_fork, unlock_after_fork);
    return new Totals;
  }();
  return *t;
}

// Computes the key of a record: the exact key and the caller's other choices.
void record_key(const Arguments& arguments, const KeyRules& rules, const std::vector<Plan>& plans,
                Key& key) {
  exact_key(arguments, rules, key);
  for (const Plan& p : plans) append_key(p, key);
}

std::string name_of(const Fusion& fusion) {
  const std::string location = fusion.outputs.empty() ? "" : fusion.outputs.back().tensor->location;
  return location.empty() ? "fuser definition"  // without '/', npos + 1 below is 0
                          : "fuser definition at " + location.substr(location.rfind('/') + 1);
}

}  // namespace

Executor::Executor(const Fusion& fusion)
    : fusion_(fusion),
      rules_(key_rules(fusion)),
      name_(std::make_shared<const std::string>(name_of(fusion))) {
  FUSER_CHECK(!fusion.tensors.empty(), User, "definition-empty",
              "the definition is empty; define tensors and ops between `with FusionDefinition() as "
              "fd:` and execute()");
  FUSER_CHECK(!fusion.outputs.empty(), User, "definition-no-output",
              "the definition has no output; call fd.add_output(tensor) for each result");
  Totals& t = totals();
  ++t.definitions;
  const std::lock_guard lock(t.mutex);
  t.executors.insert(this);
}

Executor::~Executor() {
  Totals& t = totals();
  const std::lock_guard lock(t.mutex);
  t.executors.erase(this);
}

void lock_for_fork() {
  Totals& t = totals();
  t.mutex.lock();
  for (Executor* e : t.executors) {
    e->plan_mutex_.lock();
    e->records_->mutex.lock();
  }
}

void unlock_after_fork() {
  Totals& t = totals();
  for (Executor* e : t.executors) {
    e->records_->mutex.unlock();
    e->plan_mutex_.unlock();
  }
  t.mutex.unlock();
}

// Returns the specialized fusion of a call. Requires plan_mutex_. `key` holds layouts and overlaps;
// the size equalities of the call are appended. `values` receives the call's sizes.
std::shared_ptr<Specialized> Executor::specialized_for(const Arguments& arguments,
                                                       const std::vector<bool>& overlapping,
                                                       Key& key, SizeValues& values) {
  // Computed extents that are 1 in this call broadcast like extents of inputs. Reshapes that only
  // regroup dims in this call become regrouping reshapes.
  KnownSizes sizes;
  for (;;) {
    auto found = specialized_.find(key);
    if (found == specialized_.end()) {
      std::vector<LayoutClass> layouts = layout_classes(arguments);
      const Key classes = layout_key(layouts, arguments);
      FUSER_ASSERT(
          classes.size() <= key.size() && std::equal(classes.begin(), classes.end(), key.begin()),
          "the key of a call does not start with its layout classes");
      auto made = specialize_fusion(fusion_, std::move(layouts), overlapping,
                                    kind_of(arguments.device), sizes);
      found = specialized_.emplace(key, std::move(made)).first;
    }
    const std::shared_ptr<Specialized> s = found->second;
    s->constraints.program.run(SizeLeaf{arguments}, values);
    if (!learn_sizes(s->fusion, s->constraints, values, sizes, key)) return s;
  }
}

Call Executor::prepare(const Arguments& arguments, const std::vector<Plan>& plans, bool prefer) {
  check_arguments(fusion_, arguments);
  Call call;
  std::vector<bool> overlapping(arguments.tensors.size(), false);
  thread_local Key key;
  thread_local SizeValues values;
  key.clear();
  append_layout_key(arguments, key);
  if (rules_.in_place) {
    std::vector<Overlap> overlaps;
    find_overlaps(arguments, rules_, overlaps);
    for (const Overlap& o : overlaps) overlapping[o.written] = true;
    for (size_t i = 0; i < overlapping.size(); ++i)
      if (rules_.written[i]) key.push_back(overlapping[i]);
  }

  const std::lock_guard lock(plan_mutex_);
  const auto specialized = call.specialized = specialized_for(arguments, overlapping, key, values);
  call.variants.resize(specialized->groups.size());
  call.sizes.resize(specialized->groups.size());
  const int64_t largest = largest_size(specialized->constraints, arguments, values);
  size_t kernels = 0;
  // Returns the variant of a group, or nullptr if it has nothing to store.
  const auto variant_of = [&](int index) -> std::shared_ptr<const Variant> {
    Group& g = specialized->groups[index];
    GroupSizes& sizes = call.sizes[index] = group_sizes(g, arguments, largest);
    if (sizes.empty) return nullptr;
    const size_t before = g.variants.size();
    const Plan* wanted = kernels < plans.size() ? &plans[kernels] : nullptr;
    auto variant = find_variant(g, sizes, arguments, wanted, prefer);
    totals().plans += static_cast<int64_t>(g.variants.size() - before);
    kernels += !variant->fission;
    return variant;
  };
  const std::function<void(int)> add = [&](int group) {
    auto variant = variant_of(group);
    if (variant && variant->fission)
      for (int index : specialized->groups[group].fission) add(index);
    else
      call.variants[group] = std::move(variant);
  };
  for (const Step& step : specialized->program.steps)
    if (const auto* kernel = std::get_if<KernelStep>(&step)) add(kernel->group);
  FUSER_CHECK(plans.size() <= kernels, User, "plan-3", "plan: ", plans.size(), " plans for ",
              kernels, " kernels");
  return call;
}

namespace {

// Returns whether launches are fused horizontally. On a CPU a launch costs no more than its blocks,
// so they are fused there only for tests.
bool joins_launches(int device) { return device != cpu_device || options().host_debug; }

// Drops the least recently used half of the records if there are too many.
template <class Entries>
void make_room(Entries& entries) {
  if (entries.size() < max_records) return;
  std::vector<uint64_t> ages;
  for (const auto& [key, entry] : entries) ages.push_back(entry.used);
  std::nth_element(ages.begin(), ages.begin() + max_records / 2, ages.end());
  const uint64_t median = ages[max_records / 2];
  std::erase_if(entries, [&](const auto& item) { return item.second.used < median; });
}

// Sets dense strides in the planned order. Sizes of 0 count as 1, as in torch.
void set_strides(OutputSpec& spec, const std::vector<int>& order) {
  spec.strides.assign(spec.sizes.size(), 1);
  int64_t stride = 1;
  for (size_t k = order.size(); k-- > 0;) {
    spec.strides[order[k]] = stride;
    stride *= std::max<int64_t>(1, spec.sizes[order[k]]);
  }
}

// Returns the specs by output of the fusion. `sizes` is the result of s.shapes. Only views get
// strides here; the step that makes another output sets its strides.
std::vector<OutputSpec> output_specs(const Specialized& s, const std::vector<int64_t>& sizes) {
  std::vector<OutputSpec> specs(s.fusion.outputs.size());
  for (size_t o = 0; o < specs.size(); ++o) {
    const Output& output = s.fusion.outputs[o];
    OutputSpec& spec = specs[o];
    spec.dtype = output.tensor->dtype;
    spec.alias = output.alias;
    spec.temp = output.temp;
    spec.allocate = !s.in_place[o] && !output.temp && !output.view;
    spec.sizes.reserve(s.shape_slots[o].size());
    for (int slot : s.shape_slots[o]) spec.sizes.push_back(sizes[slot]);
    if (!output.view) continue;
    const ViewSlots& view = s.views[o];
    spec.view = view.input;
    spec.view_of_output = view.output;
    spec.offset = sizes[view.offset];
    for (int slot : view.strides) spec.strides.push_back(sizes[slot]);
  }
  return specs;
}

// Makes one launch of the kernels `parts` of a call.
LaunchRecord launch_of(const std::vector<RunningKernel>& kernels, const std::vector<size_t>& parts,
                       const LoadedKernelRef& code, const Fusion& fusion,
                       const Arguments& arguments) {
  std::vector<LaunchRecord> made;
  for (size_t i : parts)
    made.push_back(make_launch(*kernels[i].group, kernels[i].variant, code, fusion, arguments));
  return made.size() == 1 ? std::move(made[0]) : join_launches(made, code);
}

// Sets the strides of a kernel's outputs. If the kernel runs, its outputs are marked for
// allocation.
void lay_out(const Specialized& s, const Problem& p, bool runs, Record& record) {
  for (size_t i = 0; i < p.refined.stores.size(); ++i) {
    const int o = p.refined.stores[i].output;
    if (s.in_place[o]) continue;
    record.outputs[o].allocate |= runs;
    set_strides(record.outputs[o], p.output_order[i]);
  }
}

void add_library(const Specialized& s, const LibraryCall& call, Record& record) {
  // A library call also reads tensors without elements, which no kernel stores.
  for (const LibraryCall::Source& a : call.args)
    if (a.output >= 0 && !s.fusion.outputs[a.output].view) record.outputs[a.output].allocate = true;
  for (int o : call.outputs) {
    if (o < 0) continue;
    record.outputs[o].library = record.outputs[o].allocate = true;
    set_strides(record.outputs[o], row_major(s.fusion.outputs[o].tensor->rank()));
  }
  record.steps.emplace_back(call);
  record.keeps_gil = false;
}

}  // namespace

RecordRef Executor::build(Call& call, const Arguments& arguments) {
  const Specialized& s = *call.specialized;
  const std::vector<RunningKernel> kernels = call.kernels();
  const auto launches = launches_of(kernels, joins_launches(arguments.device));
  const std::vector<LoadedKernelRef> loaded =
      load_launches(kernels, launches, arguments.device, records_->mutex);
  thread_local std::vector<int64_t> sizes;
  s.shapes.run(SizeLeaf{arguments}, sizes);

  auto record = std::make_shared<Record>();
  record->keeps_gil = arguments.device == cpu_device;
  record->name = name_;
  record->steps.reserve(s.program.steps.size());
  record->outputs = output_specs(s, sizes);
  // Lay out all outputs first, then again for the kernels that run, which take precedence.
  for (const Group& g : s.groups) lay_out(s, g.problem, false, *record);
  size_t kernel = 0, launch = 0;  // indices of the next kernel and launch
  const auto add_kernel = [&](int) {
    lay_out(s, kernels[kernel].group->problem, true, *record);
    if (launch < launches.size() && launches[launch][0] == kernel) {
      record->steps.emplace_back(
          launch_of(kernels, launches[launch], loaded[launch], s.fusion, arguments));
      ++launch;
    }
    ++kernel;
  };
  for (const Step& step : s.program.steps) {
    if (const auto* group = std::get_if<KernelStep>(&step))
      call.visit_running(*group, add_kernel);
    else if (const auto* library = std::get_if<LibraryCall>(&step))
      add_library(s, *library, *record);
    else
      record->steps.emplace_back(CopyRecord{std::get<CopyStep>(step).output});
  }
  set_lifetimes(*record);
  record->keeps_gil = record->keeps_gil && call.elements() <= max_elements_with_gil;
  return record;
}

RecordRef Executor::record(const Arguments& arguments, const std::vector<Plan>& plans) {
  for (const Narrowed& rule : fusion_.narrowed)
    rules::check_narrowed(rule, arguments.scalars[rule.scalar].integer);
  thread_local Key key;
  key.clear();
  record_key(arguments, rules_, plans, key);
  RecordRef found;
  bool specialize = false;
  {
    const std::lock_guard lock(records_->mutex);
    const auto it = records_->entries.find(key);
    if (it != records_->entries.end()) {
      Entry& entry = it->second;
      entry.used = ++records_->clock;
      found = entry.record;
      if (records_->last != found) records_->last = found;
      specialize = should_specialize(*records_, entry);
    }
  }
  if (found) {
    totals().hits.fetch_add(1, std::memory_order_relaxed);
    if (specialize) specialize_in_background(key, found);
    return found;
  }
  Key mine = key;  // compilation may run other definitions on this thread
  totals().misses.fetch_add(1, std::memory_order_relaxed);
  Call call = prepare(arguments, plans);
  RecordRef made = build(call, arguments);
  const std::lock_guard lock(records_->mutex);
  make_room(records_->entries);
  records_->entries.insert_or_assign(std::move(mine),
                                     Entry{.record = made, .used = ++records_->clock});
  records_->last = made;
  return made;
}

// Returns whether to specialize a record now: true once per record, for a limited number of records
// per definition. Requires the mutex.
bool Executor::should_specialize(Records& records, Entry& entry) {
  const int64_t threshold = options().specialize_after;
  if (++entry.runs < threshold || threshold == 0 || entry.specialized) return false;
  if (records.specialized >= max_specialized) return false;
  ++records.specialized;
  return entry.specialized = true;
}

void Executor::specialize_in_background(const Key& key, const RecordRef& record) {
  run_in_background([records = std::weak_ptr(records_), key, record] {
    RecordRef better;
    try {
      better = with_constant_sizes(*record);
    } catch (...) {
      ++specialization_counters().failures;
    }
    const std::shared_ptr<Records> alive = records.lock();
    if (!better || !alive) return;
    const std::lock_guard lock(alive->mutex);
    const auto it = alive->entries.find(key);
    if (it != alive->entries.end() && it->second.record == record) it->second.record = better;
  });
}

bool Executor::is_compiled(const Arguments& arguments) {
  Key key;
  record_key(arguments, rules_, {}, key);
  const std::lock_guard lock(records_->mutex);
  return records_->entries.count(key) != 0;
}

std::vector<Plan> Executor::plans(const Arguments& arguments, const std::vector<Plan>& wanted) {
  std::vector<Plan> out;
  const Call call = prepare(arguments, wanted);
  call.visit_running([&](int g) { out.push_back(call.variants[g]->plan); });
  return out;
}

std::vector<std::string> Executor::schedules(const Arguments& arguments,
                                             const std::vector<Plan>& wanted) {
  std::vector<std::string> out;
  const Call call = prepare(arguments, wanted);
  call.visit_running([&](int g) { out.push_back(to_string(call.variants[g]->schedule)); });
  return out;
}

std::string Executor::signature(const Arguments& arguments) {
  const Call call = prepare(arguments, {});
  std::string out =
      arguments.device == cpu_device ? "cpu" : text("sm_", cuda_device(arguments.device).arch);
  for (size_t i = 0; i < arguments.tensors.size(); ++i)
    out += text(
        "; t", fusion_.inputs[i]->id, " ", row(arguments.tensors[i].dtype).torch,
        to_string(call.specialized->layouts[i]),
        reinterpret_cast<uintptr_t>(arguments.tensors[i].data) % 16 == 0 ? " 16B" : " element");
  call.visit_running([&](int g) {
    out += text("; ", to_string(call.variants[g]->plan),
                call.sizes[g].index64 ? " index64" : " index32");
  });
  return out;
}

Explanation Executor::explain(const Arguments& arguments) {
  return explanation_of(prepare(arguments, {}), arguments);
}

std::vector<KernelInfo> Executor::kernels(const Record& record) {
  std::vector<KernelInfo> out;
  for (const StepRecord& step : record.steps) {
    const auto* l = std::get_if<LaunchRecord>(&step);
    if (!l) continue;
    const Variant& v = *l->variant;
    // text of the same plan, perhaps with constant sizes
    const KernelText& source = l->kernel->source;
    out.push_back({.name = source.name,
                   .text = source.text,
                   .ir = to_text(v.ir),
                   .plan = to_string(v.plan),
                   .schedule = to_string(v.schedule),
                   .registers = l->kernel->registers,
                   .local_bytes = l->kernel->local_bytes,
                   .grid = static_cast<int>(l->shape.grid[0]),
                   .threads = static_cast<int>(l->shape.block[0]),
                   .shared_bytes = static_cast<int>(l->shape.shared_bytes),
                   .cluster = static_cast<int>(l->shape.cluster[0]),
                   .build_seconds = l->kernel->build_seconds,
                   .isa = l->kernel->target.kind == Device::Kind::Cpu
                              ? to_string(l->kernel->target.isa)
                              : ""});
  }
  return out;
}

RecordRef Executor::last() {
  const std::lock_guard lock(records_->mutex);
  return records_->last;
}

void Executor::collect(const Arguments& arguments, const std::vector<Plan>& plans,
                       std::vector<KernelText>& texts) {
  const Call call = prepare(arguments, plans);
  const std::vector<RunningKernel> kernels = call.kernels();
  for (const auto& launch : launches_of(kernels, joins_launches(arguments.device)))
    texts.push_back(text_of_launch(kernels, launch));
}

void Executor::prefer(const Arguments& arguments, const std::vector<Plan>& plans) {
  prepare(arguments, plans, true);
  records_->clear();
}

void Executor::Records::clear() {
  const std::lock_guard lock(mutex);
  entries.clear();
  specialized = 0;
  last.reset();
}

void Executor::clear() {
  records_->clear();
  const std::lock_guard lock(plan_mutex_);
  specialized_.clear();
}

CacheCounters cache_counters() {
  Totals& t = totals();
  const SpecializationCounters& s = specialization_counters();
  return {.definitions = t.definitions,
          .plans = t.plans,
          .hits = t.hits,
          .misses = t.misses,
          .specialized = s.kernels,
          .not_specialized = s.failures};
}

void clear_executors() {
  Totals& t = totals();
  const std::lock_guard lock(t.mutex);
  for (Executor* e : t.executors) e->clear();
  t.definitions = t.plans = t.hits = t.misses = 0;
  specialization_counters().kernels = specialization_counters().failures = 0;
}

}  // namespace fuser::driver
