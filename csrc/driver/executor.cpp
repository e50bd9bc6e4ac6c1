#include "driver/executor.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "ir/fast_div.h"

namespace fuser {
namespace {

constexpr size_t max_records = 4096;  // per definition; the least recently used half goes

struct Totals {
  std::atomic<int64_t> definitions{0}, plans{0}, hits{0}, misses{0};
  std::mutex mutex;
  std::set<Executor*> executors;
};
Totals& totals() {
  static auto* t = new Totals;
  return *t;
}

IntProgram::Leaf leaf_of(const Arguments& arguments) {
  return [&arguments](Symbol s, int a, int b) -> int64_t {
    if (s == Symbol::Size) return arguments.tensors[a].sizes[b];
    if (s == Symbol::Stride) return arguments.tensors[a].strides[b];
    FUSER_ASSERT(s == Symbol::Scalar, "a size depends on a symbol of the kernel");
    return arguments.scalars[a].integer;
  };
}

// Appends a value at its natural alignment; returns its offset.
template <class T>
uint16_t append(std::vector<char>& bytes, const T& value, size_t align = sizeof(T)) {
  bytes.resize((bytes.size() + align - 1) / align * align);
  const auto at = static_cast<uint16_t>(bytes.size());
  bytes.resize(at + sizeof value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
  return at;
}

LaunchRecord make_launch(const Group& group, std::shared_ptr<const Variant> made_for,
                         LoadedKernelRef kernel, const Fusion& fusion, const Arguments& arguments) {
  const Variant& variant = *made_for;
  LaunchRecord out{.kernel = std::move(kernel),
                   .bytes = {},
                   .offsets = {},
                   .patches = {},
                   .variant = std::move(made_for)};
  std::vector<int64_t> values;
  variant.sizes.run(leaf_of(arguments), values);
  for (const BufferUse& b : group.problem.buffers) {
    const uint16_t at = append(out.bytes, static_cast<char*>(nullptr));
    out.offsets.push_back(at);
    const bool input = b.input >= 0;
    out.patches.push_back({.kind = input ? Patch::Kind::Input : Patch::Kind::Output,
                           .dtype = {},
                           .given = {},
                           .index = static_cast<uint16_t>(input ? b.input : b.output),
                           .offset = at});
  }
  for (size_t i = 0; i < variant.ir.params.size(); ++i) {
    const Param& p = variant.ir.params[i];
    switch (p.kind) {
      case Param::Kind::Int:
      case Param::Kind::Divisor: {
        const int64_t value = values[variant.param_slots[i]];
        if (p.dtype == DType::Int64) {
          out.offsets.push_back(append(out.bytes, value));
        } else if (p.kind == Param::Kind::Divisor) {
          out.offsets.push_back(append(out.bytes, make_fast_div(static_cast<uint32_t>(value)), 4));
        } else {
          out.offsets.push_back(append(out.bytes, static_cast<int32_t>(value)));
        }
        break;
      }
      case Param::Kind::Scalar:
      case Param::Kind::Value: {
        const auto size = static_cast<size_t>(size_of(p.dtype));
        const char zero[16] = {};
        out.bytes.resize((out.bytes.size() + size - 1) / size * size);
        const auto at = static_cast<uint16_t>(out.bytes.size());
        out.bytes.insert(out.bytes.end(), zero, zero + size);
        out.offsets.push_back(at);
        const bool scalar = p.kind == Param::Kind::Scalar;
        out.patches.push_back({.kind = scalar ? Patch::Kind::Scalar : Patch::Kind::Value,
                               .dtype = p.dtype,
                               .given = scalar ? fusion.scalars[p.index].dtype : p.dtype,
                               .index = static_cast<uint16_t>(p.index),
                               .offset = at});
        break;
      }
    }
  }
  const int64_t work = values[variant.work_slot];
  const int64_t blocks = (work + variant.ir.threads - 1) / variant.ir.threads;
  FUSER_CHECK(blocks <= INT32_MAX, Unsupported, "grid-1", "kernel ", variant.text.name,
              " would need ", blocks, " blocks; a grid holds ", INT32_MAX);
  out.grid = static_cast<uint32_t>(blocks);
  return out;
}

// The key of a record: the exact key and what the caller asks for beside it.
void record_key(const Arguments& arguments, const KeyRules& rules, const std::vector<Plan>& plans,
                Key& key) {
  exact_key(arguments, rules, key);
  key.push_back(arguments.device == cpu_device && options().host_debug);
  for (const Plan& p : plans) {
    key.push_back(std::hash<std::string>{}(p.scheduler));
    key.push_back(p.fields.size());
    for (const auto& [name, value] : p.fields) {
      key.push_back(std::hash<std::string>{}(name));
      key.push_back(static_cast<uint64_t>(value));
    }
  }
}

}  // namespace

struct Executor::Call {
  std::shared_ptr<Specialized> specialized;
  std::vector<std::shared_ptr<const Variant>> variants;  // by group; nullptr: nothing to compute
  std::vector<GroupSizes> sizes;
};

Executor::Executor(const Fusion& fusion) : fusion_(fusion), rules_(key_rules(fusion)) {
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

Executor::Call Executor::prepare(const Arguments& arguments, const std::vector<Plan>& plans) {
  check_arguments(fusion_, arguments);
  Call call;
  std::vector<LayoutClass> layouts = layout_classes(arguments);
  Key key = layout_key(layouts, arguments);
  std::vector<bool> overlapping(arguments.tensors.size(), false);
  for (int i : rules_.in_place_inputs)
    for (size_t j = 0; j < arguments.tensors.size(); ++j)
      if (static_cast<int>(j) != i && overlap(arguments.tensors[i], arguments.tensors[j]))
        overlapping[i] = true;
  for (int i : rules_.in_place_inputs) key.push_back(overlapping[i]);

  const std::lock_guard lock(plan_mutex_);
  std::shared_ptr<Specialized>& specialized = specialized_[key];
  if (!specialized) {
    try {
      specialized = specialize_fusion(fusion_, std::move(layouts), overlapping);
    } catch (...) {
      specialized_.erase(key);
      throw;
    }
  }
  call.specialized = specialized;
  check_constraints(specialized->fusion, arguments);
  size_t kernels = 0;
  for (Group& g : specialized->groups) {
    call.sizes.push_back(group_sizes(*specialized, g, arguments));
    if (call.sizes.back().empty) {
      call.variants.push_back(nullptr);
      continue;
    }
    const Plan* wanted = kernels < plans.size() ? &plans[kernels] : nullptr;
    ++kernels;
    const size_t before = g.variants.size();
    call.variants.push_back(find_variant(g, call.sizes.back(), arguments.device, wanted));
    totals().plans += static_cast<int64_t>(g.variants.size() - before);
  }
  FUSER_CHECK(plans.size() <= kernels, User, "plan-3", "plan: ", plans.size(),
              " plans were given for ", kernels, " kernels");
  return call;
}

RecordRef Executor::build(Call& call, const Arguments& arguments) {
  const Specialized& s = *call.specialized;
  std::vector<KernelText> texts;
  for (const auto& v : call.variants)
    if (v) texts.push_back(v->text);
  const std::vector<LoadedKernelRef> loaded =
      load_kernels(target_of(arguments.device), arguments.device, texts);
  std::vector<int64_t> sizes;
  s.shapes.run(leaf_of(arguments), sizes);

  auto record = std::make_shared<Record>();
  for (size_t o = 0; o < s.fusion.outputs.size(); ++o) {
    const Output& output = s.fusion.outputs[o];
    OutputSpec spec{.dtype = output.tensor->dtype,
                    .sizes = {},
                    .strides = {},
                    .alias = output.alias,
                    .direct = s.in_place[o]};
    for (int slot : s.shape_slots[o]) spec.sizes.push_back(sizes[slot]);
    record->outputs.push_back(std::move(spec));
  }
  for (const Group& g : s.groups) {
    for (size_t i = 0; i < g.problem.refined.stores.size(); ++i) {
      OutputSpec& spec = record->outputs[g.problem.refined.stores[i].output];
      if (spec.direct) continue;
      // Dense in the planned order; torch's rule for sizes of 0: as if they were 1.
      spec.strides.assign(spec.sizes.size(), 1);
      int64_t stride = 1;
      const std::vector<int>& order = g.problem.output_order[i];
      for (size_t k = order.size(); k-- > 0;) {
        spec.strides[order[k]] = stride;
        stride *= std::max<int64_t>(1, spec.sizes[order[k]]);
      }
    }
  }
  size_t next = 0;
  for (const Step& step : s.program.steps) {
    if (const auto* kernel = std::get_if<KernelStep>(&step)) {
      const auto& variant = call.variants[kernel->group];
      if (!variant) continue;
      record->steps.emplace_back(
          make_launch(s.groups[kernel->group], variant, loaded[next++], s.fusion, arguments));
    } else {
      record->steps.emplace_back(CopyRecord{std::get<CopyStep>(step).output});
    }
  }
  return record;
}

RecordRef Executor::record(const Arguments& arguments, const std::vector<Plan>& plans) {
  thread_local Key key;
  key.clear();
  record_key(arguments, rules_, plans, key);
  {
    const std::lock_guard lock(records_mutex_);
    const auto it = records_.find(key);
    if (it != records_.end()) {
      it->second.used = ++clock_;
      last_ = it->second.record;
      totals().hits.fetch_add(1, std::memory_order_relaxed);
      return it->second.record;
    }
  }
  const Key mine = key;  // compiling may run other definitions on this thread
  totals().misses.fetch_add(1, std::memory_order_relaxed);
  Call call = prepare(arguments, plans);
  RecordRef made = build(call, arguments);
  const std::lock_guard lock(records_mutex_);
  if (records_.size() >= max_records) {
    std::vector<uint64_t> ages;
    for (const auto& [k, entry] : records_) ages.push_back(entry.used);
    std::nth_element(ages.begin(), ages.begin() + max_records / 2, ages.end());
    const uint64_t median = ages[max_records / 2];
    std::erase_if(records_, [&](const auto& item) { return item.second.used < median; });
  }
  records_[mine] = {.record = made, .used = ++clock_};
  last_ = made;
  return made;
}

bool Executor::is_compiled(const Arguments& arguments) {
  Key key;
  record_key(arguments, rules_, {}, key);
  const std::lock_guard lock(records_mutex_);
  return records_.count(key) != 0;
}

std::vector<Plan> Executor::plans(const Arguments& arguments) {
  std::vector<Plan> out;
  for (const auto& v : prepare(arguments, {}).variants)
    if (v) out.push_back(v->plan);
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
  for (size_t g = 0; g < call.variants.size(); ++g) {
    if (!call.variants[g]) continue;
    out += text("; ", to_string(call.variants[g]->plan),
                call.sizes[g].hints.index64 ? " index64" : " index32");
  }
  return out;
}

std::vector<KernelInfo> Executor::kernels(const Record& record) {
  std::vector<KernelInfo> out;
  for (const StepRecord& step : record.steps) {
    const auto* l = std::get_if<LaunchRecord>(&step);
    if (!l) continue;
    const Variant& v = *l->variant;
    out.push_back({.name = v.text.name,
                   .text = v.text.text,
                   .ir = to_text(v.ir),
                   .plan = to_string(v.plan),
                   .schedule = to_string(v.schedule),
                   .registers = l->kernel->registers,
                   .local_bytes = l->kernel->local_bytes,
                   .grid = static_cast<int>(l->grid),
                   .threads = l->kernel->source.threads,
                   .build_seconds = l->kernel->build_seconds});
  }
  return out;
}

RecordRef Executor::last() {
  const std::lock_guard lock(records_mutex_);
  return last_;
}

void Executor::collect(const Arguments& arguments, std::vector<KernelText>& texts) {
  for (const auto& v : prepare(arguments, {}).variants)
    if (v) texts.push_back(v->text);
}

void Executor::clear() {
  {
    const std::lock_guard lock(records_mutex_);
    records_.clear();
    last_.reset();
  }
  const std::lock_guard lock(plan_mutex_);
  specialized_.clear();
}

CacheCounters cache_counters() {
  Totals& t = totals();
  return {.definitions = t.definitions, .plans = t.plans, .hits = t.hits, .misses = t.misses};
}

void clear_executors() {
  Totals& t = totals();
  const std::lock_guard lock(t.mutex);
  for (Executor* e : t.executors) e->clear();
  t.definitions = t.plans = t.hits = t.misses = 0;
}

}  // namespace fuser
