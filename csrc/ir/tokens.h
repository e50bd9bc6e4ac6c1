// The words of a kernel's text, with where they stand, and reading them one after the other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/dtype.h"

namespace fuser {

struct Token {
  enum class Kind : uint8_t { Name, Number, Sign, Line, End };
  Kind kind;
  std::string_view text;  // of the source, which must outlive it
  int line, column;       // from 1
};

// Raises UserError "parse-1": "kernel text, line 3, column 14: expected ..., got ...".
[[noreturn]] void fail(const Token& at, const std::string& expected);

// "v12" with prefix 'v' gives 12; false where the name is of another form.
bool numbered(std::string_view name, char prefix, int& number);
// By its name in kernel text.
bool find_dtype(std::string_view name, DType& dtype);

struct TokenReader {
  explicit TokenReader(std::string_view source);

  std::vector<Token> tokens;  // the last is End; comments and blanks are gone
  size_t position = 0;

  const Token& peek(size_t ahead = 0) const;
  bool at(std::string_view word) const { return peek().text == word; }
  bool accept(std::string_view word);
  void skip_lines();

  // These take what they are named after, or fail with `what`, the thing expected.
  void expect(std::string_view word);
  void line_end();
  std::string_view name(const char* what);
  int integer(const char* what);  // not negative
  int numbered_name(char prefix, const char* what);
  DType dtype();
  std::string digits(const char* what);  // "-" and the number are two tokens
  double real();
};

}  // namespace fuser
