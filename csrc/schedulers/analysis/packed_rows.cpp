#include "schedulers/analysis/packed_rows.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "cost/tuning.h"
#include "schedulers/analysis/collapse.h"
#include "schedulers/analysis/reduction_shape.h"
#include "schedulers/analysis/vectorize.h"

namespace fuser::schedulers {

using namespace fusion;
using namespace ir;
using namespace schedule;
using namespace cost::packed_rows;

namespace {

// Returns the most elements of a row that one step moves as a vector. At most half a vector: 4-byte
// elements gain nothing, and would need kernels of their own.
int most_vector(const VectorAxes& run) {
  constexpr int words = vector_bytes / 4;
  return run.vector > words ? run.vector / 2 : 1;
}

// Returns whether the access is packed: all axes form one linear index with stride 1.
bool is_packed(const Problem& p, const MemoryAccess& a) {
  if (size_of(a.dtype) >= vector_bytes || is_loaded(a) || !a.in.bounds.empty()) return false;
  std::vector<AxisId> all = kept_axes(p);
  for (AxisId r : reduced_axes(p)) all.push_back(r);
  Expr along = coefficient(p, a, all);
  return along && along->is_constant(1);
}

// Returns whether an access that is not packed is uncoalesced, given that neighbouring threads
// process neighbouring rows.
bool is_uncoalesced(const Problem& p, const MemoryAccess& a) {
  const AxisSet axes = axes_of(p, a);
  return (axes & p.reduced) && (is_loaded(a) || (axes >> kept_axes(p).back() & 1));
}

}  // namespace

PackedRows packed_rows_of(const Problem& p, const VectorAxes& run, SizeHints& hints,
                          const Device& device, int64_t length, int64_t count) {
  if (kept_axes(p).empty()) return {};
  PackedRows s;
  // Rows per block, so that every block starts at a multiple of the longest vector.
  int least_rows = 1;
  std::map<DType, int> read, stored;  // number of packed tensors in shared memory
  for (size_t i = 0; i < p.accesses.size(); ++i) {
    const MemoryAccess& a = p.accesses[i];
    if (is_packed(p, a) && hints.aligned(a.buffer) &&
        hints.divides(a.strides->rest, longest_vector(a))) {
      s.accesses.insert(i);
      least_rows = std::max(least_rows, longest_vector(a));
      ++(a.store ? stored : read)[a.dtype];
    } else if (is_uncoalesced(p, a)) {
      return {};
    }
  }
  if (s.accesses.empty()) return {};
  int bytes = 0;  // bytes of one element of each tensor; a result reuses the memory of a read
  for (const auto& [dtype, count] : read) bytes += count * size_of(dtype);
  for (const auto& [dtype, count] : stored)
    bytes += std::max(0, count - read[dtype]) * size_of(dtype);
  const auto rows = [&] { return int64_t{s.threads_y} * s.rows_per_thread; };
  // Fewer threads per row execute fewer instructions, until too few rows are resident. Three
  // kernels serve all lengths.
  struct Threads {
    int x, all;
    int64_t most_bytes;
  };
  for (const Threads& t :
       {Threads{1, 64, one_thread}, Threads{4, 128, four_threads}, Threads{16, 128, INT64_MAX}}) {
    if (t.all / t.x < least_rows) break;
    s.threads_x = t.x;
    s.threads_y = t.all / t.x;
    if (length * bytes <= t.most_bytes &&
        rows() * length * bytes <= device.shared_per_sm / resident)
      break;
  }
  // Packed rows are used for few rows too, although SMs idle then: the bits of a row must not
  // depend on the number of rows.
  if (rows() * length * bytes > device.shared_per_block) return {};
  while (s.rows_per_thread < most_rows_per_thread &&
         2 * s.rows_per_thread * length * bytes <= enough_bytes * s.threads_x &&
         count >= 2 * device.sms * rows())
    s.rows_per_thread *= 2;
  s.vector = most_vector(run);
  while (s.vector > 1 && !hints.divides(extent_of(p, hints.exprs(), run.inner), s.vector))
    s.vector /= 2;
  s.unroll = steps;
  return s;
}

}  // namespace fuser::schedulers
