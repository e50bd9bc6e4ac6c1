#include "schedule/schedule.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "schedule/device.h"

namespace fuser {
namespace {

const char* name(Bind b) {
  static constexpr const char* names[] = {"GridThread", "Grid",   "Cluster", "ThreadY",
                                          "ThreadX",    "Serial", "Unroll",  "Vector"};
  return names[static_cast<int>(b)];
}

int64_t lanes_of(const Stage& stage) {
  const bool vector = !stage.loops.empty() && stage.loops.back().bind == Bind::Vector;
  return vector ? stage.loops.back().extent : 1;
}

// Checks the loops that a block executes: extents are constant and all threads take part.
void verify_block(const Stage& stage, const Schedule& s) {
  int64_t threads = 1;
  bool bound = false;
  for (const Loop& l : stage.loops) {
    if (l.bind == Bind::GridThread || l.bind == Bind::Grid || l.bind == Bind::Serial) continue;
    FUSER_ASSERT(l.extent >= 1, "a ", name(l.bind), " loop of ", l.extent, " steps");
    if (l.bind != Bind::ThreadX && l.bind != Bind::ThreadY) continue;
    threads *= l.extent;
    bound = true;
  }
  FUSER_ASSERT(!bound || threads == s.threads, "loops over ", threads, " threads of ", s.threads);
  const int64_t lanes = lanes_of(stage);
  FUSER_ASSERT(std::has_single_bit(static_cast<uint64_t>(lanes)) && lanes <= vector_bytes,
               "a vector of ", lanes, " elements");
}

}  // namespace

std::string to_string(const Schedule& s) {
  std::string out = "dims";
  for (const Dim& d : s.dims) {
    std::vector<std::string> axes;
    for (AxisId a : d.axes) axes.push_back(text("a", a));
    out += text(" [", joined(axes, " "), "]");
    if (d.store_line) out += text(" by lines of ", d.store_line);
  }
  for (const Stage& stage : s.stages) {
    out += stage.ends ? "; ends" : "; stage";
    for (const Loop& l : stage.loops) {
      out += text(" d", l.dim, ":", name(l.bind));
      if (l.extent) out += text("(", l.extent, ")");
    }
    out += text(" computes ", stage.computed.size());
    if (s.stages.size() > 1) out += text(" stores ", stage.stores.size());
  }
  return out +
         text("; widths [", joined(s.widths), "]; tail ", s.tail ? 1 : 0, "; threads ", s.threads);
}

StagingMoves staging_moves(int threads, int rows, int rows_per_vector, int element_bytes, int lanes,
                           int length) {
  constexpr int bank_bytes = 4, bytes_beside = 64, most_beside = 8;
  const int runs = rows / rows_per_vector;
  FUSER_ASSERT(threads % runs == 0, threads, " threads move ", runs, " runs");
  StagingMoves m{.at_once = threads / runs,
                 .together = std::clamp(bank_bytes / element_bytes, 1, lanes)};
  // Unroll as far as it reduces the number of loop iterations.
  const int most =
      std::clamp(bytes_beside / (m.together * rows_per_vector * element_bytes), 1, most_beside);
  const int columns = m.at_once * m.together, moves = (length + columns - 1) / columns;
  m.steps = (moves + most - 1) / most;
  m.count = (moves + m.steps - 1) / m.steps;
  m.elements = int64_t{m.steps} * m.count * m.together * threads * rows_per_vector;
  return m;
}

void verify(const Schedule& s, int axes) {
  std::vector<int> seen(axes, 0);
  for (const Dim& d : s.dims)
    for (AxisId a : d.axes) {
      FUSER_ASSERT(a >= 0 && a < axes, "dim contains axis ", a, " of ", axes);
      ++seen[a];
    }
  for (int a = 0; a < axes; ++a)
    FUSER_ASSERT(seen[a] == 1, "axis ", a, " is in ", seen[a], " dims");
  FUSER_ASSERT(s.threads >= 1 && s.threads <= most_threads, s.threads, " threads per block");
  for (const Stage& stage : s.stages) {
    for (size_t i = 0; i < stage.loops.size(); ++i) {
      const Loop& l = stage.loops[i];
      FUSER_ASSERT(l.dim >= 0 && l.dim < static_cast<int>(s.dims.size()), "loop over dim ", l.dim);
      FUSER_ASSERT(l.bind != Bind::Vector || (i + 1 == stage.loops.size() && l.extent > 0),
                   "a vector loop is innermost and of constant extent");
    }
    verify_block(stage, s);
  }
  for (int width : s.widths)
    FUSER_ASSERT(
        width == 1 || std::any_of(s.stages.begin(), s.stages.end(),
                                  [&](const Stage& stage) { return width == lanes_of(stage); }),
        "an access moves ", width, " elements, no vector loop does");
}

}  // namespace fuser
