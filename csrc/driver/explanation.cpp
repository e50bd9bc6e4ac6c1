#include "driver/explanation.h"

#include <set>

#include "fusion/segment/issue_slots.h"

namespace fuser::driver {

using namespace fusion;
using namespace ir;
using namespace program;
using namespace schedule;

namespace {

struct Explainer {
  const Call& call;
  const Arguments& arguments;
  const std::vector<int64_t>& sizes;  // result of Specialized::shapes
  const Specialized& s = *call.specialized;
  Explanation out{.steps = {}, .ideal_bytes = 0, .fusion_breaks = s.fusion_breaks};
  std::set<int> inputs_read{};

  Explanation::Use output(int o) const {
    const Tensor& t = *s.fusion.outputs[o].tensor;
    int64_t bytes = size_of(t.dtype);
    for (int slot : s.shape_slots[o]) bytes *= sizes[slot];
    return {.tensor = t.id, .bytes = bytes};
  }
  Explanation::Use input(int i) const {
    const TensorView& view = arguments.tensors[i];
    int64_t bytes = size_of(view.dtype);  // an expanded dim is one element in memory
    for (int d = 0; d < view.rank; ++d)
      bytes *= view.strides[d] || !view.sizes[d] ? view.sizes[d] : 1;
    return {.tensor = s.fusion.inputs[i]->id, .bytes = bytes};
  }
  Explanation::Use memory(int i, int o) const { return i >= 0 ? input(i) : output(o); }

  Explanation::Step& step(std::string kind, std::string name, std::string plan) {
    return out.steps.emplace_back(Explanation::Step{.kind = std::move(kind),
                                                    .name = std::move(name),
                                                    .plan = std::move(plan),
                                                    .reads = {},
                                                    .writes = {},
                                                    .computes = {}});
  }

  void kernel(int group) {
    const Variant& v = *call.variants[group];
    const Problem& problem = s.groups[group].problem;
    Explanation::Step& info = step("kernel", v.text.name, to_string(v.plan));
    info.slots = issue_slots(problem.refined, call.sizes[group].extents);
    std::set<int> computed;
    for (const Value& value : problem.refined.values)
      if (value.tensor && !std::holds_alternative<Read>(value.how))
        computed.insert(value.tensor->id);
    info.computes.assign(computed.begin(), computed.end());
    for (const BufferUse& b : problem.buffers) {
      if (b.read) info.reads.push_back(memory(b.input, b.output));
      if (b.read && b.input >= 0) inputs_read.insert(b.input);
      if (b.written) info.writes.push_back(memory(b.input, b.output));
    }
  }

  void append(const KernelStep& kernels) {
    call.visit_running(kernels, [&](int group) { kernel(group); });
  }

  void append(const LibraryCall& library) {
    Explanation::Step& info = step("library", std::string(row(library.op).name), "");
    for (const LibraryCall::Source& a : library.args) {
      info.reads.push_back(memory(a.input, a.output));
      if (a.input >= 0) inputs_read.insert(a.input);
      if (a.output >= 0 && s.fusion.outputs[a.output].view)
        inputs_read.insert(s.views[a.output].input);
    }
    for (int o : library.outputs)
      if (o >= 0) info.writes.push_back(output(o));
    for (const Explanation::Use& use : info.writes) info.computes.push_back(use.tensor);
  }

  void append(const CopyStep& copy) {
    Explanation::Step& info = step("copy", "copy", "");
    info.reads = {output(copy.output)};
    info.writes = {input(s.fusion.outputs[copy.output].alias)};
  }

  void count_ideal_bytes() {
    for (int i : inputs_read) out.ideal_bytes += input(i).bytes;
    for (size_t o = 0; o < s.fusion.outputs.size(); ++o)
      if (!s.fusion.outputs[o].temp && !s.fusion.outputs[o].view)
        out.ideal_bytes += output(static_cast<int>(o)).bytes;
  }
};

}  // namespace

Explanation explanation_of(const Call& call, const Arguments& arguments) {
  thread_local std::vector<int64_t> sizes;
  call.specialized->shapes.run(SizeLeaf{arguments}, sizes);
  Explainer of{.call = call, .arguments = arguments, .sizes = sizes};
  for (const Step& step : call.specialized->program.steps)
    std::visit([&](const auto& s) { of.append(s); }, step);
  of.count_ideal_bytes();
  return std::move(of.out);
}

}  // namespace fuser::driver
