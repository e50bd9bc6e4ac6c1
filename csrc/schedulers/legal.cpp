#include "schedulers/legal.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace fuser::schedulers {

using namespace ir;
using namespace schedule;

namespace {

// Limit on the register arrays of a thread, in bytes. A GPU thread has 1020 bytes of registers and
// spills the rest. Beyond this limit compilers take minutes, and host executor stacks overflow.
constexpr int64_t most_array_bytes = 4 << 10;

// Lists the fields that differ: "threads=64, vector=2".
std::string changes(const Plan& planned, const Plan& wanted) {
  std::vector<std::string> out;
  if (!wanted.schedule.empty()) out.push_back("the schedule by hand");
  for (const auto& [name, value] : wanted.fields)
    if (value != planned.value(name)) out.push_back(text(name, "=", to_string(value)));
  return joined(out);
}

using Values = FieldRange::Values;

bool is_possible(const FieldRange& f, int64_t value) {
  if (value < f.least || value > f.most) return false;
  switch (f.values) {
    case Values::Any:
      return true;
    case Values::Multiple:
      return value % f.least == 0;
    case Values::Divisor:
      return f.most % value == 0;
    case Values::Power:
      return std::has_single_bit(static_cast<uint64_t>(value));
    case Values::Derived:
    case Values::Subset:
      break;
  }
  return false;
}

std::string possible(const FieldRange& f) {
  if (f.least >= f.most) return text(f.least);
  const std::string range = text(f.least, " to ", f.most);
  switch (f.values) {
    case Values::Any:
      return range;
    case Values::Multiple:
      return text("a multiple of ", f.least, " from ", range);
    case Values::Divisor:
      return text("a divisor of ", f.most);
    case Values::Power:
      return text("a power of two from ", range);
    case Values::Derived:
    case Values::Subset:
      break;
  }
  return range;
}

int64_t array_bytes(const KernelIR& kernel) {
  int64_t bytes = 0;
  for (const Array& a : kernel.arrays)
    bytes += int64_t{a.extent} * std::max(1, a.chunk) *
             (a.state ? state_bytes(a.state->op, a.dtype) : size_of(a.dtype));
  return bytes;
}

}  // namespace

void expect(const Plan& planned, bool holds, const std::string& is, const std::string& expected) {
  FUSER_CHECK(holds, User, "plan-1", "plan: ", is, " is not allowed; expected ", expected,
              "\n  planned: ", to_string(planned));
}

void check_fields(const Plan& planned, const Plan& wanted, std::initializer_list<Limits> narrower) {
  const std::span<const FieldRange> rows = fields_of(planned.scheduler);
  FUSER_ASSERT(rows.size() == wanted.fields.size(), "plan ", to_string(wanted),
               " has other fields than its table");
  for (const Limits& l : narrower)
    FUSER_ASSERT(std::any_of(rows.begin(), rows.end(),
                             [&](const FieldRange& row) { return row.name == l.field.text; }),
                 "a check of ", planned.scheduler, " limits ", l.field.text);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& [name, value] = wanted.fields[i];
    const PlanValue& was = planned.fields[i].second;
    FieldRange range = rows[i];
    if (value == was || range.values == Values::Subset) continue;
    const std::string is = text(name, "=", to_string(value));
    expect(planned, range.values != Values::Derived, is,
           text(to_string(was), ", because the scheduler derives this field from the kernel"));
    for (const Limits& l : narrower) {
      if (name != l.field.text) continue;
      range.least = l.least;
      range.most = l.most;
      if (l.values) range.values = *l.values;
      if (l.why) range.why = l.why;
    }
    expect(planned, is_possible(range, std::get<int64_t>(value)), is,
           range.why ? text(possible(range), ", because ", range.why) : possible(range));
  }
}

void check_subset(const Plan& planned, FieldName field, const AccessSet& was, const AccessSet& is,
                  const AccessSet& most) {
  expect(planned, is == was || is.is_subset_of(most),
         text(field.text, "=", to_string(PlanValue(is))),
         text("a subset of the bits of ", to_string(PlanValue(most)),
              ", because other accesses do not support it"));
}

void check_resources(const Plan& planned, const Plan& wanted, const KernelIR& kernel,
                     int64_t shared, const Device& planned_for) {
  // The host executor plans for a small GPU but can run a kernel that fits the real one.
  const Device device =
      planned_for.kind == Device::Kind::Emulated ? known_device(planned_for.arch) : planned_for;
  // The blocks of a cooperative grid must be resident at the same time.
  constexpr int64_t reserved = 1 << 10;  // bytes of shared memory that the system keeps per block
  const int64_t blocks = kernel.cooperative ? std::max(1, kernel.min_blocks) : 0;
  const bool resident = blocks * (shared + reserved) <= device.shared_per_sm &&
                        blocks * kernel.threads <= device.threads_per_sm;
  if (wanted == planned) {
    FUSER_ASSERT(resident || planned_for.kind == Device::Kind::Emulated, to_string(planned), ": ",
                 blocks, " cooperative blocks of ", shared, " bytes of shared memory per SM");
    return;
  }
  const std::string is = changes(planned, wanted);
  const int64_t arrays = array_bytes(kernel);
  expect(
      planned, shared <= device.shared_per_block, is,
      text("at most ", device.shared_per_block, " bytes of shared memory per block, got ", shared));
  expect(planned, arrays <= most_array_bytes, is,
         text("at most ", most_array_bytes, " bytes of register arrays per thread, got ", arrays));
  expect(planned, blocks * (shared + reserved) <= device.shared_per_sm, is,
         text("at most ", device.shared_per_sm, " bytes of shared memory for ", blocks,
              " blocks per SM, because all blocks must be resident at once, got ", shared,
              " per block"));
  expect(planned, blocks * kernel.threads <= device.threads_per_sm, is,
         text("at most ", device.threads_per_sm,
              " threads per SM, because all blocks must be resident at once, got ", blocks,
              " blocks of ", kernel.threads));
}

}  // namespace fuser::schedulers
