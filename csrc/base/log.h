// Log lines and dumps for the user: warnings, FUSER_LOG, FUSER_DUMP.
#pragma once

#include <string_view>

#include "base/options.h"

namespace fuser {

// Writes "fuser: <text>" to stderr in one write, so that lines of several threads do not mix.
void log_line(std::string_view text);

inline bool log_enabled() { return options().log; }

// Calls log_line() if FUSER_LOG=1. If building the text is expensive, test log_enabled() first.
void log(std::string_view text);

// Returns whether FUSER_DUMP selects this stage ("fusion", "schedule", a pass, "cuda") of this
// kernel.
bool dump_enabled(std::string_view stage, std::string_view kernel);

// Writes `text` to stderr under a title, or to its own file in FUSER_DUMP_DIR:
// <number>.<kernel>.<stage>.txt, .cu for cuda. Numbers increase over the process, so that a listing
// shows the order of events. Callers test dump_enabled() first.
void dump(std::string_view stage, std::string_view kernel, std::string_view text);

}  // namespace fuser
