#include "ir/parse_expr.h"

#include <charconv>

#include "base/error.h"

namespace fuser::ir {
namespace {

bool find_infix(std::string_view sign, Op& op, int& level) {
  static constexpr struct {
    std::string_view sign;
    Op op;
    int level;
  } table[] = {{"<", Op::lt, 1},  {"+", Op::add, 2}, {"-", Op::sub, 2},
               {"*", Op::mul, 3}, {"/", Op::div, 3}, {"%", Op::mod, 3}};
  for (const auto& row : table) {
    if (row.sign != sign) continue;
    op = row.op;
    level = row.level;
    return true;
  }
  return false;
}

}  // namespace

int ExprParser::declared(const Names& table, const char* what) {
  const auto it = table.find(peek().text);
  if (it == table.end()) fail(peek(), what);
  ++position;
  return it->second;
}

// ---- Constants

// Look up the dtype behind a constant first, because it determines how the constant is read.
DType ExprParser::constant_type() const {
  size_t i = position;
  if (peek().text == "{") {
    while (tokens[i].text != "}" && tokens[i].kind != Token::Kind::Line &&
           tokens[i].kind != Token::Kind::End)
      ++i;
  } else {
    if (tokens[i].text == "-") ++i;
    if (tokens[i].text == "nan" && peek(1).text == "(") i += 3;
  }
  DType d = DType::Int64;
  if (i + 2 < tokens.size() && tokens[i + 1].text == ":") find_dtype(tokens[i + 2].text, d);
  return d;
}

Expr ExprParser::constant() {
  const Token start = peek();
  const DType expected = constant_type();
  Number value;
  switch (kind_of(expected)) {
    case Kind::Bool:
      if (!at("true") && !at("false")) fail(peek(), "true or false");
      value.integer = at("true");
      ++position;
      break;
    case Kind::Int: {
      if (start.kind == Token::Kind::Name)
        fail(start, "the dtype after the constant, e.g. true:bool or inf:f32");
      const std::string number = digits("an expression");
      const auto [end, error] =
          std::from_chars(number.data(), number.data() + number.size(), value.integer);
      if (error != std::errc() || end != number.data() + number.size())
        fail(start, "an integer of 64 bits, or the dtype after the number, e.g. 1.5:f32");
      break;
    }
    case Kind::Float:
      value.real = real();
      break;
    case Kind::Complex:
      expect("{");
      value.real = real();
      expect(",");
      value.imag = real();
      expect("}");
      break;
  }
  if (accept(":")) dtype();
  return kernel.exprs.constant(expected, value);
}

// ---- Expressions

// An operator or bracket whose operands are incomplete.
struct ExprParser::Open {
  enum class Kind : uint8_t { Paren, Call, Cast, Index, Infix };
  Kind kind;
  Token at;
  size_t base = 0;  // number of values before its own operands
  Op op{};
  DType dtype{};
  int array = 0;
  int level = 0;  // Infix
};
struct ExprParser::Stacks {
  std::vector<Expr> values;
  std::vector<Open> open;
};

// Reads a leaf: a constant or a symbol.
Expr ExprParser::leaf() {
  const Token t = peek();
  if (t.kind != Token::Kind::Name) return constant();
  if (t.text == "thread" || t.text == "block") {
    ++position;
    return kernel.exprs.symbol(t.text == "thread" ? Symbol::Thread : Symbol::Block, 0);
  }
  const bool leads_call = peek(1).text == "(";
  if (leads_call && (t.text == "size" || t.text == "stride")) return extent();
  if (leads_call && (t.text == "scalar" || t.text == "rng_offset" || t.text == "value"))
    return input();
  int i = 0;
  if (numbered(t.text, 'a', i)) {
    ++position;
    return kernel.exprs.symbol(Symbol::Axis, i);
  }
  if (numbered(t.text, 'v', i)) {
    ++position;
    return variable(i);
  }
  if (numbered(t.text, 'p', i)) {
    if (i >= static_cast<int>(kernel.params.size())) fail(t, "a declared parameter");
    ++position;
    return parameter(i);
  }
  const bool named = t.text == "true" || t.text == "false" || t.text == "inf" || t.text == "nan";
  if (!named) fail(t, "an expression");
  return constant();
}

Expr ExprParser::extent() {
  const Symbol symbol = at("size") ? Symbol::Size : Symbol::Stride;
  position += 2;
  const int tensor = integer("the number of a tensor input");
  expect(",");
  const int dim = integer("a dim");
  expect(")");
  return kernel.exprs.symbol(symbol, tensor, dim);
}

Expr ExprParser::input() {
  const Symbol symbol = at("scalar")       ? Symbol::Scalar
                        : at("rng_offset") ? Symbol::RngOffset
                                           : Symbol::Value;
  position += 2;
  const int number = integer("the number of an input");
  expect(")");
  return kernel.exprs.symbol(symbol, number, 0, accept(":") ? dtype() : DType::Int64);
}

Expr ExprParser::parameter(int number) {
  const Param& p = kernel.params[number];
  const bool integer = p.kind == Param::Kind::Int || p.kind == Param::Kind::Divisor;
  return kernel.exprs.symbol(Symbol::Param, number, 0, integer ? DType::Int64 : p.dtype);
}

Expr ExprParser::variable(int number) {
  const auto it = var_types.find(number);
  return kernel.exprs.symbol(Symbol::Var, number, 0,
                             it == var_types.end() ? DType::Int64 : it->second);
}

// Reads an opening bracket, call or subscript. Returns false if an operand comes next.
bool ExprParser::opens(Stacks& s) {
  const Token& t = peek();
  Open open{.kind = Open::Kind::Paren, .at = t, .base = s.values.size()};
  size_t taken = 1;
  if (t.kind == Token::Kind::Name && peek(1).text == "[") {
    const auto it = arrays.find(t.text);
    if (it == arrays.end()) fail(t, "a declared array");
    open.kind = Open::Kind::Index;
    open.array = it->second;
    taken = 2;
  } else if (t.kind == Token::Kind::Name && peek(1).text == "(" && find_op(t.text, open.op)) {
    open.kind = Open::Kind::Call;
    taken = 2;
  } else if (t.kind == Token::Kind::Name && peek(1).text == "(" && find_dtype(t.text, open.dtype)) {
    open.kind = Open::Kind::Cast;
    taken = 2;
  } else if (t.text != "(") {
    return false;
  }
  s.open.push_back(open);
  position += taken;
  return true;
}

// Applies the infix operators on top that bind at least as tightly as `level`.
void ExprParser::reduce(Stacks& s, int level) {
  while (!s.open.empty() && s.open.back().kind == Open::Kind::Infix &&
         s.open.back().level >= level) {
    const Open open = s.open.back();
    s.open.pop_back();
    Expr right = s.values.back();
    s.values.pop_back();
    Expr& left = s.values.back();
    for (Expr e : {left, right})
      if (e->dtype != DType::Int64)
        fail(open.at, text("operands of int64 (write ", row(open.op).name,
                           "(x, y) for operands of ", row(e->dtype).device, ")"));
    left = kernel.exprs.apply(open.op, {left, right});
  }
}

// Reads the field of a partial result behind its subscript.
Expr ExprParser::element(int number, Expr index) {
  const Array& a = kernel.arrays[number];
  int field = 0;
  if (accept(".")) {
    const Token t = peek();
    field = numbered_name('f', "a field, e.g. f0");
    const int fields = a.state ? row(a.state->op).results() : 0;
    if (field >= fields) fail(t, text("one of the ", fields, " fields of ", a.name));
  }
  const DType dtype = a.state ? result_dtype(a.state->op, a.dtype, field) : a.dtype;
  return kernel.exprs.element(number, index, dtype, field);
}

// Ends the innermost parenthesis, call or subscript.
void ExprParser::close(Stacks& s) {
  const Open open = s.open.back();
  const size_t got = s.values.size() - open.base;
  const size_t wanted = open.kind == Open::Kind::Call ? row(open.op).arity : 1;
  if (got < wanted && !at(","))
    fail(peek(), text("',': ", open.at.text, " expects ", wanted, " operands"));
  expect(open.kind == Open::Kind::Index ? "]" : ")");
  s.open.pop_back();
  const std::span<const Expr> args(s.values.data() + open.base, got);
  Expr result = args[0];
  if (open.kind == Open::Kind::Call) result = kernel.exprs.apply(open.op, args);
  if (open.kind == Open::Kind::Cast) result = kernel.exprs.cast(open.dtype, args[0]);
  if (open.kind == Open::Kind::Index) result = element(open.array, args[0]);
  s.values.resize(open.base);
  s.values.push_back(result);
}

// Operator precedence parser with stacks of its own, so that the call stack does not limit the
// depth of an expression.
Expr ExprParser::expression() {
  Stacks s;
  for (;;) {
    while (opens(s)) {
    }
    s.values.push_back(leaf());
    for (;;) {
      Open infix{.kind = Open::Kind::Infix, .at = peek()};
      if (peek().kind == Token::Kind::Sign && find_infix(peek().text, infix.op, infix.level)) {
        reduce(s, infix.level);
        s.open.push_back(infix);
        ++position;
        break;
      }
      reduce(s, 0);
      if (s.open.empty()) return s.values.back();
      const Open& open = s.open.back();
      const bool more =
          open.kind == Open::Kind::Call && s.values.size() - open.base < row(open.op).arity;
      if (more && accept(",")) break;
      close(s);
    }
  }
}

Expr ExprParser::subscript() {
  expect("[");
  Expr e = expression();
  expect("]");
  return e;
}

}  // namespace fuser::ir
