// Options: every FUSER_* environment variable, from one table (options.def).
//
// The environment is read once, when the library is loaded. Afterwards an option is a field of a
// plain struct, cheap enough for the launch path. A value that does not parse or is not allowed
// leaves the default and prints one line: a bad variable must not stop a training run.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fuser {

namespace option_type {
using Flag = bool;
using Int = int64_t;
using Text = std::string;
using List = std::vector<std::string>;
}  // namespace option_type

struct Options {
#define FUSER_OPTION(name, variable, type, value, allowed, help) option_type::type name = {};
#include "base/options.def"
#undef FUSER_OPTION
};

struct OptionRow {
  const char* variable;  // "FUSER_CACHE_MB"
  const char* type;      // "Flag", "Int", "Text", "List"
  const char* value;     // default, as text
  const char* help;
};

namespace detail {
extern Options current_options;
}

inline const Options& options() { return detail::current_options; }

// Returns the options in the order of the table.
std::span<const OptionRow> option_rows();

// Returns the option's current value in the syntax of the environment variable. Raises User
// "option-name" for an unknown name.
std::string get_option(std::string_view variable);

// Changes an option of the running process, for tests and the command line. No launch may be in
// progress. Raises User "option-name" for an unknown name, and "option-value" for a value that does
// not parse or is not allowed.
void set_option(std::string_view variable, std::string_view value);

}  // namespace fuser
