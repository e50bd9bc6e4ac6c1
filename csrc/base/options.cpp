#include "base/options.h"

#include <charconv>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"

namespace fuser {
namespace {

constexpr OptionRow rows[] = {
#define FUSER_OPTION(name, variable, type, value, help) {variable, #type, value, help},
#include "base/options.def"
#undef FUSER_OPTION
};

void parse(std::string_view variable, std::string_view value, bool& out) {
  FUSER_CHECK(value == "0" || value == "1", User, "option-value", variable, "=", value,
              ": expected 0 or 1");
  out = value == "1";
}

void parse(std::string_view variable, std::string_view value, int64_t& out) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool whole = error == std::errc() && end == value.data() + value.size() && !value.empty();
  FUSER_CHECK(whole && number >= 0, User, "option-value", variable, "=", value,
              ": expected an integer, 0 or larger");
  out = number;
}

void parse(std::string_view, std::string_view value, std::string& out) { out = value; }

void parse(std::string_view, std::string_view value, std::vector<std::string>& out) {
  out.clear();
  while (!value.empty()) {
    const size_t comma = value.find(',');
    if (comma != 0) out.emplace_back(value.substr(0, comma));
    value = comma == value.npos ? std::string_view() : value.substr(comma + 1);
  }
}

std::string print(bool value) { return value ? "1" : "0"; }
std::string print(int64_t value) { return std::to_string(value); }
std::string print(const std::string& value) { return value; }
std::string print(const std::vector<std::string>& value) { return joined(value, ","); }

// `act(field, variable)` on the option of that name.
template <class Act>
void with_option(Options& options, std::string_view wanted, const Act& act) {
#define FUSER_OPTION(name, variable, type, value, help) \
  if (wanted == variable) return act(options.name);
#include "base/options.def"
#undef FUSER_OPTION
  throw Fault(FaultKind::User, "option-name",
              text("no option is called ", wanted, "; `python -m fuser --help` lists them"));
}

Options from_environment() {
  Options result;
#define FUSER_OPTION(name, variable, type, value, help) parse(variable, value, result.name);
#include "base/options.def"
#undef FUSER_OPTION
  for (const OptionRow& row : rows) {
    const char* value = std::getenv(row.variable);
    if (value == nullptr) continue;
    try {
      with_option(result, row.variable, [&](auto& field) { parse(row.variable, value, field); });
    } catch (const Fault& fault) {
      log_line(text(fault.what(), "; using the default, ", *row.value ? row.value : "empty"));
    }
  }
  return result;
}

}  // namespace

namespace detail {
Options current_options = from_environment();
}

std::span<const OptionRow> option_rows() { return rows; }

std::string get_option(std::string_view variable) {
  std::string result;
  with_option(detail::current_options, variable, [&](const auto& field) { result = print(field); });
  return result;
}

void set_option(std::string_view variable, std::string_view value) {
  with_option(detail::current_options, variable,
              [&](auto& field) { parse(variable, value, field); });
}

}  // namespace fuser
