// Layout groups (nvFuser: transpose groups): accesses that share their innermost axis. Group X has
// axis X innermost, group Y axis Y. Values that cross from one group to the other are staged in
// shared memory. See transpose.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "schedulers/analysis/collapse.h"

namespace fuser::schedulers {

enum LayoutGroup : uint8_t { X, Y, None };
constexpr LayoutGroup other(LayoutGroup s) { return s == X ? Y : X; }

struct LayoutGroups {
  // Outermost first; the dim of X is last, the dim of Y second to last.
  Dims dims;
  // By access; the value None if it varies over at most one of the two axes.
  std::vector<LayoutGroup> of;
  std::array<int, 2> vector{1, 1};  // vector length: 16 bytes of the widest element of the group
  std::array<std::vector<fusion::ValueId>, 2> staged_values;  // values staged for the other group
  // group along which the vectors of each stage run
  std::vector<LayoutGroup> stages;
  std::vector<uint8_t> from;  // by value: bit set of the groups that it is computed from

  const std::vector<fusion::AxisId>& axes(LayoutGroup s) const {
    return dims[dims.size() - (s == X ? 1 : 2)];
  }
};

constexpr uint8_t bit_of(LayoutGroup s) { return s == None ? 0 : static_cast<uint8_t>(1 << s); }

struct FoundLayoutGroups {
  std::optional<LayoutGroups> groups;
  const char* rule = nullptr;
  const char* why = nullptr;
};
// Finds the layout groups of a problem, or the rule by which it is rejected.
FoundLayoutGroups find_layout_groups(const fusion::Problem& problem);
// Returns the layout groups of a problem that find_layout_groups() accepts.
LayoutGroups layout_groups_of(const fusion::Problem& problem);

// Returns the group whose axis the lanes of an access run along, or the value None if the access is
// scalar.
LayoutGroup group_of(const fusion::Problem& problem, const LayoutGroups& groups, size_t access);
fusion::ValueId stored_value(const fusion::Problem& problem, const fusion::MemoryAccess& store);
// Bytes per element: of all staged values; of all stores, by group.
int staged_bytes(const fusion::Problem& problem, const LayoutGroups& groups);
std::array<int, 2> stored_bytes(const fusion::Problem& problem, const LayoutGroups& groups);
// Returns the group that has all stores, or the value None if both groups have stores.
LayoutGroup stored_group(const fusion::Problem& problem, const LayoutGroups& groups);
// Returns the axes in the memory order of the group that stores more bytes.
std::vector<fusion::AxisId> order_of_stores(const fusion::Problem& problem,
                                            const LayoutGroups& groups);

}  // namespace fuser::schedulers
