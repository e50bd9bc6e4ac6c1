// Rules that schedules of GPU kernels and of CPU kernels share, and how a broken rule is raised.
// Included by the two verifiers alone.
#pragma once

#include <bit>
#include <string>

#include "base/error.h"
#include "fusion/kernel/problem.h"
#include "schedule/schedule.h"

namespace fuser::schedule {

inline constexpr int64_t most_extent = 1 << 20;  // products of two extents stay within 64 bits

inline bool is_power(int64_t n) { return n > 0 && std::has_single_bit(static_cast<uint64_t>(n)); }

// A schedule and the problem that it is for. Each check raises a fault of this kind.
struct Rules {
  const fusion::Problem& p;
  const Schedule& s;
  FaultKind kind;

  template <class... T>
  void expect(bool holds, const T&... message) const {
    if (!holds) throw Fault(kind, "schedule-2", text("schedule: ", message...));
  }
  void expect_range(const char* name, int value, int least, int most, const std::string& of) const {
    expect(value >= least && value <= most, name, "(", value, ") of ", of, "; expected ", least,
           " to ", most);
  }
  template <class... T>
  void expect_loops(bool holds, const T&... message) const {
    if (!holds) throw Fault(kind, "schedule-3", text("schedule: ", message...));
  }

  // Every axis is in exactly one dim.
  void check_dims() const;
};

inline void Rules::check_dims() const {
  const auto axes = static_cast<int>(p.refined.axes.size());
  std::vector<int> seen(axes, 0);
  for (const Dim& d : s.dims) {
    for (fusion::AxisId a : d.axes) {
      expect(a >= 0 && a < axes, "axis a", a, " of ", axes, " axes");
      ++seen[a];
    }
    const AccessId access = d.line.access;
    if (access < 0) continue;
    expect(access < static_cast<int>(p.accesses.size()), "lines of access ", access, " of ",
           p.accesses.size());
    expect(p.accesses[access].strides.has_value(), "lines of access ", access,
           ", whose address is not linear");
    expect(is_power(d.line.elements), "lines of ", d.line.elements,
           " elements; expected a power of two");
  }
  for (int a = 0; a < axes; ++a)
    expect(seen[a] == 1, "axis a", a, " is in ", seen[a], " dims; expected 1");
}

}  // namespace fuser::schedule
