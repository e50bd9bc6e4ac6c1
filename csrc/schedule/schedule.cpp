#include "schedule/schedule.h"

#include <algorithm>

#include "base/error.h"
#include "schedule/device.h"

namespace fuser::schedule {

using namespace fusion;

void vectorize(Schedule& schedule, const AccessSet& accesses, VectorKind kind, int width) {
  for (size_t i = 0; i < schedule.accesses.size() && width > 1; ++i) {
    Vectorization& access = schedule.accesses[i];
    if (!accesses.contains(i) || access.kind != VectorKind::Scalar) continue;
    access.kind = kind;
    access.width = width;
  }
}

const Staging* staging_of_access(const Schedule& schedule, AccessId access) {
  for (const Staging& s : schedule.stagings)
    if (s.access == access) return &s;
  return nullptr;
}

const Staging* staging_of_value(const Schedule& schedule, ValueId value) {
  for (const Staging& s : schedule.stagings)
    if (s.access < 0 && s.value == value) return &s;
  return nullptr;
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

}  // namespace fuser::schedule
