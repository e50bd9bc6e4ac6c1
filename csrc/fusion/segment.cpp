// Which outputs share a kernel, and where a graph is cut because one kernel does not take it whole.
//
// An output is built alone first. Reductions that do not fit beside those nearer to the output are
// cut: what they come to, while it is still as small as they are, is handed over in memory by a
// kernel that runs before. Then the output joins a group at its own level (how many kernels must
// have run before it): what is read is on a lower level, so groups never wait for each other in a
// circle. A library call is a step of its own, with a level like a kernel: it reads and stores
// memory only, so that its results are cut in every kernel.
#include <algorithm>
#include <deque>

#include "base/error.h"
#include "fusion/group.h"

namespace fuser {

std::vector<AxisSet> reduced_sets(const Refined& refined) {
  std::vector<AxisSet> sets;
  for (const Value& v : refined.values)
    if (const auto* r = std::get_if<Reduced>(&v.how))
      if (std::find(sets.begin(), sets.end(), r->over) == sets.end()) sets.push_back(r->over);
  return sets;
}

std::vector<uint8_t> fed_by(const Refined& refined, const std::vector<AxisSet>& overs) {
  std::vector<uint8_t> fed(refined.values.size(), 0);
  for (size_t v = 0; v < fed.size(); ++v) {
    const Value& value = refined.values[v];
    if (const auto* r = std::get_if<Reduced>(&value.how)) {
      for (size_t s = 0; s < overs.size(); ++s)
        if (overs[s] == r->over) fed[v] = static_cast<uint8_t>(1 << s);
    } else {
      visit_operands(value, [&](ValueId a) { fed[v] |= fed[a]; });
    }
  }
  return fed;
}

namespace {

AxisSet all_axes(const Refined& refined) {
  const size_t n = refined.axes.size();
  return n == 64 ? ~AxisSet{0} : (AxisSet{1} << n) - 1;
}

uint8_t fed_operands(const Value& value, const std::vector<uint8_t>& fed) {
  uint8_t out = 0;
  visit_operands(value, [&](ValueId a) { out |= fed[a]; });
  return out;
}

// Are results of set `s` of two read by nothing but values over the axes that it keeps, which come
// to be stored?
bool terminal(const Refined& r, const std::vector<AxisSet>& overs, const std::vector<uint8_t>& fed,
              size_t s) {
  const auto mine = static_cast<uint8_t>(1 << s);
  for (size_t v = 0; v < fed.size(); ++v) {
    const Value& value = r.values[v];
    if (std::holds_alternative<Reduced>(value.how)) {
      if (fed_operands(value, fed) & mine) return false;
    } else if ((fed[v] & mine) && (fed[v] != mine || (value.axes & overs[s]))) {
      return false;
    }
  }
  return std::none_of(r.stores.begin(), r.stores.end(), [&](const Store& store) {
    return (fed[store.access.value] & mine) && (axes_of(store.at) & overs[s]);
  });
}

}  // namespace

std::optional<ReductionSets> reduction_sets(const Refined& r) {
  const std::vector<AxisSet> overs = reduced_sets(r);
  const AxisSet all = all_axes(r);
  if (overs.empty()) {
    // An element that many threads stored would be stored by none along an axis of size 0.
    for (const Store& s : r.stores)
      if (axes_of(s.at) != all) return std::nullopt;
    return ReductionSets{};
  }
  if (overs.size() > 2 || (overs.size() == 2 && overs[0] != (all & ~overs[1]))) return std::nullopt;
  for (const Value& v : r.values)
    if (const auto* reduced = std::get_if<Reduced>(&v.how))
      if ((reduced->over | v.axes) != all) return std::nullopt;
  const std::vector<uint8_t> fed = fed_by(r, overs);
  for (const Store& s : r.stores) {
    const AxisSet axes = axes_of(s.at);
    bool fits = axes == all;
    for (size_t i = 0; i < overs.size(); ++i)
      fits = fits || (axes == (all & ~overs[i]) && (fed[s.access.value] >> i & 1));
    if (!fits) return std::nullopt;
  }
  if (overs.size() == 1) return ReductionSets{.rows = overs[0]};
  const bool first = terminal(r, overs, fed, 0), second = terminal(r, overs, fed, 1);
  if (!first && !second) return std::nullopt;
  const size_t rows = second ? 0 : 1;
  return ReductionSets{.rows = overs[rows], .columns = overs[1 - rows], .either = first && second};
}

namespace {

// An output in a group of its own, and the tensors (by id) that it reads from memory.
struct Alone {
  ValueGroup group;
  std::set<int> cut;
};

struct Segmenter {
  Fusion& fusion;
  const Graph graph;
  std::deque<ValueGroup> groups{};
  std::vector<int> level_of_group{}, component_of_group{};
  std::vector<int> level{};  // by output, -1: in no group yet
  std::set<int> large{};     // tensors cut because a kernel was too large: for all kernels then
  std::set<int> library{};   // tensors that a library computes
  struct Call {
    int level = 0;
    LibraryCall call;
  };
  std::map<int, Call> calls{};            // by id of the tensor that is result 0
  std::map<int, int> output_of_tensor{};  // where cut tensors are stored
  std::map<int, Alone> alone{};           // by output, while it waits for what it reads

  explicit Segmenter(Fusion& f) : fusion(f), graph(make_graph(f)) {
    level.assign(fusion.outputs.size(), -1);
    for (const Tensor& t : fusion.tensors)
      if (library_call(t)) library.insert(t.id);
  }

  // The tensors to hand over in place of those that are refused: what each comes to, the last and
  // narrowest of what is no larger and needs nothing else that this kernel reduces.
  std::vector<const Tensor*> handed_over(const ValueGroup& group,
                                         const std::vector<const Tensor*>& refused,
                                         const Tensor* root) const {
    const Refined& r = group.refined();
    const std::vector<uint8_t> fed = fed_by(r, reduced_sets(r));
    std::vector<std::vector<ValueId>> users(r.values.size());
    for (size_t v = 0; v < r.values.size(); ++v)
      visit_operands(r.values[v], [&](ValueId a) {
        if (users[a].empty() || users[a].back() != static_cast<ValueId>(v))
          users[a].push_back(static_cast<ValueId>(v));
      });
    const auto sizes = [](const Tensor* x) {
      std::vector<Expr> out;
      for (Expr e : x->shape)
        if (!e->is_constant(1)) out.push_back(e);
      std::sort(out.begin(), out.end(), [](Expr a, Expr b) { return a->id < b->id; });
      return out;
    };
    std::vector<const Tensor*> out;
    for (const Tensor* t : refused) {
      const Tensor* best = t;
      const std::vector<Expr> size = sizes(t);
      ValueId at = group.value_of(t);
      while (users[at].size() == 1) {
        const ValueId user = users[at][0];
        const Value& value = r.values[user];
        if (!std::holds_alternative<Apply>(value.how) &&
            !std::holds_alternative<Convert>(value.how))
          break;
        uint8_t others = 0;
        visit_operands(value, [&](ValueId a) {
          if (a != at) others |= fed[a];
        });
        if (others || (value.tensor && (value.tensor == root || sizes(value.tensor) != size)))
          break;
        if (value.tensor && size_of(value.tensor->dtype) <= size_of(best->dtype))
          best = value.tensor;
        at = user;
      }
      out.push_back(best);
    }
    return out;
  }

  // Reductions that nothing comes from: those of an index into what is the same everywhere.
  static std::vector<const Tensor*> unused(const Refined& r) {
    std::vector<bool> live(r.values.size(), false);
    for (const Store& s : r.stores) live[s.access.value] = true;
    std::vector<const Tensor*> out;
    for (size_t v = live.size(); v-- > 0;) {
      if (live[v]) visit_operands(r.values[v], [&](ValueId a) { live[a] = true; });
      if (!live[v] && std::holds_alternative<Reduced>(r.values[v].how))
        out.push_back(r.values[v].tensor);
    }
    return out;
  }

  // Of two sets of which neither is terminal: the reductions of the one farther from the output.
  std::vector<const Tensor*> misfits(const ValueGroup& group) const {
    const Refined& r = group.refined();
    if (reduction_sets(r)) return {};
    const std::vector<AxisSet> overs = reduced_sets(r);
    FUSER_ASSERT(overs.size() == 2, "an output alone reduces ", overs.size(),
                 " sets of axes and is no kernel");
    const std::vector<uint8_t> fed = fed_by(r, overs);
    const Store& store = r.stores[0];
    const uint8_t nearest = fed[store.access.value];
    size_t away = nearest == 1 ? 1 : 0;
    if (nearest == 3) {
      bool feeds[2] = {false, false};  // the other set
      for (const Value& v : r.values)
        if (const auto* reduced = std::get_if<Reduced>(&v.how))
          for (size_t s = 0; s < 2; ++s)
            feeds[s] |= reduced->over != overs[s] && (fed_operands(v, fed) >> s & 1);
      AxisSet innermost = 0;
      for (Expr e : store.at)
        if (axes_of({e})) innermost = axes_of({e});
      away = feeds[0] != feeds[1] ? (feeds[0] ? 0 : 1) : (overs[0] & innermost) ? 1 : 0;
    }
    std::vector<const Tensor*> out;
    std::vector<bool> seen(r.values.size(), false);
    std::vector<ValueId> open{store.access.value};
    while (!open.empty()) {
      const ValueId v = open.back();
      open.pop_back();
      if (seen[v]) continue;
      seen[v] = true;
      const Value& value = r.values[v];
      const auto* pick = std::get_if<Pick>(&value.how);
      const auto* reduced = std::get_if<Reduced>(pick ? &r.values[pick->reduced].how : &value.how);
      if (reduced && reduced->over == overs[away])
        out.push_back(value.tensor);
      else
        visit_operands(value, [&](ValueId a) { open.push_back(a); });
    }
    return out;
  }

  // Where a kernel would be too large, or computes much again that led to what it reads: the
  // tensors that the later half of its values reads of the earlier one, cut where they are fewest
  // and smallest.
  std::vector<const Tensor*> excess(const ValueGroup& group, const Tensor* root) const {
    const Refined& r = group.refined();
    if (fits(group, group.cut.empty() ? 1 : 2)) return {};
    const size_t count = r.values.size();
    std::vector<size_t> last(count, 0);  // user
    for (size_t v = 0; v < count; ++v) visit_operands(r.values[v], [&](ValueId a) { last[a] = v; });
    const auto crosses = [&](size_t v, size_t at) {
      const Value& value = r.values[v];
      return last[v] >= at && !std::holds_alternative<Read>(value.how) &&
             !std::holds_alternative<Uniform>(value.how);
    };
    // Bytes by how many axes they are needed for, added up over what crosses each place.
    constexpr int64_t more_axes = 1 << 10;
    std::vector<int64_t> change(count + 1, 0);
    for (size_t v = 0; v < count; ++v) {
      if (!crosses(v, v + 1)) continue;
      const Value& value = r.values[v];
      int64_t cost = size_of(value.dtype);
      for (int a = std::min(__builtin_popcountll(value.axes), 3); a > 0; --a) cost *= more_axes;
      if (!value.tensor || value.tensor == root) cost = int64_t{1} << 45;  // cannot be handed over
      change[v + 1] += cost;
      change[last[v] + 1 <= count ? last[v] + 1 : count] -= cost;
    }
    size_t best = 0;
    int64_t least = 0, cost = 0;
    for (size_t at = 1; at < count; ++at) {
      cost += change[at];
      if (at < count / 4 || at > count * 3 / 4) continue;
      if (best == 0 || cost < least) {
        best = at;
        least = cost;
      }
    }
    std::vector<const Tensor*> out;
    for (size_t v = 0; v < best; ++v)
      if (crosses(v, best) && r.values[v].tensor && r.values[v].tensor != root)
        out.push_back(r.values[v].tensor);
    return out;
  }

  // Does it take at most this part of what a kernel holds?
  static bool fits(const ValueGroup& group, int part = 1) {
    return static_cast<int>(group.refined().values.size()) <= max_values / part &&
           group.reads_and_stores() <= max_buffers / part;
  }

  Alone build(int output) {
    const Tensor* t = fusion.outputs[output].tensor;
    const Tensor* root = t;
    while (is_movement(*root)) root = operands(*root)[0];
    root = graph.same[root->id];
    std::set<int> cut = large;
    cut.erase(root->id);
    cut.insert(library.begin(), library.end());
    while (true) {
      Alone out{.group = ValueGroup(graph), .cut = {}};
      out.group.cut = cut;
      out.group.add(output, out.group.fresh(t), false);
      const std::vector<Value>& values = out.group.refined().values;
      std::vector<const Tensor*> refused = out.group.refused;
      if (refused.empty()) refused = unused(out.group.refined());
      if (refused.empty()) refused = misfits(out.group);
      refused = handed_over(out.group, refused, root);
      if (refused.empty()) {
        refused = excess(out.group, root);
        for (const Tensor* r : refused) large.insert(r->id);
      }
      if (refused.empty()) {
        for (const Value& v : values)
          if (std::holds_alternative<Read>(v.how) &&
              !std::holds_alternative<Input>(v.tensor->definition))
            out.cut.insert(v.tensor->id);
        out.group.cut = out.cut;
        return out;
      }
      const size_t before = cut.size();
      for (const Tensor* r : refused) cut.insert(r->id);
      FUSER_ASSERT(cut.size() > before && !(t == root && cut.count(t->id)), "t", t->id,
                   " cannot be cut further");
    }
  }

  // The output that holds a cut tensor, made where there is none.
  int output_of(int tensor) {
    const auto [it, fresh] = output_of_tensor.try_emplace(tensor, -1);
    if (!fresh) return it->second;
    for (size_t o = 0; o < fusion.outputs.size(); ++o)
      if (fusion.outputs[o].tensor->id == tensor && fusion.outputs[o].alias < 0)
        return it->second = static_cast<int>(o);
    fusion.outputs.push_back({.tensor = &fusion.tensors[tensor], .alias = -1, .temp = true});
    level.push_back(-1);
    return it->second = static_cast<int>(fusion.outputs.size()) - 1;
  }

  // The newest group of the component and level takes the output, or a new one is opened: linear in
  // the number of outputs.
  void place(int output, int at_level, Alone* own) {
    level[output] = at_level;
    const Tensor* t = fusion.outputs[output].tensor;
    for (size_t i = groups.size(); i-- > 0;) {
      ValueGroup& g = groups[i];
      if (component_of_group[i] != graph.component[t->id] || level_of_group[i] != at_level)
        continue;
      if (!fits(g, 2)) break;
      for (const std::vector<Expr>& at : g.offers(t)) {
        if (!own) {
          g.add(output, at, false);
          return;
        }
        ValueGroup::State before = g.state();
        g.cut.insert(own->cut.begin(), own->cut.end());
        if (g.add(output, at, true) && reduction_sets(g.refined()) && fits(g)) return;
        g.restore(std::move(before));
      }
    }
    if (own) {
      groups.push_back(std::move(own->group));
    } else {
      ValueGroup& g = groups.emplace_back(graph);
      g.add(output, g.fresh(t), false);
    }
    level_of_group.push_back(at_level);
    component_of_group.push_back(graph.component[t->id]);
  }

  // Does the call itself store the output? Other outputs of the same tensor are copies of that one.
  bool is_stored_by_call(int output) {
    const Tensor* t = fusion.outputs[output].tensor;
    return library.count(t->id) && graph.same[t->id] == t && output_of(t->id) == output;
  }

  LibraryCall::Source source_of(const Tensor* operand) {
    LibraryCall::Source out;
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

  // Appends to `open` the operands of the call behind `t` that no step stores yet; its level.
  int prepare_call(const Tensor& t, std::vector<int>& open) {
    int at_level = 0;
    for (const Tensor* operand : operands(*library_call(t))) {
      const int output = source_of(operand).output;
      if (output < 0) continue;
      if (level[output] < 0) open.push_back(output);
      at_level = std::max(at_level, level[output] + 1);
    }
    return at_level;
  }

  void add_call(int output, int at_level) {
    level[output] = at_level;
    const Tensor* t = fusion.outputs[output].tensor;
    const Tensor* first = library_call(*t);
    const auto [it, fresh] = calls.try_emplace(first->id);
    LibraryCall& call = it->second.call;
    if (fresh) {
      const auto& d = std::get<Library>(first->definition);
      it->second.level = at_level;
      call = {.op = d.op, .attributes = d.attributes, .args = {}, .outputs = {}};
      call.outputs.assign(row(d.op).results.size(), -1);
      for (const Tensor* operand : d.args) call.args.push_back(source_of(operand));
    }
    const auto* result = std::get_if<Result>(&t->definition);
    call.outputs[result ? result->index : 0] = output;
  }

  // Places an output and, before it, what it reads.
  void place(int first) {
    std::vector<int> open{first};
    while (!open.empty()) {
      const int output = open.back();
      const Tensor* t = fusion.outputs[output].tensor;
      if (level[output] >= 0) {
        open.pop_back();
      } else if (!graph.waits[t->id]) {
        place(output, 0, nullptr);
      } else if (is_stored_by_call(output)) {
        const size_t before = open.size();
        const int at_level = prepare_call(*t, open);
        if (open.size() == before) add_call(output, at_level);
      } else if (!alone.count(output)) {
        const Alone& own = alone.emplace(output, build(output)).first->second;
        for (int tensor : own.cut) open.push_back(output_of(tensor));
      } else {
        auto own = alone.extract(output);
        int at_level = 0;
        for (int tensor : own.mapped().cut)
          at_level = std::max(at_level, level[output_of(tensor)] + 1);
        place(output, at_level, &own.mapped());
      }
    }
  }

  std::vector<Segment> run() {
    const size_t given = fusion.outputs.size();
    for (size_t o = 0; o < given; ++o) place(static_cast<int>(o));
    std::vector<std::pair<int, Segment>> made;  // level
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

  void check_size(const ValueGroup& g) const {
    const Refined& r = g.refined();
    FUSER_CHECK(static_cast<int>(r.values.size()) <= max_values, Unsupported, "kernel-size-1",
                "kernel too large: ", r.values.size(), " statements are needed for output t",
                fusion.outputs[r.stores[0].output].tensor->id, ", a kernel holds ", max_values,
                "\n  hint: split the definition in two, handing over an intermediate tensor");
    FUSER_CHECK(g.reads_and_stores() <= max_buffers, Unsupported, "kernel-size-2",
                "kernel too large: ", g.reads_and_stores(),
                " tensor accesses are needed, a kernel holds ", max_buffers,
                "\n  hint: split the definition in two, handing over an intermediate tensor");
  }
};

}  // namespace

std::vector<Segment> refine(Fusion& fusion) { return Segmenter(fusion).run(); }

namespace {

// Does the coordinate walk along all of a dim of this size, once: axes nested in each other?
bool covers(Exprs& exprs, Expr coordinate, Expr size, const std::vector<Axis>& axes) {
  const auto form = linear(exprs, coordinate, static_cast<int>(axes.size()));
  if (!form || !form->rest->is_constant(0)) return false;
  Expr stride = exprs.constant(1);
  AxisSet left = axes_of({coordinate});
  while (left) {
    AxisId next = -1;
    for (size_t a = 0; a < axes.size() && next < 0; ++a)
      if ((left >> a & 1) && form->coefficients[a] == stride) next = static_cast<AxisId>(a);
    if (next < 0) return false;
    stride = exprs.mul(stride, axes[next].extent);
    left &= ~(AxisSet{1} << next);
  }
  return stride == rewrite(exprs, size, [](Expr) -> Expr { return nullptr; });
}

// May memory of the value's tensor stand for the value: is each element of it computed?
bool is_whole(Exprs& exprs, const Value& value, const std::vector<Axis>& axes) {
  if (!value.tensor || std::holds_alternative<Read>(value.how)) return false;
  AxisSet used = 0;
  for (int d = 0; d < value.tensor->rank(); ++d) {
    if (value.tensor->shape[d]->is_constant(1)) continue;
    const AxisSet mine = axes_of({value.at[d]});
    if ((mine & used) || !covers(exprs, value.at[d], value.tensor->shape[d], axes)) return false;
    used |= mine;
  }
  return used == value.axes;
}

}  // namespace

std::vector<Refined> pieces(Fusion& fusion, Refined& whole) {
  std::optional<Refined> shorter = single_pass(whole);
  Refined& from = shorter ? *shorter : whole;
  const auto sets = reduction_sets(from);
  FUSER_ASSERT(sets, "what is to be cut is no kernel");
  const std::vector<AxisSet> overs = reduced_sets(from);
  const std::vector<uint8_t> fed = fed_by(from, overs);
  uint8_t by_rows = 0, by_columns = 0;
  for (size_t s = 0; s < overs.size(); ++s)
    (overs[s] == sets->rows ? by_rows : by_columns) |= static_cast<uint8_t>(1 << s);

  // A value over K that a reduction over R led to.
  const auto is_result = [&](ValueId v) {
    return (fed[v] & by_rows) && !(from.values[v].axes & sets->rows);
  };
  // How often rows must have been walked before the value can be computed.
  std::vector<int> stage(from.values.size(), 0);
  int last = 0;
  for (size_t v = 0; v < stage.size(); ++v) {
    const Value& value = from.values[v];
    const bool walks = (value.axes & sets->rows) || std::holds_alternative<Reduced>(value.how);
    visit_operands(value, [&](ValueId a) {
      stage[v] = std::max(stage[v], stage[a] + (walks && is_result(a)));
    });
  }
  std::vector<int> stage_of_store;
  for (const Store& s : from.stores) {
    const ValueId v = s.access.value;
    stage_of_store.push_back(stage[v] + (is_result(v) && (axes_of(s.at) & sets->rows)));
    last = std::max(last, stage_of_store.back());
  }
  if (last == 0 && !sets->columns) return {};

  // What is stored anyway is read back from there.
  std::vector<int> output_of(from.values.size(), -1);
  std::vector<Value> read = from.values;
  for (const Store& s : from.stores) {
    const Output& o = fusion.outputs[s.output];
    Value& v = read[s.access.value];
    if (o.alias >= 0 || output_of[s.access.value] >= 0 || axes_of(s.at) != v.axes) continue;
    v.tensor = o.tensor;
    v.at = s.at;
    output_of[s.access.value] = s.output;
  }
  const auto handed_over = [&](ValueId v) {
    return is_result(v) && is_whole(from.exprs, from.values[v], from.axes);
  };

  std::vector<Refined> out;
  std::vector<bool> made(from.values.size(), false);  // an output for it alone
  for (int now = last; now >= 0; --now) {
    std::vector<Value> values = from.values;
    std::vector<Store> stores;
    for (size_t i = 0; i < from.stores.size(); ++i)
      if (stage_of_store[i] == now) stores.push_back(from.stores[i]);
    for (size_t v = 0; v < values.size(); ++v) {
      if (made[v] && stage[v] == now)
        stores.push_back({.output = output_of[v],
                          .access = {.value = static_cast<ValueId>(v)},
                          .at = values[v].at});
      if (!handed_over(static_cast<ValueId>(v)) || stage[v] >= now) continue;
      values[v] = read[v];
      values[v].how = Read{};
    }
    // Reductions over K are a kernel of their own.
    for (const bool columns : {true, false}) {
      std::vector<Store> here;
      for (const Store& s : stores)
        if (((fed[s.access.value] & by_columns) != 0) == columns) here.push_back(s);
      if (here.empty()) continue;
      std::vector<ValueId> image;
      Refined piece = extract(from.axes, values, here, image);
      for (size_t v = 0; v < values.size(); ++v) {
        if (image[v] < 0 || !handed_over(static_cast<ValueId>(v)) || stage[v] >= now) continue;
        if (output_of[v] < 0) {
          made[v] = true;
          output_of[v] = static_cast<int>(fusion.outputs.size());
          fusion.outputs.push_back({.tensor = values[v].tensor, .alias = -1, .temp = true});
        }
        std::get<Read>(piece.values[image[v]].how).output = output_of[v];
      }
      out.push_back(std::move(piece));
    }
  }
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace fuser
