// Checks of plans that a user changed. Each refusal is UserError "plan-1". It names the field and
// the value, states the allowed values, and prints the planned ones.
#pragma once

#include <initializer_list>
#include <string>

#include "ir/kernel.h"
#include "schedule/device.h"
#include "schedule/plan.h"

namespace fuser {

// A field that a user may change, with its range.
struct Field {
  // Multiple: multiples of `least`. Divisor: divisors of `most`. Power: powers of two.
  enum Kind { Any, Multiple, Divisor, Power };
  const char* name;
  int64_t least, most;
  Kind kind = Any;
  const char* why = nullptr;  // reason for the range, after "because" in the message
};

// Reasons that several schedulers give for a range.
inline constexpr char too_many_threads[] = "a block has at most 1024 threads";
inline constexpr char too_many_registers[] = "more unrolled elements would spill registers";

// Raises "plan-1" unless `holds`: "plan: threads=3 is not allowed; expected a multiple of 32".
// `is` is "threads=3".
void expect(const Plan& planned, bool holds, const std::string& is, const std::string& expected);
// Raises "plan-1" for a value outside its range and for a change of a field that `free` does not
// list. Ranges must stay within 2^20, so that later products do not overflow.
void check_fields(const Plan& planned, const Plan& wanted, std::initializer_list<Field> free);
// Raises "plan-1" if the set is not a subset of `most`.
void check_subset(const Plan& planned, const Plan& wanted, const char* field,
                  const AccessSet& most);

// Raises "plan-1" if the kernel of plan `wanted` needs more registers or shared memory than an SM
// of the device has. A block needs `shared` bytes. On the host executor the limits of the GPU that
// it emulates apply.
void check_resources(const Plan& planned, const Plan& wanted, const KernelIR& kernel,
                     int64_t shared, const Device& planned_for);

}  // namespace fuser
