// The five kinds of fault, and the two macros that raise them.
//
// A user error, an unsupported fusion and a bug of ours are three different things, and the kind
// travels as data so that it survives the way C++ -> Python -> C++. Messages name the operands,
// what was expected against what was given, and what to do; never a C++ condition.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace fuser {

enum class FaultKind {
  User,         // the program is wrong (fuser.UserError)
  Shape,        // the program is wrong about shapes (fuser.ShapeError)
  DType,        // the program is wrong about dtypes (fuser.DTypeError)
  Unsupported,  // right, but not fusible here (fuser.Unsupported); adapters catch only this one
  Compile,      // the compiler refused our text (fuser.CompileError)
  Launch,       // the driver refused (fuser.LaunchError)
  Internal,     // our bug (fuser.InternalError)
};

class Fault : public std::runtime_error {
 public:
  // rule: the id under which the law stands in the docs, in the code and in a test name, e.g.
  // "broadcast-1".
  Fault(FaultKind kind, std::string rule, const std::string& message)
      : std::runtime_error(message), kind(kind), rule(std::move(rule)) {}

  FaultKind kind;
  std::string rule;
};

// "a, b, c" of anything that streams.
template <class Range>
std::string joined(const Range& range, const char* separator = ", ") {
  std::ostringstream out;
  const char* between = "";
  for (const auto& item : range) {
    out << between << item;
    between = separator;
  }
  return out.str();
}

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace fuser

// Raise unless `condition`: the message parts are built only on failure.
#define FUSER_CHECK(condition, kind, rule, ...)                                         \
  do {                                                                                  \
    if (!(condition)) [[unlikely]]                                                      \
      throw ::fuser::Fault(::fuser::FaultKind::kind, rule, ::fuser::text(__VA_ARGS__)); \
  } while (0)

// A broken invariant of ours.
#define FUSER_ASSERT(condition, ...)                                                   \
  do {                                                                                 \
    if (!(condition)) [[unlikely]]                                                     \
      throw ::fuser::Fault(::fuser::FaultKind::Internal, "internal",                   \
                           ::fuser::text(__FILE__, ":", __LINE__, ": ", __VA_ARGS__)); \
  } while (0)
