// Kinds of faults, and the two macros that raise them.
//
// A user error, an unsupported fusion and an internal bug are distinct. The kind is a data member,
// so that it survives the path C++ -> Python -> C++. Messages name the operands, expected against
// given values, and a remedy; they never quote a C++ condition.
#pragma once

#include <charconv>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace fuser {

enum class FaultKind {
  User,         // the program is wrong (fuser.UserError)
  Shape,        // the program has wrong shapes (fuser.ShapeError)
  DType,        // the program has wrong dtypes (fuser.DTypeError)
  Unsupported,  // valid, but not fusible (fuser.Unsupported); adapters catch only this kind
  Compile,      // the compiler rejected generated text (fuser.CompileError)
  Launch,       // the driver reported an error (fuser.LaunchError)
  Internal,     // a bug of fuser (fuser.InternalError)
};

class Fault : public std::runtime_error {
 public:
  // rule: id of the violated rule in docs, code and tests, e.g. "broadcast-1".
  Fault(FaultKind kind, std::string rule, const std::string& message)
      : std::runtime_error(message), kind(kind), rule(std::move(rule)) {}

  FaultKind kind;
  std::string rule;
};

// Appends a streamable value as a stream prints it. Strings and integers, nearly all parts of the
// texts of kernels, need no stream, whose construction takes longer than a short text.
template <class T>
void append_to(std::string& out, const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    out += value ? '1' : '0';
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    out += std::string_view(value);
  } else if constexpr (std::is_integral_v<T> && sizeof(T) == 1) {
    out += static_cast<char>(value);
  } else if constexpr (std::is_integral_v<T>) {
    char digits[24];
    out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
  } else {
    std::ostringstream stream;
    stream << value;
    out += stream.str();
  }
}

// Returns "a, b, c" for any range of streamable items.
template <class Range>
std::string joined(const Range& range, const char* separator = ", ") {
  std::string out;
  const char* between = "";
  for (const auto& item : range) {
    out += between;
    append_to(out, item);
    between = separator;
  }
  return out;
}

template <class... Parts>
std::string text(const Parts&... parts) {
  std::string out;
  (append_to(out, parts), ...);
  return out;
}

}  // namespace fuser

// Raises a Fault unless `condition` holds. Message parts are evaluated only on failure.
#define FUSER_CHECK(condition, kind, rule, ...)                                         \
  do {                                                                                  \
    if (!(condition)) [[unlikely]]                                                      \
      throw ::fuser::Fault(::fuser::FaultKind::kind, rule, ::fuser::text(__VA_ARGS__)); \
  } while (0)

// Raises InternalError unless an invariant of fuser holds.
#define FUSER_ASSERT(condition, ...)                                                   \
  do {                                                                                 \
    if (!(condition)) [[unlikely]]                                                     \
      throw ::fuser::Fault(::fuser::FaultKind::Internal, "internal",                   \
                           ::fuser::text(__FILE__, ":", __LINE__, ": ", __VA_ARGS__)); \
  } while (0)
