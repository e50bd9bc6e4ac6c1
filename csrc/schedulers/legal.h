// Checks of the values that a user writes in place of planned ones. A refusal is UserError
// "plan-1", names field and value, says what is possible, and prints the planned one.
#pragma once

#include <initializer_list>
#include <string>

#include "ir/kernel.h"
#include "schedule/device.h"
#include "schedule/plan.h"

namespace fuser {

struct Field {
  enum Kind { Any, Multiple, Divisor, Power };  // of the least, of the most, of two
  const char* name;
  int64_t least, most;
  Kind kind = Any;
};

// Refuses unless it holds: "plan: threads=3 is not possible here; expected a multiple of 32".
// `is`: "threads=3".
void expect(const Plan& planned, bool holds, const std::string& is, const std::string& expected);
// Refuses a number out of its range; fields that are not listed must stay as planned. No range is
// larger than 2^20, so that arithmetic on the numbers does not overflow.
void check_fields(const Plan& planned, const Plan& wanted, std::initializer_list<Field> free);
// Refuses a set that is not a part of `most`.
void check_subset(const Plan& planned, const Plan& wanted, const char* field,
                  const AccessSet& most);

// Refuses what no processor of the device has for the kernel of the plan `wanted`: registers, and
// shared memory, of which a block takes `shared` bytes. On the host, what no GPU of its features
// has.
void check_resources(const Plan& planned, const Plan& wanted, const KernelIR& kernel,
                     int64_t shared, const Device& planned_for);

}  // namespace fuser
