#include "driver/explanation.h"

#include <set>

#include "fusion/work.h"

namespace fuser {

Explanation explanation_of(const Call& call, const Arguments& arguments) {
  const Specialized& s = *call.specialized;
  thread_local std::vector<int64_t> sizes;
  s.shapes.run(SizeLeaf{arguments}, sizes);
  const auto output = [&](int o) {
    const Tensor& t = *s.fusion.outputs[o].tensor;
    int64_t bytes = size_of(t.dtype);
    for (int slot : s.shape_slots[o]) bytes *= sizes[slot];
    return Explanation::Use{.tensor = t.id, .bytes = bytes};
  };
  const auto input = [&](int i) {
    const TensorView& view = arguments.tensors[i];
    int64_t bytes = size_of(view.dtype);  // an expanded dim is one element in memory
    for (int d = 0; d < view.rank; ++d)
      bytes *= view.strides[d] || !view.sizes[d] ? view.sizes[d] : 1;
    return Explanation::Use{.tensor = s.fusion.inputs[i]->id, .bytes = bytes};
  };
  const auto memory = [&](int i, int o) { return i >= 0 ? input(i) : output(o); };

  Explanation out{.steps = {}, .ideal_bytes = 0, .partings = s.partings};
  std::set<int> inputs_read;
  for (const Step& step : s.program.steps) {
    if (const auto* kernel = std::get_if<KernelStep>(&step)) {
      call.visit_running(*kernel, [&](int group) {
        const Variant& v = *call.variants[group];
        Explanation::Step& info = out.steps.emplace_back();
        info = {.kind = "kernel",
                .name = v.text.name,
                .plan = to_string(v.plan),
                .reads = {},
                .writes = {},
                .computes = {},
                .slots = issue_slots(s.groups[group].problem.refined, call.sizes[group].extents)};
        std::set<int> computed;
        for (const Value& value : s.groups[group].problem.refined.values)
          if (value.tensor && !std::holds_alternative<Read>(value.how))
            computed.insert(value.tensor->id);
        info.computes.assign(computed.begin(), computed.end());
        for (const BufferUse& b : s.groups[group].problem.buffers) {
          if (b.read) info.reads.push_back(memory(b.input, b.output));
          if (b.read && b.input >= 0) inputs_read.insert(b.input);
          if (b.written) info.writes.push_back(memory(b.input, b.output));
        }
      });
    } else if (const auto* library = std::get_if<LibraryCall>(&step)) {
      Explanation::Step& info = out.steps.emplace_back();
      info = {.kind = "library",
              .name = row(library->op).name,
              .plan = "",
              .reads = {},
              .writes = {},
              .computes = {}};
      for (const LibraryCall::Source& a : library->args) {
        info.reads.push_back(memory(a.input, a.output));
        if (a.input >= 0) inputs_read.insert(a.input);
        if (a.output >= 0 && s.fusion.outputs[a.output].view)
          inputs_read.insert(s.views[a.output].input);
      }
      for (int o : library->outputs)
        if (o >= 0) info.writes.push_back(output(o));
      for (const Explanation::Use& use : info.writes) info.computes.push_back(use.tensor);
    } else {
      const int o = std::get<CopyStep>(step).output;
      out.steps.push_back({.kind = "copy",
                           .name = "copy",
                           .plan = "",
                           .reads = {output(o)},
                           .writes = {input(s.fusion.outputs[o].alias)},
                           .computes = {}});
    }
  }
  for (int i : inputs_read) out.ideal_bytes += input(i).bytes;
  for (size_t o = 0; o < s.fusion.outputs.size(); ++o)
    if (!s.fusion.outputs[o].temp && !s.fusion.outputs[o].view)
      out.ideal_bytes += output(static_cast<int>(o)).bytes;
  return out;
}

}  // namespace fuser
