// Lines and texts for people: warnings, FUSER_LOG, FUSER_DUMP.
#pragma once

#include <string_view>

#include "base/options.h"

namespace fuser {

// "fuser: <text>" on stderr, in one write, so that lines of several threads do not mix.
void log_line(std::string_view text);

inline bool log_enabled() { return options().log; }

// log_line under FUSER_LOG=1 only. Where building the text costs something, ask log_enabled()
// first.
void log(std::string_view text);

// Does FUSER_DUMP select this stage ("fusion", "schedule", a pass, "cuda") of this kernel?
bool dump_enabled(std::string_view stage, std::string_view kernel);

// Writes `text` to stderr under a title, or to its own file in FUSER_DUMP_DIR:
// <number>.<kernel>.<stage>.txt, .cu for cuda. Numbers count up over the process, so that a listing
// shows the order of events. Callers ask dump_enabled().
void dump(std::string_view stage, std::string_view kernel, std::string_view text);

}  // namespace fuser
