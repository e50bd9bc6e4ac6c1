#include "schedulers/stretch.h"

#include <algorithm>
#include <cstdint>
#include <map>

namespace fuser {
namespace {

// The threads of a row and of a block, and the most bytes of a row that they walk: the fewer
// threads a row has, the fewer instructions it takes, until too few are resident. Softmax of rows
// of so many elements on an H200, in us, with 1, 4 and 16 threads (a copy 51): bfloat16 100: 51.9,
// 55.7, 104; 197: 71, 59.7, 79; 580: 75, 55.9, 55.4; float32 49: 51.1, 54.6, 130; 197: 75, 51.8,
// 55.3. Few kernels serve all lengths.
struct Threads {
  int x, all;
  int64_t most_bytes;
};
constexpr Threads threads_of_rows[] = {{1, 64, 256}, {4, 128, 1280}, {16, 128, INT64_MAX}};
constexpr int resident = 5;  // blocks of a processor, at least
// Tiny rows: threads take several, until so much is on its way for each. Sums of rows of three
// elements of bfloat16 take 64.9, 38.2 and 35.3 us with one, four and eight (a copy 41.9).
constexpr int enough_bytes = 96;
constexpr int most_turns = 8;
constexpr int steps = 4;  // of a thread, side by side

// The most elements of a row that a step moves as one. Words gain nothing, and would have kernels
// of their own.
int most_vector(const Run& run) {
  constexpr int words = vector_bytes / 4;
  return run.vector > words ? run.vector / 2 : 1;
}

// Do all axes walk it as one, one element after the other?
bool is_stretch(Problem& p, const MemoryAccess& a) {
  if (size_of(a.dtype) >= vector_bytes || is_loaded(a) || !a.in.bounds.empty()) return false;
  std::vector<AxisId> all = kept_axes(p);
  for (AxisId r : reduced_axes(p)) all.push_back(r);
  Expr along = coefficient(p, a, all);
  return along && along->is_constant(1);
}

// Neighbouring threads walk neighbouring rows. Does something then lie across them that does not
// cross shared memory?
bool lies_across(const Problem& p, const MemoryAccess& a) {
  const AxisSet axes = axes_of(p, a);
  return (axes & p.reduced) && (is_loaded(a) || (axes >> kept_axes(p).back() & 1));
}

}  // namespace

void ask_stretch(Problem& p, Verdict& verdict, const Run& run) {
  bool any = false;
  for (const MemoryAccess& a : p.accesses) {
    if (!is_stretch(p, a)) continue;
    any = true;
    ask_divides(verdict, a.strides->rest, longest_vector(a));
  }
  for (int vector = most_vector(run); any && vector > 1; vector /= 2)
    ask_row_vectors(p, verdict, run, vector);
}

PackedRows stretch_of(Problem& p, const Run& run, const Hints& hints, const Device& device,
                      int64_t length, int64_t count) {
  if (kept_axes(p).empty()) return {};
  PackedRows s;
  int least_rows = 1;                 // of a block, for each to start at a multiple of a vector
  std::map<DType, int> read, stored;  // in shared memory
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    if (is_stretch(p, a) && hints.aligned[a.buffer] &&
        hints.divides(a.strides->rest, longest_vector(a))) {
      s.accesses.insert(i);
      least_rows = std::max(least_rows, longest_vector(a));
      ++(a.store ? stored : read)[a.dtype];
    } else if (lies_across(p, a)) {
      return {};
    }
  }
  if (s.accesses.empty()) return {};
  int bytes = 0;  // of an element of each; results are left in the place of what was read
  for (const auto& [dtype, count] : read) bytes += count * size_of(dtype);
  for (const auto& [dtype, count] : stored)
    bytes += std::max(0, count - read[dtype]) * size_of(dtype);
  const auto rows = [&] { return int64_t{s.threads_y} * s.turns; };
  for (const Threads& t : threads_of_rows) {
    if (t.all / t.x < least_rows) break;
    s.threads_x = t.x;
    s.threads_y = t.all / t.x;
    if (length * bytes <= t.most_bytes &&
        rows() * length * bytes <= device.shared_per_processor / resident)
      break;
  }
  // Also of few rows, which leave processors idle: a row has the same bits whatever stands beside
  // it.
  if (rows() * length * bytes > device.shared_per_block) return {};
  while (s.turns < most_turns && 2 * s.turns * length * bytes <= enough_bytes * s.threads_x &&
         count >= 2 * device.processors * rows())
    s.turns *= 2;
  s.vector = most_vector(run);
  while (s.vector > 1 && !hints.divides(extent_of(p, run.inner), s.vector)) s.vector /= 2;
  s.unroll = steps;
  return s;
}

}  // namespace fuser
