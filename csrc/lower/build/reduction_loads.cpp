// Loads of kernels with reductions: of a step, of all steps of a reduction loop, and of operands
// that all rows read. See reduction.cpp.
#include "base/error.h"
#include "lower/build/reduction_builder.h"

namespace fuser::lower::reduction {

using namespace fusion;
using namespace ir;
using namespace schedule;

bool Builder::is_vectorized(int access) const {
  return vector > 1 && schedule.accesses[access].kind == VectorKind::Aligned &&
         in_lanes(axes_of(problem, problem.accesses[access]));
}

bool Builder::is_unaligned(int access) const {
  return vector > 1 && schedule.accesses[access].kind == VectorKind::Unaligned &&
         in_lanes(axes_of(problem, problem.accesses[access]));
}

bool Builder::stays(int access) const {
  return place_of(access) == Place::Registers || place_of(access) == Place::Shared;
}

std::string Builder::name_of(const char* prefix, int access) {
  const MemoryAccess& a = problem.accesses[access];
  int earlier = 0;
  for (int i = 0; i < access; ++i) earlier += problem.accesses[i].buffer == a.buffer;
  return text(prefix, kernel.buffers[a.buffer].name.substr(1), earlier ? text("_", earlier) : "");
}

// Returns the array of a read value's elements: of one step, or of all unrolled steps.
int Builder::plain_array(int access, bool all_steps) {
  int& array = elements_of[access];
  if (array < 0) {
    const AxisSet axes = axes_of(problem, problem.accesses[access]);
    const int per_step = in_lanes(axes) ? vector : 1;
    array = new_array(name_of(all_exist    ? "w"
                              : at_edges() ? "e"
                                           : "r",
                              access),
                      problem.accesses[access].dtype, all_steps ? per_step * unroll : per_step);
  }
  return array;
}

// Loads the lanes of one step into the access's array of elements.
void Builder::load_step(Body& body, int access, const Known& known, bool all_steps) {
  const MemoryAccess& a = problem.accesses[access];
  const AxisSet axes = axes_of(problem, a);
  const int array = plain_array(access, all_steps);
  const bool lanewise = in_lanes(axes);
  const int per_step = all_steps ? (lanewise ? vector : 1) : 0;
  if (lanewise && !checks && !all_steps && is_unaligned(access)) {
    const bool known_words = part_here >= 0 && follows_rows(access);
    body.push_back(
        {Load{.array = array,
              .element = constant(0),
              .width = vector,
              .buffer = a.buffer,
              .offset = offset_of(kernel, a, known),
              .unaligned = true,
              .words = known_words ? part_here * (vector / parts) * size_of(a.dtype) / 4 : -1}});
    return;
  }
  if (lanewise && !is_vectorized(access)) {
    For loop{.var = lane_var, .extent = vector, .body = {}};
    Expr lane = var(lane_var);
    const Mask g = mask(axes, lane);
    loop.body.push_back({Load{.array = array,
                              .element = all_steps ? element(lane, per_step) : lane,
                              .width = 1,
                              .buffer = a.buffer,
                              .offset = offset_of(kernel, a, known),
                              .in = inside(g, a, known),
                              .count = g.count}});
    body.push_back({std::move(loop)});
    return;
  }
  const Mask g = mask(axes, nullptr);
  body.push_back({Load{.array = array,
                       .element = all_steps ? element(constant(0), per_step) : constant(0),
                       .width = lanewise ? vector : 1,
                       .buffer = a.buffer,
                       .offset = offset_of(kernel, a, known),
                       .in = inside(g, a, known),
                       .count = lanewise ? g.count : nullptr}});
}

Body Builder::reads(const ReductionLoop& w, bool beside) {
  Body first;
  for (int access : w.read) {
    if (w.in_pairs[access] != beside) continue;
    // loaded in each step, without other accesses in between
    if (all_exist && is_unaligned(access)) continue;
    if (w.all_steps[access]) {
      load_step(first, access, w.outer, true);
      continue;
    }
    const MemoryAccess& a = problem.accesses[access];
    if (raw_of[access] < 0)
      raw_of[access] =
          new_array(name_of("q", access), a.dtype, w.in_pairs[access] ? 2 : unroll, {}, vector);
    Mask g = mask(axes_of(problem, a), nullptr);
    if (g.count) g.in = both(g.in, less(constant(vector - 1), g.count));
    first.push_back({Load{.array = raw_of[access],
                          .element = w.in_pairs[access] ? var(unroll_var) : step_at,
                          .width = vector,
                          .buffer = a.buffer,
                          .offset = offset_of(kernel, a, w.outer),
                          .in = inside(g, a),
                          .cache = cache_of(schedule, access, vector, nullptr)}});
  }
  return first;
}

void Builder::unpack(UnrolledStep& s) {
  const ReductionLoop& w = s.loop;
  Body& body = s.body;
  const bool in_part = checks && nest_of_rows().lanes.tail && lane_dim == K;
  for (ValueId v : w.wanted) {
    const int access = access_of[v];
    if (access < 0 || is_loaded(problem.accesses[access]) || w.all_steps[access]) continue;
    if (shared_of[access] >= 0)
      body.push_back({Load{.array = plain_array(access, false),
                           .element = constant(0),
                           .width = vector,
                           .buffer = shared_of[access],
                           .offset = shared_element(access, stage_step())}});
    else if (raw_of[access] >= 0 && !in_part)
      body.push_back({Unpack{.array = plain_array(access, false),
                             .raw = raw_of[access],
                             .chunk = w.in_pairs[access] ? var(unroll_var) : step_at}});
    else
      load_step(body, access, s.known, false);
  }
}

void Builder::first_reads(Phase& phase) {
  if (phase.index) return;
  Body& body = phase.body;
  append(body, read_ahead(exprs().add(row_at(), constant(1))));
  if (peeled) append(body, read_edges(phase.known));
  if (has_copies() && !takes_rows()) {
    append(body, copies(nullptr, nullptr, phase.known));
    body.push_back({AsyncWait{0}});
  }
  if (kernel.cluster > 1 && row_var < 0) body.push_back({SyncCluster{SyncCluster::Part::Wait}});
}

// Load operands that all rows read into registers, and start the copies and reads of the first
// rows.
Body Builder::before_rows() {
  Body first;
  for (size_t i = 0; i < problem.accesses.size(); ++i) {
    const MemoryAccess& a = problem.accesses[i];
    const AxisSet axes = axes_of(problem, a);
    if (a.store || over(axes, K) || !is_vectorized(static_cast<int>(i)) || is_loaded(a)) continue;
    raw_of[i] = new_array(name_of("q", static_cast<int>(i)), a.dtype, unroll, {}, vector);
    const Mask g = mask(axes, nullptr);
    first.push_back({Load{.array = raw_of[i],
                          .element = step_at,
                          .width = vector,
                          .buffer = a.buffer,
                          .offset = offset_of(kernel, a, Known(values().size(), nullptr)),
                          .in = inside(g, a)}});
  }
  first = unrolled(std::move(first));
  append(first, read_ahead(constant(0)));
  append(first, first_copies());
  return first;
}

}  // namespace fuser::lower::reduction
