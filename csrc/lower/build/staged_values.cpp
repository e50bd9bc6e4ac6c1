#include <algorithm>

#include "base/error.h"
#include "lower/build/staged_builder.h"

namespace fuser::lower::staged {

using namespace fusion;
using namespace ir;
using namespace schedule;

void Builder::declare_staged_values() {
  for (const Staging& staging : schedule.stagings) {
    FUSER_ASSERT(staging.value >= 0 && staging.shape == StagingShape::Tile,
                 "tiles of values cross nests in shared memory");
    const auto computes = [&](const LoopNest& nest) {
      return std::find(nest.computed.begin(), nest.computed.end(), staging.value) !=
             nest.computed.end();
    };
    StagedValue c{.value = staging.value};
    while (!computes(schedule.nests[c.from])) ++c.from;
    FUSER_ASSERT(c.from + 1 < mappings.size(), "a value of the last stage is not staged");
    c.along = mappings[c.from + 1].lane_dim;
    c.across = mappings[c.from].lane_dim;
    c.run = mappings[c.from + 1].lanes;
    const bool aligned = is_aligned(mappings[c.from + 1], c.along);
    c.held = aligned ? 1 : c.run;
    const Value& v = values()[c.value];
    c.turn = staging.swizzle;
    c.pitch = static_cast<int>(tile[c.along]) + staging.pad;
    c.turned = new_array(text("t", c.value), v.dtype,
                         elements(mappings[c.from], axes_of_dim[c.along] | axes_of_dim[c.across]));
    c.array =
        new_array(text("s", c.value), v.dtype,
                  elements(mappings[c.from + 1], axes_of_dim[c.along] | axes_of_dim[c.across]));
    kernel.buffers.push_back({.name = text("tile", c.value),
                              .dtype = v.dtype,
                              .read = true,
                              .written = true,
                              .kind = Buffer::Kind::Shared,
                              .elements = constant(c.pitch * tile[c.across])});
    c.buffer = static_cast<int>(kernel.buffers.size()) - 1;
    staged_values.push_back(c);
  }
}

const Loop* Builder::turned_loop(const ThreadMapping& w, const StagedValue& c) const {
  const Loop* out = nullptr;
  for (const Loop& l : w.steps)
    if (l.dim == c.along) out = &l;
  FUSER_ASSERT(out && out->extent == c.held, "value ", c.value, " is transposed in runs of ",
               c.held);
  return out;
}

// Return the offset of a thread's access in the tile. The swizzle rotates each row by its index, so
// that threads that write a column, or read a row, are spread over all banks. Line-aligned
// accesses start at word boundaries.
Offset Builder::tile_offset(const ThreadMapping& w, const StagedValue& c, Body& body) {
  const int64_t line = schedule.dims[c.along].line.elements;
  const Offset in_run = start_behind(w, c.along, c.run, body);
  const Offset in_line = is_aligned(w, c.along) ? start_behind(w, c.along, line, body) : in_run;
  return [=, this, &w, &c](Expr lane) {
    Expr row = exprs().mul(exprs().add(w.in_tile[c.across], lane), constant(c.pitch));
    if (!c.turn) return exprs().add(row, w.run[c.along]);
    if (line) {
      Expr run = exprs().div(w.in_tile[c.across], constant(mappings[c.from].lanes));
      Expr at = exprs().add(place(w, c.along, in_line(lane)), in_run(lane));
      at = exprs().add(at, exprs().mul(run, constant(c.turn * c.run)));
      return exprs().add(row, exprs().apply(Op::remainder, {at, constant(tile[c.along])}));
    }
    Expr turn = exprs().mul(w.run[c.across], constant(c.turn));
    Expr run = exprs().mod(exprs().add(w.run[c.along], turn), constant(tile[c.along] / c.run));
    return exprs().add(row, exprs().mul(run, constant(c.run)));
  };
}

Expr Builder::turned(const ThreadMapping& w, const StagedValue& c, Expr lane, Expr within) {
  const Loop* loop = turned_loop(w, c);
  Expr at = constant(0);
  for (size_t i = 0; i < w.steps.size(); ++i)
    if (&w.steps[i] != loop)
      at = exprs().add(exprs().mul(at, constant(w.steps[i].extent)), w.step[i]);
  at = exprs().add(exprs().mul(at, constant(w.lanes)), lane);
  return exprs().add(exprs().mul(at, constant(c.held)), within);
}

void Builder::write_tiles(Stage& stage) {
  const size_t s = stage.index;
  Body& body = stage.body;
  const ThreadMapping& w = mappings[s];
  for (const StagedValue& c : staged_values) {
    if (c.from != s) continue;
    const Offset at = tile_offset(w, c, body);
    nest(
        w, ~AxisSet{0}, body,
        [&](Body& out) {
          for_lanes(w, out, [&](Body& lane_body, Expr lane) {
            lane_body.push_back({Write{.array = c.turned,
                                       .element = turned(w, c, lane, constant(0)),
                                       .width = c.held,
                                       .buffer = c.buffer,
                                       .offset = at(lane)}});
          });
        },
        turned_loop(w, c));
  }
}

void Builder::wait_for_tiles(Stage& stage) {
  if (std::any_of(staged_values.begin(), staged_values.end(),
                  [&](const StagedValue& c) { return c.from + 1 == stage.index; }))
    stage.body.push_back({Barrier{}});
}

bool Builder::takes(size_t s, const StagedValue& c) const {
  return c.from + (mappings[s].cut ? 2 : 1) == s;
}

void Builder::read_tiles(Stage& stage) {
  const size_t s = stage.index;
  Body& body = stage.body;
  const ThreadMapping& w = mappings[s];
  for (StagedValue& c : staged_values) {
    if (!takes(s, c)) continue;
    if (w.cut)
      c.array = new_array(text("e", c.value), values()[c.value].dtype,
                          elements(w, axes_of_dim[c.along] | axes_of_dim[c.across]));
    const Offset at = tile_offset(w, c, body);
    nest(w, ~AxisSet{0}, body, [&](Body& out) {
      out.push_back({Load{.array = c.array,
                          .element = element(w, ~AxisSet{0}, constant(0)),
                          .width = w.lanes,
                          .buffer = c.buffer,
                          .offset = at(constant(0))}});
    });
  }
}

}  // namespace fuser::lower::staged
