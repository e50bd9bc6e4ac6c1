// Kernel IR from its text. One declaration or statement a line; '#' starts a comment. In the rules
// below, words in '' stand as they are, [x] may be absent, {x} may stand any number of times.
// One file because expressions, statements and declarations are one grammar.
//
//   kernel      'kernel' NAME 'threads' INT 'min_blocks' INT 'index' 32 or 64
//                   ['cluster' INT] ['cooperative'] ['vars' INT] '{'
//                   {declaration} {statement}
//               '}'
//       vars: the variables numbered so far, where they are more than the text mentions
//   declaration
//       'buffer' NAME DTYPE [state] [memory expr] ['read'] ['written'] ['restrict']
//           memory: 'workspace', 'counters' or 'shared', and its elements; a tensor's without it
//       'param' p<i> ':' DTYPE 'int' expr            i counts from 0
//       'param' p<i> ':' DTYPE 'divisor' expr
//       'param' p<i> ':' DTYPE 'real' expr
//       'param' p<i> ':' DTYPE 'inverse' expr        1 / it
//       'param' p<i> ':' DTYPE 'scalar' INT          the number of a scalar input
//       'param' p<i> ':' DTYPE 'value' INT           the number of a tensor input
//       'array' NAME DTYPE INT [state] ['chunk' INT] its extent; elements of a chunk as loaded
//       'axes' '[' {a<i>} ']' 'extents' '[' expr ',' ... ']' ['index' expr] ['vector'] ['whole']
//       'blocks' expr                                of the grid
//       'shared_rows' expr                           bytes of shared memory known at the launch
//   state       'state' REDUCTION                    holds partial results of it
//   statement
//       v<i> '=' expr                                Let of an index: int64, or bool
//       v<i> ':' DTYPE '=' expr                      any other Let; DTYPE is that of expr
//       ARRAY '[' expr ']' '=' expr
//       'load' ARRAY '[' expr ']' 'width' INT BUFFER '[' expr ']' exists [row]
//           ['once'] ['shifted' ['by' INT]]
//       'write' BUFFER '[' expr ']' 'width' INT ARRAY '[' expr ']' exists [row] ['once']
//       'for' v<i> '<' INT '{' {statement} '}'       '}' on a line of its own
//       'serial' v<i> '<' expr ['unroll' INT] '{' {statement} '}'
//       'if' ['uniform'] expr '{' {statement} '}'
//       'barrier'
//       'reset' ARRAY
//       'accumulate' ARRAY '[' expr ']' '(' expr ',' ... ')' ['in' expr]
//       'accumulate_all' ARRAY ARRAY                 the second's, in turn
//       'merge' ARRAY '[' expr ']' ARRAY '[' expr ']'          takes in the second
//       'fold' ARRAY
//       'combine' '(' ARRAY ',' ... ')' 'lanes' INT ['slots' '(' BUFFER ',' ... ')']
//           ['cluster' '(' BUFFER ',' ... ')'] ['parity' expr]
//           ['arrival' BUFFER '[' expr ']' 'turn' expr]
//       'combine_rows' '(' ARRAY ',' ... ')' 'rows' INT 'columns' INT ['slots' '(' BUFFER ... ')']
//       v<i> '=' 'last' BUFFER '[' expr ']' 'of' expr 'slot' BUFFER
//       'copy' BUFFER '[' expr ']' 'width' INT BUFFER '[' expr ']' ['in' expr]
//       'unpack' ARRAY ARRAY '[' expr ']'
//       'check' INT expr 'of' expr ['in' expr]       an index and its extent
//       'commit'
//       'wait' INT
//       'arrive_cluster' BUFFER
//       'wait_cluster'
//       'sync_grid' BUFFER
//   exists      ['in' expr] ['count' expr]
//   row         'column' expr 'of' expr 'jump' expr
//   expr
//       x + y   x - y   x * y   x / y   x % y   x < y     of int64, * / % before + - before <
//       OP(x, ...)   every op in every dtype: add(x, y)
//       DTYPE(x)     a cast: f32(x)
//       ARRAY[x]   ARRAY[x].f<i>   (x), where f<i> is a field of a partial result
//       size(i, dim)   stride(i, dim)   a<i>   v<i>   p<i>   thread   block
//       scalar(i)   drawn(i)   value(i)   scalar(i):f32   value(i):bf16   an input, of int64 or
//       of DTYPE
//       3   3:i32   1.5:f32   true:bool   {1.5, -2.0}:c64
//       inf:f32   -inf:f32   nan:f32   nan(0x7ff8000000000001):f32, the bits of a float64
//
// Dtypes are called as in kernel text (bf16). Expressions are built through Exprs, so what is not
// in normal form is brought into it. The parser checks what it needs; verify() checks the rest.
#include <charconv>
#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "ir/kernel.h"
#include "ir/tokens.h"

namespace fuser {
namespace {

constexpr int kMaxNesting = 100;  // of loops and conditions: bodies are walked by recursion

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

using Names = std::unordered_map<std::string_view, int>;

struct Parser : TokenReader {
  using TokenReader::TokenReader;

  KernelIR kernel;
  Names arrays, buffers;
  std::unordered_map<int, DType> var_types;  // of Lets; every other variable is int64

  int declared(const Names& table, const char* what) {
    const auto it = table.find(peek().text);
    if (it == table.end()) fail(peek(), what);
    ++position;
    return it->second;
  }

  // ---- Constants

  // The dtype behind a constant decides how it is read, so it is looked up first.
  DType constant_type() const {
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

  Expr constant() {
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
          fail(start, "the dtype of the constant behind it, as in true:bool or inf:f32");
        const std::string number = digits("an expression");
        const auto [end, error] =
            std::from_chars(number.data(), number.data() + number.size(), value.integer);
        if (error != std::errc() || end != number.data() + number.size())
          fail(start, "an integer of 64 bits, or the dtype of the number as in 1.5:f32");
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

  // What waits for its operands to end.
  struct Open {
    enum class Kind : uint8_t { Paren, Call, Cast, Index, Infix };
    Kind kind;
    Token at;
    size_t base = 0;  // operands before its own
    Op op{};
    DType dtype{};
    int array = 0;
    int level = 0;  // Infix
  };
  struct Stacks {
    std::vector<Expr> values;
    std::vector<Open> open;
  };

  // A leaf: a constant or a symbol.
  Expr leaf() {
    const Token t = peek();
    if (t.kind != Token::Kind::Name) return constant();
    if (t.text == "thread" || t.text == "block") {
      ++position;
      return kernel.exprs.symbol(t.text == "thread" ? Symbol::Thread : Symbol::Block, 0);
    }
    const bool leads_call = peek(1).text == "(";
    if (leads_call && (t.text == "size" || t.text == "stride")) return extent();
    if (leads_call && (t.text == "scalar" || t.text == "drawn" || t.text == "value"))
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

  Expr extent() {
    const Symbol symbol = at("size") ? Symbol::Size : Symbol::Stride;
    position += 2;
    const int tensor = integer("the number of a tensor input");
    expect(",");
    const int dim = integer("a dim");
    expect(")");
    return kernel.exprs.symbol(symbol, tensor, dim);
  }

  Expr input() {
    const Symbol symbol = at("scalar")  ? Symbol::Scalar
                          : at("drawn") ? Symbol::Drawn
                                        : Symbol::Value;
    position += 2;
    const int number = integer("the number of an input");
    expect(")");
    return kernel.exprs.symbol(symbol, number, 0, accept(":") ? dtype() : DType::Int64);
  }

  Expr parameter(int number) {
    const Param& p = kernel.params[number];
    const bool integer = p.kind == Param::Kind::Int || p.kind == Param::Kind::Divisor;
    return kernel.exprs.symbol(Symbol::Param, number, 0, integer ? DType::Int64 : p.dtype);
  }

  Expr variable(int number) {
    const auto it = var_types.find(number);
    return kernel.exprs.symbol(Symbol::Var, number, 0,
                               it == var_types.end() ? DType::Int64 : it->second);
  }

  // Opens what stands before an operand; false if the operand itself comes next.
  bool opens(Stacks& s) {
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
    } else if (t.kind == Token::Kind::Name && peek(1).text == "(" &&
               find_dtype(t.text, open.dtype)) {
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
  void reduce(Stacks& s, int level) {
    while (!s.open.empty() && s.open.back().kind == Open::Kind::Infix &&
           s.open.back().level >= level) {
      const Open open = s.open.back();
      s.open.pop_back();
      Expr right = s.values.back();
      s.values.pop_back();
      Expr& left = s.values.back();
      for (Expr e : {left, right})
        if (e->dtype != DType::Int64)
          fail(open.at, text("operands of int64 (write ", row(open.op).name, "(x, y) for those of ",
                             row(e->dtype).device, ")"));
      left = kernel.exprs.apply(open.op, {left, right});
    }
  }

  // What stands behind its subscript is which field of a partial result it is.
  Expr element(int number, Expr index) {
    const Array& a = kernel.arrays[number];
    int field = 0;
    if (accept(".")) {
      const Token t = peek();
      field = numbered_name('f', "a field, such as f0");
      const int fields = a.state ? row(a.state->op).results : 0;
      if (field >= fields) fail(t, text("one of the ", fields, " fields of ", a.name));
    }
    const DType dtype = a.state ? result_dtype(a.state->op, a.dtype, field) : a.dtype;
    return kernel.exprs.element(number, index, dtype, field);
  }

  // Ends the innermost parenthesis, call or subscript.
  void close(Stacks& s) {
    const Open open = s.open.back();
    const size_t got = s.values.size() - open.base;
    const size_t wanted = open.kind == Open::Kind::Call ? row(open.op).arity : 1;
    if (got < wanted && !at(","))
      fail(peek(), text("',': ", open.at.text, " takes ", wanted, " operands"));
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

  // Operator precedence with stacks of its own: the depth of an expression is not bounded by ours.
  Expr expression() {
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

  Expr subscript() {
    expect("[");
    Expr e = expression();
    expect("]");
    return e;
  }

  // ---- Declarations

  void declare(Names& table, size_t index, const char* what) {
    const Token t = peek();
    if (!table.emplace(name(what), static_cast<int>(index)).second)
      fail(t, text(what, " that is not taken yet"));
  }

  std::optional<State> state() {
    if (!accept("state")) return std::nullopt;
    State s;
    if (!find_reduction(peek().text, s.op)) fail(peek(), "the name of a reduction, such as sum");
    ++position;
    return s;
  }

  void buffer() {
    Buffer b{.name = std::string(peek().text)};
    declare(buffers, kernel.buffers.size(), "the name of a buffer");
    b.dtype = dtype();
    b.state = state();
    if (accept("workspace"))
      b.kind = Buffer::Kind::Workspace;
    else if (accept("counters"))
      b.kind = Buffer::Kind::Counters;
    else if (accept("shared"))
      b.kind = Buffer::Kind::Shared;
    if (b.kind != Buffer::Kind::Tensor) b.elements = expression();
    b.read = accept("read");
    b.written = accept("written");
    b.restrict_ = accept("restrict");
    kernel.buffers.push_back(std::move(b));
  }

  void param() {
    const int next = static_cast<int>(kernel.params.size());
    const Token t = peek();
    if (numbered_name('p', "the name of a parameter, such as p0") != next) fail(t, text("p", next));
    expect(":");
    Param p{.dtype = dtype()};
    if (accept("int") || accept("divisor")) {
      p.kind = tokens[position - 1].text == "int" ? Param::Kind::Int : Param::Kind::Divisor;
      p.value = expression();
    } else if (accept("real") || accept("inverse")) {
      p.kind = Param::Kind::Real;
      p.inverse = tokens[position - 1].text == "inverse";
      p.value = expression();
    } else if (accept("scalar") || accept("drawn") || accept("value")) {
      const std::string_view kind = tokens[position - 1].text;
      p.kind = kind == "scalar"  ? Param::Kind::Scalar
               : kind == "drawn" ? Param::Kind::Drawn
                                 : Param::Kind::Value;
      p.index = integer("the number of an input");
    } else {
      fail(peek(), "int, divisor, real, inverse, scalar, drawn or value");
    }
    kernel.params.push_back(p);
  }

  void array() {
    Array a{.name = std::string(peek().text)};
    declare(arrays, kernel.arrays.size(), "the name of an array");
    a.dtype = dtype();
    a.extent = integer("the extent of the array");
    a.state = state();
    if (accept("chunk")) a.chunk = integer("the elements of a chunk");
    kernel.arrays.push_back(std::move(a));
  }

  void axes() {
    LinearAxes w;
    expect("[");
    while (!accept("]")) w.axes.push_back(numbered_name('a', "an axis, such as a0, or ']'"));
    expect("extents");
    expect("[");
    if (!accept("]")) {
      do w.extents.push_back(expression());
      while (accept(","));
      expect("]");
    }
    if (accept("index")) w.index = expression();
    w.vector = accept("vector");
    w.whole = accept("whole");
    kernel.axes.push_back(std::move(w));
  }

  bool declaration() {
    // An array may be called like a keyword: r[i] = ... starts with a name and a bracket.
    if (peek(1).text == "[" && !at("axes")) return false;
    if (accept("buffer"))
      buffer();
    else if (accept("param"))
      param();
    else if (accept("array"))
      array();
    else if (accept("axes"))
      axes();
    else if (accept("blocks"))
      kernel.blocks = expression();
    else if (accept("shared_rows"))
      kernel.shared_rows = expression();
    else
      return false;
    line_end();
    return true;
  }

  // ---- Statements

  Stmt let() {
    const Token t = peek();
    Let s{.var = numbered_name('v', "a statement"), .index = !accept(":")};
    const DType stated = s.index ? DType::Int64 : dtype();
    expect("=");
    if (s.index && at("last") && peek(1).kind == Token::Kind::Name) return last(s.var);
    s.value = expression();
    if (!s.index && s.value->dtype != stated)
      fail(t, text("a value of dtype ", row(stated).device, ", as v", s.var, " states (it is ",
                   row(s.value->dtype).device, ")"));
    var_types[s.var] = s.value->dtype;
    return {s};
  }

  Stmt last(int var) {
    expect("last");
    Last s{.var = var, .counters = declared(buffers, "a declared buffer")};
    s.index = subscript();
    expect("of");
    s.count = expression();
    expect("slot");
    s.slot = declared(buffers, "a declared buffer");
    var_types[var] = DType::Bool;
    return {s};
  }

  template <class Access>
  void guards(Access& s) {
    if (accept("in")) s.in = expression();
    if constexpr (requires { s.count; })
      if (accept("count")) s.count = expression();
    if constexpr (requires { s.column; }) {
      if (accept("column")) {
        s.column = expression();
        expect("of");
        s.columns = expression();
        expect("jump");
        s.jump = expression();
      }
    }
    if constexpr (requires { s.once; }) s.once = accept("once");
  }

  Stmt shiftable(Load s) {
    guards(s);
    s.shifted = accept("shifted");
    if (s.shifted && accept("by")) s.words = integer("the words of the shift");
    return {s};
  }

  std::vector<int> list(const Names& table, const char* what) {
    std::vector<int> out;
    expect("(");
    do out.push_back(declared(table, what));
    while (accept(","));
    expect(")");
    return out;
  }
  std::vector<int> slots() { return list(buffers, "a declared buffer"); }

  int width() {
    expect("width");
    return integer("the number of elements");
  }

  Stmt simple_statement() {
    if (peek(1).text == "[") {
      Assign s{.array = declared(arrays, "a declared array")};
      s.element = subscript();
      expect("=");
      s.value = expression();
      return {s};
    }
    if (accept("load")) {
      Load s{.array = declared(arrays, "a declared array")};
      s.element = subscript();
      s.width = width();
      s.buffer = declared(buffers, "a declared buffer");
      s.offset = subscript();
      return shiftable(s);
    }
    if (accept("write")) {
      Write s{.buffer = declared(buffers, "a declared buffer")};
      s.offset = subscript();
      s.width = width();
      s.array = declared(arrays, "a declared array");
      s.element = subscript();
      guards(s);
      return {s};
    }
    if (accept("barrier")) return {Barrier{}};
    if (accept("commit")) return {Commit{}};
    if (accept("wait")) return {Wait{integer("the number of groups under way")}};
    if (accept("arrive_cluster"))
      return {SyncCluster{SyncCluster::Part::Arrive, declared(buffers, "a declared buffer")}};
    if (accept("wait_cluster")) return {SyncCluster{SyncCluster::Part::Wait}};
    if (accept("sync_grid")) return {SyncGrid{declared(buffers, "a declared buffer")}};
    if (accept("copy")) {
      Copy s{.shared = declared(buffers, "a declared buffer")};
      s.element = subscript();
      s.width = width();
      s.buffer = declared(buffers, "a declared buffer");
      s.offset = subscript();
      guards(s);
      return {s};
    }
    if (accept("unpack")) {
      Unpack s{.array = declared(arrays, "a declared array")};
      s.raw = declared(arrays, "a declared array");
      s.chunk = subscript();
      return {s};
    }
    if (accept("check")) {
      Check s{.number = integer("the number of the check")};
      s.index = expression();
      expect("of");
      s.extent = expression();
      if (accept("in")) s.in = expression();
      return {s};
    }
    if (auto s = reduction()) return std::move(*s);
    return let();
  }

  // Statements about partial results.
  std::optional<Stmt> reduction() {
    const char* const array = "a declared array";
    if (accept("reset")) return Stmt{Reset{declared(arrays, array)}};
    if (accept("accumulate_all")) {
      AccumulateAll s{.array = declared(arrays, array)};
      s.values = declared(arrays, array);
      return Stmt{s};
    }
    if (accept("fold")) return Stmt{Fold{declared(arrays, array)}};
    if (accept("accumulate")) {
      Accumulate s{.array = declared(arrays, array)};
      s.element = subscript();
      expect("(");
      do s.values.push_back(expression());
      while (accept(","));
      expect(")");
      if (accept("in")) s.in = expression();
      return Stmt{std::move(s)};
    }
    if (accept("merge")) {
      Merge s{.array = declared(arrays, array)};
      s.element = subscript();
      s.other = declared(arrays, array);
      s.other_element = subscript();
      return Stmt{s};
    }
    if (accept("combine")) {
      Combine s{.arrays = list(arrays, array)};
      expect("lanes");
      s.lanes = integer("the number of threads");
      if (accept("slots")) s.slots = slots();
      if (accept("cluster")) s.cluster_slots = slots();
      if (accept("parity")) s.parity = expression();
      if (accept("arrival")) {
        s.arrivals = declared(buffers, "a declared buffer");
        s.arrival = subscript();
        expect("turn");
        s.turn = expression();
      }
      return Stmt{std::move(s)};
    }
    if (accept("combine_rows")) {
      CombineRows s{.arrays = list(arrays, array)};
      expect("rows");
      s.rows = integer("the number of rows of threads");
      expect("columns");
      s.columns = integer("the number of columns of threads");
      if (accept("slots")) s.slots = slots();
      return Stmt{std::move(s)};
    }
    return std::nullopt;
  }

  // The head of a statement with a body, up to its "{"; nothing where none stands here.
  std::optional<Stmt> opening() {
    Stmt out;
    if (accept("for")) {
      For s{.var = numbered_name('v', "a variable, such as v0"), .body = {}};
      expect("<");
      s.extent = integer("the number of iterations");
      out.node = std::move(s);
    } else if (accept("serial")) {
      Serial s{.var = numbered_name('v', "a variable, such as v0"), .body = {}};
      expect("<");
      s.extent = expression();
      if (accept("unroll")) s.unroll = integer("the iterations side by side");
      out.node = std::move(s);
    } else if (accept("if")) {
      If s{.uniform = accept("uniform"), .body = {}};
      s.condition = expression();
      out.node = std::move(s);
    } else {
      return std::nullopt;
    }
    expect("{");
    line_end();
    return out;
  }

  // Statements up to the "}" of the kernel. Those being read stand on a stack, each with its body
  // so far.
  void body() {
    std::vector<Stmt> open;
    for (;;) {
      Body& here = open.empty() ? kernel.body : *inner_body(open.back());
      const Token t = peek();
      if (accept("}")) {
        line_end();
        if (open.empty()) return;
        Stmt done = std::move(open.back());
        open.pop_back();
        (open.empty() ? kernel.body : *inner_body(open.back())).push_back(std::move(done));
        continue;
      }
      // An array may be called like a keyword.
      std::optional<Stmt> opened;
      if (peek(1).text != "[") opened = opening();
      if (opened) {
        if (open.size() >= kMaxNesting) fail(t, text("at most ", kMaxNesting, " nested loops"));
        open.push_back(std::move(*opened));
      } else {
        here.push_back(simple_statement());
        line_end();
      }
    }
  }

  KernelIR parse() {
    skip_lines();
    expect("kernel");
    kernel.name = name("the kernel's name");
    expect("threads");
    kernel.threads = integer("the number of threads of a block");
    expect("min_blocks");
    kernel.min_blocks = integer("the number of blocks, 0 for any");
    expect("index");
    if (!at("32") && !at("64")) fail(peek(), "32 or 64");
    kernel.index64 = at("64");
    ++position;
    if (accept("cluster")) kernel.cluster = integer("the number of blocks of a cluster");
    kernel.cooperative = accept("cooperative");
    const int counted = accept("vars") ? integer("the number of variables") : -1;
    expect("{");
    line_end();
    while (declaration()) {
    }
    body();
    if (peek().kind != Token::Kind::End) fail(peek(), "the end of the text");
    kernel.vars = counted >= 0 ? counted : named_vars(kernel);
    return std::move(kernel);
  }
};

}  // namespace

KernelIR parse_kernel(std::string_view source) { return Parser(source).parse(); }

}  // namespace fuser
