// Tensors that disagree on the innermost axis lie along two sides, X and Y: which of them lies
// along which, and what crosses from one to the other. See transpose.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "schedulers/dims.h"

namespace fuser {

enum Side : uint8_t { X, Y, None };
constexpr Side other(Side s) { return s == X ? Y : X; }

struct Sides {
  Dims dims;                        // outermost first, X last and Y before it
  std::vector<Side> of;             // by access; None: what varies along one of them at most
  std::array<int, 2> vector{1, 1};  // 16 bytes of the widest element that moves
  std::array<std::vector<ValueId>, 2> crossing;  // to the other side
  std::vector<Side> stages;                      // along which the lanes of each run
  std::vector<uint8_t> from;  // by value: the sides that it is computed from, as bits

  const std::vector<AxisId>& axes(Side s) const { return dims[dims.size() - (s == X ? 1 : 2)]; }
};

constexpr uint8_t bit_of(Side s) { return s == None ? 0 : static_cast<uint8_t>(1 << s); }

// Elements of the values that cross, of one thread, at most; fewer only where they are large.
constexpr int turned_elements = 64;

struct FoundSides {
  std::optional<Sides> sides;
  const char* rule = nullptr;
  const char* why = nullptr;
};
// The sides of a problem, or the rule that it breaks.
FoundSides find_sides(Problem& problem);
// Of one that has them.
Sides sides_of(Problem& problem);

// The side along which lanes move the elements of an access; None: they are one element.
Side lanes_of(const Problem& problem, const Sides& sides, size_t access);
ValueId stored_value(const Problem& problem, const MemoryAccess& store);
// Bytes of one element: of what crosses, and of what is stored along each side.
int crossing_bytes(const Problem& problem, const Sides& sides);
std::array<int, 2> stored_bytes(const Problem& problem, const Sides& sides);
// The side along which all is stored; None where both have stores.
Side stored_side(const Problem& problem, const Sides& sides);
// The axes in the order of most bytes that are stored.
std::vector<AxisId> order_of_stores(const Problem& problem, const Sides& sides);

}  // namespace fuser
