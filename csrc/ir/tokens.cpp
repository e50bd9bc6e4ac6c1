#include "ir/tokens.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace fuser::ir {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// Reads the complete `text` as a number.
template <class T, class... Base>
bool read(std::string_view text, T& value, Base... base) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base...);
  return error == std::errc() && stop == end;
}

}  // namespace

void fail(const Token& at, const std::string& expected) {
  const std::string got = at.kind == Token::Kind::End    ? "the end of the text"
                          : at.kind == Token::Kind::Line ? "the end of the line"
                                                         : text("'", at.text, "'");
  throw Fault(FaultKind::User, "parse-1",
              text("kernel text, line ", at.line, ", column ", at.column, ": expected ", expected,
                   ", got ", got));
}

bool numbered(std::string_view name, char prefix, int& number) {
  if (name.size() < 2 || name[0] != prefix || (name[1] == '0' && name.size() > 2)) return false;
  return read(name.substr(1), number) && number < std::numeric_limits<int>::max();
}

bool find_dtype(std::string_view name, DType& dtype) {
  const auto rows = dtype_rows();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (name != rows[i].device) continue;
    dtype = static_cast<DType>(i);
    return true;
  }
  return false;
}

TokenReader::TokenReader(std::string_view source) {
  int line = 1;
  size_t line_start = 0, i = 0;
  const auto column = [&](size_t at) { return static_cast<int>(at - line_start) + 1; };
  while (i < source.size()) {
    const size_t start = i;
    const char c = source[i++];
    const auto skip_while = [&](auto accepts) {
      while (i < source.size() && accepts(source[i])) ++i;
    };
    Token::Kind kind = Token::Kind::Sign;
    if (c == '#') {
      skip_while([](char d) { return d != '\n'; });
      continue;
    }
    if (c == ' ') continue;
    if (c == '\n') {
      kind = Token::Kind::Line;
    } else if (is_letter(c)) {
      kind = Token::Kind::Name;
      skip_while([](char d) { return is_letter(d) || is_digit(d); });
    } else if (is_digit(c)) {
      kind = Token::Kind::Number;
      skip_while([&](char d) {
        const bool exponent_sign = (d == '-' || d == '+') && source[i - 1] == 'e';
        return is_letter(d) || is_digit(d) || d == '.' || exponent_sign;
      });
    }
    tokens.push_back({kind, source.substr(start, i - start), line, column(start)});
    if (kind == Token::Kind::Line) {
      ++line;
      line_start = i;
    }
  }
  tokens.push_back({Token::Kind::End, "", line, column(source.size())});
}

const Token& TokenReader::peek(size_t ahead) const {
  return tokens[std::min(position + ahead, tokens.size() - 1)];
}

bool TokenReader::accept(std::string_view word) {
  if (!at(word)) return false;
  ++position;
  return true;
}

void TokenReader::skip_lines() {
  while (peek().kind == Token::Kind::Line) ++position;
}

void TokenReader::expect(std::string_view word) {
  if (!accept(word)) fail(peek(), text("'", word, "'"));
}

void TokenReader::line_end() {
  if (peek().kind != Token::Kind::Line && peek().kind != Token::Kind::End)
    fail(peek(), "the end of the line");
  skip_lines();
}

std::string_view TokenReader::name(const char* what) {
  if (peek().kind != Token::Kind::Name) fail(peek(), what);
  return tokens[position++].text;
}

int TokenReader::integer(const char* what) {
  int value = 0;
  if (peek().kind != Token::Kind::Number || !read(peek().text, value)) fail(peek(), what);
  ++position;
  return value;
}

int TokenReader::numbered_name(char prefix, const char* what) {
  int number = 0;
  if (!numbered(peek().text, prefix, number)) fail(peek(), what);
  ++position;
  return number;
}

DType TokenReader::dtype() {
  DType d{};
  if (!find_dtype(peek().text, d)) fail(peek(), "a dtype, e.g. f32 or bf16");
  ++position;
  return d;
}

std::string TokenReader::digits(const char* what) {
  std::string out = accept("-") ? "-" : "";
  if (peek().kind != Token::Kind::Number) fail(peek(), what);
  return out.append(tokens[position++].text);
}

double TokenReader::real() {
  using Limits = std::numeric_limits<double>;
  if (accept("nan")) {
    if (!accept("(")) return Limits::quiet_NaN();
    uint64_t bits = 0;
    const bool valid = peek().text.starts_with("0x") && read(peek().text.substr(2), bits, 16) &&
                       std::isnan(std::bit_cast<double>(bits));
    if (!valid) fail(peek(), "the bits of a float64 NaN, e.g. 0x7ff8000000000001");
    ++position;
    expect(")");
    return std::bit_cast<double>(bits);
  }
  const bool negative = at("-");
  if (peek(negative).text == "inf") {
    position += negative ? 2 : 1;
    return negative ? -Limits::infinity() : Limits::infinity();
  }
  const Token& start = peek();
  double value = 0;
  if (!read(digits("a number"), value)) fail(start, "a number in the range of float64");
  return value;
}

}  // namespace fuser::ir
