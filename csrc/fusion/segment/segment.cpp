// Segmentation: decides which outputs share a kernel, and which tensors are materialized if one
// kernel cannot compute the graph.
//
// Each output is first built alone. Reductions that are incompatible with the reductions nearer to
// the output are materialized: an earlier kernel stores a tensor that depends on them and is still
// as small. Then the output joins a group of its own level, the number of kernels that must run
// before it. All its reads are of lower levels, so groups never depend on each other in a circle. A
// library call is a step with a level, like a kernel. It reads and stores only memory, so every
// kernel reads its results from memory.
#include <algorithm>
#include <deque>

#include "base/error.h"
#include "fusion/index/kernel_builder.h"
#include "fusion/index/views.h"
#include "fusion/kernel/reduction_phases.h"
#include "fusion/segment/materialize.h"

namespace fuser::fusion {

using namespace ir;

namespace {

// An output in a group of its own, and the ids of the tensors that it reads from memory.
struct Alone {
  KernelBuilder group;
  std::set<int> materialized;
};

struct Segmenter {
  Fusion& fusion;
  const FusionGraph graph;
  std::deque<KernelBuilder> groups{};
  std::vector<int> level_of_group{};
  std::map<std::pair<int, int>, std::vector<size_t>> groups_of{};  // by component and level
  std::vector<int> level{};                                        // by output; -1: in no group yet
  // Tensors that every kernel reads: a kernel would be too large, or rematerialize for too long.
  std::set<int> large{};
  std::set<int> library{};         // tensors that library calls compute
  std::vector<bool> everywhere{};  // by tensor: True if it is in `large` or `library`
  const std::vector<bool> repeats = may_repeat(graph);
  std::set<int> results{};                     // tensors that are stored in any case
  std::map<int, std::set<int>> stored_with{};  // by tensor: tensors that its kernel stores as well
  struct Call {
    int level = 0;
    LibraryCall call;
  };
  std::map<int, Call> calls{};            // by id of the tensor that is result 0
  std::map<int, int> output_of_tensor{};  // output that stores a materialized tensor
  // By tensor: output that is a view of an input and shows it.
  std::map<int, int> views{};
  std::map<int, Alone> alone{};  // by output, while it waits for its operands
  std::vector<FusionBreak> fusion_breaks{};
  // Outputs for which no kernel had axes in their turn, and full reductions that no kernel took.
  // Later outputs may create a kernel that has the axes: the result of a dropout does for its mask.
  struct Waiting {
    int output = 0, level = 0;
    std::optional<Alone> own{};
  };
  std::vector<Waiting> waiting{};
  bool last_turn = false;

  explicit Segmenter(Fusion& f) : fusion(f), graph(make_fusion_graph(f)) {
    level.assign(fusion.outputs.size(), -1);
    for (const Tensor& t : fusion.tensors)
      if (ir::library_call(t)) library.insert(t.id);
    for (size_t o = 0; o < fusion.outputs.size(); ++o)
      if (shows_input(fusion.outputs[o]))
        views.emplace(fusion.outputs[o].tensor->id, static_cast<int>(o));
    everywhere.assign(fusion.tensors.size(), false);
    for (int tensor : library) everywhere[tensor] = true;
    for (const Output& o : fusion.outputs) results.insert(graph.same[o.tensor->id]->id);
  }

  // Returns whether the output is a view that shows an input as it is when the call begins.
  static bool shows_input(const Output& o) {
    return o.view && o.input < 0 && std::holds_alternative<Input>(base_of(*o.tensor)->definition);
  }

  // Returns the tensors to materialize, of tensors that would be computed at ever more coordinates:
  // the first of them, and later ones at distances of more than a few statements.
  std::vector<const Tensor*> rare(const std::set<int>& repeated) const {
    const auto stored = [&](const Tensor& t) {
      return std::holds_alternative<Input>(t.definition) || everywhere[t.id];
    };
    // Tensors between memory and `repeated`, and the statements that compute them.
    std::map<int, int> cost;
    std::vector<const Tensor*> open;
    for (int id : repeated) open.push_back(&fusion.tensors[id]);
    while (!open.empty()) {
      const Tensor* t = open.back();
      open.pop_back();
      if (stored(*t) || !cost.try_emplace(t->id, 1).second) continue;
      for (const Tensor* a : ir::operands(*t)) open.push_back(a);
    }
    std::vector<const Tensor*> out;
    for (auto& [id, own] : cost) {
      const Tensor& t = fusion.tensors[id];
      for (const Tensor* a : ir::operands(t))
        if (const auto from = cost.find(a->id); from != cost.end())
          own = std::min(own + from->second, max_values);
      if (own <= few_statements || !repeated.count(id)) continue;
      out.push_back(&t);
      own = 0;
    }
    if (out.empty())
      for (int id : repeated) out.push_back(&fusion.tensors[id]);
    return out;
  }

  // Returns whether the group may compute values again that led to tensors which it reads from
  // earlier kernels.
  bool rematerializes(const KernelBuilder& group) const {
    return !library.empty() || std::any_of(group.materialized.begin(), group.materialized.end(),
                                           [&](int tensor) { return !large.count(tensor); });
  }

  // Returns the tensors that the kernel of `root` should read instead of rematerializing them.
  std::vector<const Tensor*> stored_instead(KernelBuilder& group, const Tensor* root) {
    std::vector<const Tensor*> out;
    for (const auto& kernel : worth_materializing(graph, group, everywhere, results, root)) {
      std::set<int> all;
      for (const Tensor* t : kernel) all.insert(t->id);
      for (const Tensor* t : kernel) stored_with[t->id] = all;
      out.insert(out.end(), kernel.begin(), kernel.end());
    }
    return out;
  }

  // Tensors that a group must read instead of computing them, with the reason. Empty if its values
  // fit one kernel.
  struct Refusal {
    std::vector<const Tensor*> tensors;
    const char* why = "";
    bool for_all = true;  // True if all other kernels read them too
  };
  Refusal refusal(KernelBuilder& group, const Tensor* root) {
    if (!group.repeated.empty())
      return {rare(group.repeated), "the kernel would compute it at many coordinates"};
    const char* why =
        "it reduces axes that are neither the reduced nor the kept axes of the kernel";
    std::vector<const Tensor*> refused = group.refused;
    if (refused.empty()) {
      why = "its reduction is dead, because it only computes an index into a broadcast tensor";
      refused = dead_reductions(group.refined());
    }
    if (refused.empty()) {
      why = "the kernel reduces rows and columns, and other values depend on both results";
      refused = incompatible_reductions(group);
    }
    if (!refused.empty()) return {to_materialize(group, refused, root), why, false};
    if (refused = stored_instead(group, root); !refused.empty())
      return {refused,
              "earlier kernels compute it too, and recomputation costs more than loading it"};
    if (refused = shared_reductions(graph, group, everywhere, root); !refused.empty())
      return {refused, "an earlier kernel has the same reduction", false};
    if (refused = costly_broadcasts(group, root); !refused.empty())
      return {refused, "the kernel would compute it again along the axes that it lacks"};
    return {over_budget(group, root, rematerializes(group) ? 2 : 1),
            "a kernel has at most 512 values, 8192 issue slots per element and 96 tensors"};
  }

  Alone build(int output) {
    const Tensor* t = fusion.outputs[output].tensor;
    const Tensor* root = t;
    while (is_movement(*root)) root = ir::operands(*root)[0];
    root = graph.same[root->id];
    std::set<int> materialized;  // tensors read by this output alone
    while (true) {
      Alone out{.group = KernelBuilder(graph), .materialized = {}};
      out.group.materialized = materialized;
      out.group.materialized_everywhere = &everywhere;
      if (!library.count(root->id)) out.group.except = stored_with[root->id];
      if (!library.count(root->id)) out.group.except.insert(root->id);
      // A further result of a reduction must be computed with result 0, even if result 0 is stored.
      if (const auto* result = std::get_if<Result>(&root->definition))
        out.group.except.insert(result->of->id);
      out.group.add(output, out.group.fresh(t), false);
      const auto [refused, why, for_all] = refusal(out.group, root);
      for (const Tensor* r : refused)
        fusion_breaks.push_back(
            {.tensor = r->id, .why = text("materialized for the kernel of T", t->id, ": ", why)});
      if (for_all)
        for (const Tensor* r : refused) {
          large.insert(r->id);
          everywhere[r->id] = true;
        }
      if (refused.empty()) {
        for (const Value& v : out.group.refined().values)
          if (std::holds_alternative<Read>(v.how) &&
              !std::holds_alternative<Input>(v.tensor->definition))
            out.materialized.insert(v.tensor->id);
        out.group.materialized = out.materialized;
        out.group.materialized_everywhere = nullptr;
        return out;
      }
      const size_t before = materialized.size();
      for (const Tensor* r : refused) materialized.insert(r->id);
      FUSER_ASSERT(materialized.size() > before && !(t == root && materialized.count(t->id)), "t",
                   t->id, " cannot be split further");
    }
  }

  // Returns the output that stores a materialized tensor; adds it if it does not exist.
  int output_of(int tensor) {
    const auto [it, fresh] = output_of_tensor.try_emplace(tensor, -1);
    if (!fresh) return it->second;
    for (size_t o = 0; o < fusion.outputs.size(); ++o)
      if (fusion.outputs[o].tensor->id == tensor && fusion.outputs[o].alias < 0 &&
          !fusion.outputs[o].view)
        return it->second = static_cast<int>(o);
    fusion.outputs.push_back({.tensor = &fusion.tensors[tensor], .alias = -1, .temp = true});
    level.push_back(-1);
    return it->second = static_cast<int>(fusion.outputs.size()) - 1;
  }

  // Returns whether the tensor has one element and depends on a reduction. Every kernel has
  // coordinates for it.
  bool is_full_reduction(const Tensor& t) const {
    return graph.reduces[t.id] &&
           std::all_of(t.shape.begin(), t.shape.end(), [](Expr e) { return e->is_constant(1); });
  }

  // Returns whether the kernel still has a good size after it grew from `before` values by an
  // output. Beyond half of its limits it only takes outputs most of whose values it computes
  // already.
  static bool is_worth(const KernelBuilder& group, size_t before, const KernelBuilder& alone) {
    const size_t more = group.refined().values.size() - before;
    return fits(group, 2) || (fits(group) && 2 * more <= alone.refined().values.size());
  }

  // Adds the output to one of the newest groups of its component and level, or opens a group.
  // Linear in the number of outputs. `own`: its values alone; nullptr if it is too small to make a
  // kernel too large.
  void place(int output, int at_level, Alone* own) {
    constexpr size_t most_tries = 4;
    level[output] = at_level;
    const Tensor* t = fusion.outputs[output].tensor;
    const char* why = "the tensors that both read give them no axes in common";
    bool offered = false;
    std::vector<size_t>& candidates = groups_of[{graph.component[t->id], at_level}];
    for (size_t tries = 0; tries < std::min(most_tries, candidates.size()); ++tries) {
      KernelBuilder& g = groups[candidates[candidates.size() - 1 - tries]];
      if (!own && !fits(g, 2)) continue;
      for (const std::vector<Expr>& at : g.axis_mappings(t)) {
        offered = true;
        // It is too small to be computed at many coordinates.
        if (!own && graph.cost[t->id] <= few_statements) {
          g.add(output, at, false);
          return;
        }
        const size_t before = g.refined().values.size();
        KernelBuilder::State state = g.state();
        if (own) g.materialized.insert(own->materialized.begin(), own->materialized.end());
        const bool taken = g.add(output, at, true);
        if (taken && (!own || (reduction_sets(g.refined()) && is_worth(g, before, own->group))))
          return;
        why = !g.repeated.empty()
                  ? "one kernel would compute their common operands at many coordinates"
              : fits(g) ? "one kernel cannot compute the reductions of both"
                        : "one kernel would be too large";
        g.restore(std::move(state));
      }
    }
    if ((!offered || is_full_reduction(*t)) && !candidates.empty() && !last_turn) {
      waiting.push_back({output, at_level, own ? std::optional(std::move(*own)) : std::nullopt});
      return;
    }
    if (!candidates.empty())
      note_apart(t, groups[candidates.back()], why);
    else if (!groups.empty() && level_of_group.back() == at_level)
      note_apart(t, groups.back(), "they have no tensor in common");
    candidates.push_back(groups.size());
    level_of_group.push_back(at_level);
    if (own) {
      groups.push_back(std::move(own->group));
    } else {
      KernelBuilder& g = groups.emplace_back(graph);
      g.add(output, g.fresh(t), false);
    }
  }

  void note_apart(const Tensor* t, const KernelBuilder& from, const char* why) {
    const int other = fusion.outputs[from.refined().stores[0].output].tensor->id;
    fusion_breaks.push_back(
        {.tensor = t->id, .why = text("not in the kernel of T", other, ": ", why)});
  }

  // Returns whether the call itself stores the output. Other outputs of its tensor are copies.
  bool is_stored_by_call(int output) {
    const Tensor* t = fusion.outputs[output].tensor;
    return library.count(t->id) && graph.same[t->id] == t && output_of(t->id) == output;
  }

  LibraryCall::Source source_of(const Tensor* operand) {
    LibraryCall::Source out;
    if (const auto view = views.find(operand->id); view != views.end()) {
      out.output = view->second;
      return out;
    }
    while (const auto* permute = std::get_if<Permute>(&operand->definition)) {
      for (int64_t& d : out.dims) d = permute->dims[d];
      if (out.dims.empty()) out.dims = permute->dims;
      operand = permute->arg;
    }
    operand = graph.same[operand->id];
    if (const auto* input = std::get_if<Input>(&operand->definition))
      out.input = input->index;
    else
      out.output = output_of(operand->id);
    return out;
  }

  // Appends to `open` the operands of the call of `t` that no step stores yet. Returns the level of
  // the call.
  int prepare_call(const Tensor& t, std::vector<int>& open) {
    int at_level = 0;
    for (const Tensor* operand : ir::operands(*ir::library_call(t))) {
      const int output = source_of(operand).output;
      if (output < 0 || fusion.outputs[output].view) continue;
      if (level[output] < 0) open.push_back(output);
      at_level = std::max(at_level, level[output] + 1);
    }
    return at_level;
  }

  void add_call(int output, int at_level) {
    level[output] = at_level;
    const Tensor* t = fusion.outputs[output].tensor;
    const Tensor* first = ir::library_call(*t);
    const auto [it, fresh] = calls.try_emplace(first->id);
    LibraryCall& call = it->second.call;
    if (fresh) {
      const auto& d = std::get<Library>(first->definition);
      fusion_breaks.push_back({.tensor = first->id,
                               .why = text("torch computes ", row(d.op).name,
                                           ": its operands and results are materialized")});
      it->second.level = at_level;
      call = {.op = d.op, .attributes = d.attributes, .given = {}, .args = {}, .outputs = {}};
      for (size_t i = 0; i < d.given.size(); ++i)
        if (const Expr scalar = d.given[i])
          call.given.push_back({.attribute = static_cast<int>(i),
                                .scalar = static_cast<int>(scalar->a),
                                .dtype = scalar->dtype});
      call.outputs.assign(row(d.op).results.size(), -1);
      for (const Tensor* operand : d.args) call.args.push_back(source_of(operand));
    }
    const auto* result = std::get_if<Result>(&t->definition);
    call.outputs[result ? result->index : 0] = output;
  }

  // Places an output, after the outputs that it reads.
  void place(int first) {
    std::vector<int> open{first};
    while (!open.empty()) {
      const int output = open.back();
      const Tensor* t = fusion.outputs[output].tensor;
      if (level[output] >= 0) {
        open.pop_back();
      } else if (!graph.waits[t->id] && !repeats[t->id] && graph.cost[t->id] <= max_buffers / 2) {
        place(output, 0, nullptr);
      } else if (is_stored_by_call(output)) {
        const size_t before = open.size();
        const int at_level = prepare_call(*t, open);
        if (open.size() == before) add_call(output, at_level);
      } else if (!alone.count(output)) {
        const Alone& own = alone.emplace(output, build(output)).first->second;
        for (int tensor : own.materialized) open.push_back(output_of(tensor));
      } else {
        auto own = alone.extract(output);
        int at_level = 0;
        for (int tensor : own.mapped().materialized)
          at_level = std::max(at_level, level[output_of(tensor)] + 1);
        place(output, at_level, &own.mapped());
      }
    }
  }

  std::vector<Segment> run() {
    const size_t given = fusion.outputs.size();
    for (size_t o = 0; o < given; ++o)
      if (!fusion.outputs[o].view) place(static_cast<int>(o));
    last_turn = true;
    for (Waiting& w : waiting) place(w.output, w.level, w.own ? &*w.own : nullptr);
    std::vector<std::pair<int, Segment>> made;  // with level
    for (auto& [tensor, call] : calls) made.emplace_back(call.level, std::move(call.call));
    for (size_t i = 0; i < groups.size(); ++i) {
      check_size(groups[i]);
      groups[i].bound_reads();
      const Refined& whole = groups[i].refined();
      std::vector<ValueId> image;
      Refined r = extract(whole.axes, whole.values, whole.stores, image);
      for (Value& v : r.values)
        if (std::holds_alternative<Read>(v.how) &&
            !std::holds_alternative<Input>(v.tensor->definition))
          std::get<Read>(v.how).output = output_of_tensor.at(v.tensor->id);
      made.emplace_back(level_of_group[i], std::move(r));
    }
    std::stable_sort(made.begin(), made.end(),
                     [](const auto& x, const auto& y) { return x.first < y.first; });
    std::vector<Segment> out;
    for (auto& [at_level, segment] : made) out.push_back(std::move(segment));
    return out;
  }

  void check_size(const KernelBuilder& g) const {
    const Refined& r = g.refined();
    FUSER_CHECK(static_cast<int>(r.values.size()) <= max_values, Unsupported, "kernel-size-1",
                "kernel too large: ", r.values.size(), " values for output t",
                fusion.outputs[r.stores[0].output].tensor->id, "; expected at most ", max_values,
                "\n  hint: split the definition in two at an intermediate tensor");
    FUSER_CHECK(g.reads_and_stores() <= max_buffers, Unsupported, "kernel-size-2",
                "kernel too large: ", g.reads_and_stores(), " tensor accesses; expected at most ",
                max_buffers, "\n  hint: split the definition in two at an intermediate tensor");
  }
};

}  // namespace

std::vector<Segment> refine(Fusion& fusion, std::vector<FusionBreak>* fusion_breaks) {
  Segmenter segmenter(fusion);
  std::vector<Segment> out = segmenter.run();
  if (fusion_breaks) *fusion_breaks = std::move(segmenter.fusion_breaks);
  return out;
}

}  // namespace fuser::fusion
