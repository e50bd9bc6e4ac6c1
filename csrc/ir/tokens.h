// Tokens of a kernel's text with their positions, and a reader for them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/dtype.h"

namespace fuser::ir {

struct Token {
  enum class Kind : uint8_t { Name, Number, Sign, Line, End };
  Kind kind;
  std::string_view text;  // part of the source, which must outlive it
  int line, column;       // from 1
};

// Raises UserError "parse-1": "kernel text, line 3, column 14: expected ..., got ...".
[[noreturn]] void fail(const Token& at, const std::string& expected);

// "v12" with prefix 'v' gives 12. Returns false if the name has another form.
bool numbered(std::string_view name, char prefix, int& number);
// Looks up a dtype by its name in kernel text.
bool find_dtype(std::string_view name, DType& dtype);

struct TokenReader {
  explicit TokenReader(std::string_view source);

  std::vector<Token> tokens;  // the last is End; comments and blanks are dropped
  size_t position = 0;

  const Token& peek(size_t ahead = 0) const;
  bool at(std::string_view word) const { return peek().text == word; }
  bool accept(std::string_view word);
  void skip_lines();

  // Read the named token, or fail with `what` as the expected text.
  void expect(std::string_view word);
  void line_end();
  std::string_view name(const char* what);
  int integer(const char* what);  // not negative
  int numbered_name(char prefix, const char* what);
  DType dtype();
  std::string digits(const char* what);  // "-" and the number are two tokens
  double real();
};

}  // namespace fuser::ir
