#include "schedulers/stretch.h"

#include <algorithm>
#include <map>

namespace fuser {
namespace {

// Of a block in shared memory: the fewer threads a row has, the fewer instructions it takes, down
// to where eight blocks of 128 are resident. Softmax of rows of 197 elements of bfloat16 on an H100
// takes 56.0, 58.6, 68.7 and 88.2 us with 4, 8, 16 and 32 threads (a copy 53.7). 1, 4 or 16: few
// kernels serve all lengths.
constexpr int most_bytes = 26 << 10;
// Tiny rows: so much is on its way for a block that threads take several. Sums of rows of three
// elements of bfloat16 take 64.9, 38.2 and 35.3 us with one, four and eight (a copy 41.9).
constexpr int enough_bytes = 12 << 10;
constexpr int most_turns = 8;
constexpr int steps = 4;  // of a thread, side by side

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

void ask_stretch(Problem& p, Verdict& verdict) {
  for (const MemoryAccess& a : p.accesses)
    if (is_stretch(p, a)) ask_divides(verdict, a.strides->rest, longest_vector(a));
}

Stretch stretch_of(Problem& p, const Hints& hints, const Device& device, int threads,
                   int64_t length, int64_t count) {
  if (kept_axes(p).empty()) return {};
  Stretch s;
  int least_rows = 1;                 // of a block, for each to start at a multiple of a vector
  std::map<DType, int> read, stored;  // in shared memory
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    if (i < 63 && is_stretch(p, a) && hints.aligned[a.buffer] &&
        hints.divides(a.strides->rest, longest_vector(a))) {
      s.accesses |= int64_t{1} << i;
      least_rows = std::max(least_rows, longest_vector(a));
      ++(a.store ? stored : read)[a.dtype];
    } else if (lies_across(p, a)) {
      return {};
    }
  }
  int bytes = 0;  // of an element of each; results are left in the place of what was read
  for (const auto& [dtype, count] : read) bytes += count * size_of(dtype);
  for (const auto& [dtype, count] : stored)
    bytes += std::max(0, count - read[dtype]) * size_of(dtype);
  const int most_x = std::min(warp, threads / least_rows);
  const auto rows = [&] { return int64_t{threads} / s.threads_x * s.turns; };
  while (4 * s.threads_x <= most_x && rows() * length * bytes > most_bytes) s.threads_x *= 4;
  // Also of few rows, which leave processors idle: a row has the same bits whatever stands beside
  // it.
  if (rows() * length * bytes > device.shared_per_block) return {};
  while (s.turns < most_turns && 2 * rows() * length * bytes <= enough_bytes &&
         count >= 2 * device.processors * rows())
    s.turns *= 2;
  s.unroll = steps;
  return s;
}

}  // namespace fuser
