#include "base/options.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace fuser {
namespace {

constexpr OptionRow rows[] = {
#define FUSER_OPTION(name, variable, type, value, allowed, help) {variable, #type, value, help},
#include "base/options.def"
#undef FUSER_OPTION
};

// Returns whether `word` is in the comma-separated list `allowed`.
bool is_allowed(std::string_view allowed, std::string_view word) {
  bool found = allowed.empty();
  while (!found && !allowed.empty()) {
    const size_t comma = allowed.find(", ");
    found = word == allowed.substr(0, comma);
    allowed = comma == allowed.npos ? std::string_view() : allowed.substr(comma + 2);
  }
  return found;
}

// Parse the value of an option; `option` is "VARIABLE=value", for messages.
void parse(std::string_view option, std::string_view value, std::string_view, bool& out) {
  FUSER_CHECK(value == "0" || value == "1", User, "option-value", option, ": expected 0 or 1");
  out = value == "1";
}

void parse(std::string_view option, std::string_view value, std::string_view allowed,
           int64_t& out) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool whole = error == std::errc() && end == value.data() + value.size() && !value.empty();
  FUSER_CHECK(whole && number >= 0, User, "option-value", option,
              ": expected an integer, 0 or larger");
  FUSER_CHECK(is_allowed(allowed, value), User, "option-value", option, ": expected one of ",
              allowed);
  out = number;
}

void parse(std::string_view option, std::string_view value, std::string_view allowed,
           std::string& out) {
  FUSER_CHECK(value.empty() || is_allowed(allowed, value), User, "option-value", option,
              ": expected one of ", allowed);
  out = value;
}

void parse(std::string_view option, std::string_view value, std::string_view allowed,
           std::vector<std::string>& out) {
  std::vector<std::string> entries;
  while (!value.empty()) {
    const size_t comma = value.find(',');
    const std::string_view entry = value.substr(0, comma);
    const std::string_view name = entry.substr(0, entry.find('@'));
    FUSER_CHECK(entry.empty() || is_allowed(allowed, name), User, "option-value", option,
                ": expected entries from ", allowed, ", got ", name);
    if (!entry.empty()) entries.emplace_back(entry);
    value = comma == value.npos ? std::string_view() : value.substr(comma + 1);
  }
  out = std::move(entries);
}

std::string print(bool value) { return value ? "1" : "0"; }
std::string print(int64_t value) { return std::to_string(value); }
std::string print(const std::string& value) { return value; }
std::string print(const std::vector<std::string>& value) { return joined(value, ","); }

// Calls act(field, allowed) for the option of that name.
template <class Act>
void with_option(Options& options, std::string_view wanted, const Act& act) {
#define FUSER_OPTION(name, variable, type, value, allowed, help) \
  if (wanted == variable) return act(options.name, allowed);
#include "base/options.def"
#undef FUSER_OPTION
  throw Fault(FaultKind::User, "option-name",
              text("there is no option ", wanted, "; `python -m fuser --help` lists them"));
}

void assign(Options& options, std::string_view variable, std::string_view value) {
  with_option(options, variable, [&](auto& field, std::string_view allowed) {
    parse(text(variable, "=", value), value, allowed, field);
  });
}

// Returns the Levenshtein distance: insertions, deletions and replacements of letters.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

// Logs one line with the FUSER_* variables of the environment that are no options, except variables
// of the test suite.
void name_unknown() {
  std::vector<std::string> unknown;
  for (char** entry = environ; entry && *entry; ++entry) {
    std::string_view name(*entry);
    name = name.substr(0, name.find('='));
    const auto is_it = [&](const OptionRow& row) { return name == row.variable; };
    if (!name.starts_with("FUSER_") || name.starts_with("FUSER_TEST_") ||
        std::any_of(std::begin(rows), std::end(rows), is_it))
      continue;
    const OptionRow& near = *std::min_element(
        std::begin(rows), std::end(rows), [&](const OptionRow& a, const OptionRow& b) {
          return distance(name, a.variable) < distance(name, b.variable);
        });
    const bool alike = 3 * distance(name, near.variable) <= name.size();
    unknown.push_back(text(name, alike ? text(" (did you mean ", near.variable, "?)") : ""));
  }
  if (unknown.empty()) return;
  std::sort(unknown.begin(), unknown.end());
  log_line(
      text("there is no option ", joined(unknown, ", "), "; `python -m fuser --help` lists them"));
}

Options from_environment() {
  Options result;
#define FUSER_OPTION(name, variable, type, value, allowed, help) \
  parse(variable, value, allowed, result.name);
#include "base/options.def"
#undef FUSER_OPTION
  for (const OptionRow& row : rows) {
    const char* value = std::getenv(row.variable);
    if (value == nullptr) continue;
    try {
      assign(result, row.variable, value);
    } catch (const Fault& fault) {
      log_line(text(fault.what(), "; using the default, ", *row.value ? row.value : "empty"));
    }
  }
  name_unknown();
  return result;
}

}  // namespace

namespace detail {
Options current_options = from_environment();
}

std::span<const OptionRow> option_rows() { return rows; }

std::string get_option(std::string_view variable) {
  std::string result;
  with_option(detail::current_options, variable,
              [&](const auto& field, std::string_view) { result = print(field); });
  return result;
}

void set_option(std::string_view variable, std::string_view value) {
  assign(detail::current_options, variable, value);
}

}  // namespace fuser
