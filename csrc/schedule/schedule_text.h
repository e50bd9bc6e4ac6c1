// Text of a schedule: every field, one line per dim, loop, access and staging. Fields at their
// defaults are left out.
//
//     dim d0 [a0]
//     dim d1 [a1] lines(0, 32)
//     nest
//       d0 Grid
//       d1 Unroll 4
//       d1 ThreadX 128
//       d1 Vector 4
//       lanes tail
//     access 0 Aligned 4 streaming
//     access 1 Aligned 4
//     staging access 0 Registers Row
//     reduction d1 InTile
//     launch threads(128)
#pragma once

#include <string>

#include "schedule/schedule.h"

namespace fuser::schedule {

std::string to_string(const Schedule& schedule);
// Reads such a text; whitespace and the order of attributes are free. Raises UserError "schedule-1"
// with the line that cannot be read.
Schedule parse_schedule(const std::string& text);
size_t hash(const Schedule& schedule);  // of the text

}  // namespace fuser::schedule
