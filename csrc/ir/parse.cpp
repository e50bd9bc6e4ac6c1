// Parser of Kernel IR text. One declaration or statement per line; '#' starts a comment. In the
// rules below, words in '' are literal, [x] is optional, {x} repeats any number of times.
//
//   kernel      'kernel' NAME 'threads' INT 'min_blocks_per_sm' INT 'index' 32 or 64
//                   ['cluster' INT] ['cooperative'] ['vars' INT] '{'
//                   {declaration} {statement}
//               '}'
//       vars: number of variables so far, if it exceeds the highest number in the text
//   declaration
//       'buffer' NAME DTYPE [state] [memory expr] ['read'] ['written'] ['restrict']
//           memory: 'workspace', 'counters' or 'shared', and its elements; absent for a tensor
//       'param' p<i> ':' DTYPE 'int' expr            i counts from 0
//       'param' p<i> ':' DTYPE 'divisor' expr
//       'param' p<i> ':' DTYPE 'real' expr
//       'param' p<i> ':' DTYPE 'inverse' expr        1 / it
//       'param' p<i> ':' DTYPE 'scalar' INT          the number of a scalar input
//       'param' p<i> ':' DTYPE 'rng_offset' INT           the number of a scalar input
//       (Param::Drawn) 'param' p<i> ':' DTYPE 'value' INT           the number of a tensor input
//       'array' NAME DTYPE INT [state] ['chunk' INT] extent; elements of a raw chunk
//       'axes' '[' {a<i>} ']' 'extents' '[' expr ',' ... ']' ['index' expr] ['vector'] ['whole']
//       'blocks' expr                                blocks of the grid
//       'shared_rows' expr                           bytes of shared memory known at launch
//   state       'state' REDUCTION                    elements are partial results
//   statement
//       v<i> '=' expr                                Let of an index: int64, or bool
//       v<i> ':' DTYPE '=' expr                      any other Let; DTYPE is the dtype of expr
//       ARRAY '[' expr ']' '=' expr
//       'load' ARRAY '[' expr ']' 'width' INT BUFFER '[' expr ']' exists [row]
//           [policy] ['unaligned' ['by' INT]]
//       'write' BUFFER '[' expr ']' 'width' INT ARRAY '[' expr ']' exists [row] [policy]
//       'for' v<i> '<' INT '{' {statement} '}'       '}' on a line of its own
//       'serial' v<i> '<' expr ['unroll' INT] '{' {statement} '}'
//       'if' ['uniform'] expr '{' {statement} '}'
//       'barrier'
//       'init_state' ARRAY
//       'accumulate' ARRAY '[' expr ']' '(' expr ',' ... ')' ['in' expr]
//       'accumulate_all' ARRAY ARRAY ['at' ARRAY]    the elements of the second, in order
//       'merge' ARRAY '[' expr ']' ARRAY '[' expr ']'          takes in the second
//       'thread_reduce' ARRAY
//       'lane_reduce' ARRAY ARRAY                    the second merged over all lanes
//       'block_reduce' '(' ARRAY ',' ... ')' 'group' INT ['slots' '(' BUFFER ',' ... ')']
//           ['cluster' '(' BUFFER ',' ... ')'] ['parity' expr]
//           ['arrival' BUFFER '[' expr ']' 'turn' expr]
//       'block_reduce_columns' '(' ARRAY ',' ... ')' 'threads_y' INT 'threads_x' INT ['slots' '('
//       BUFFER ... ')'] v<i> '=' 'is_last_block' BUFFER '[' expr ']' 'of' expr 'slot' BUFFER
//       'async_copy' BUFFER '[' expr ']' 'width' INT BUFFER '[' expr ']' ['in' expr]
//       'unpack' ARRAY ARRAY '[' expr ']'
//       'assert_index' INT expr 'of' expr ['in' expr]       an index and its extent
//       'async_commit'
//       'async_wait' INT
//       'arrive_cluster' BUFFER
//       'wait_cluster'
//       'sync_grid' BUFFER
//   exists      ['in' expr] ['count' expr]
//   row         'column' expr 'of' expr 'jump' expr
//   policy      a word of cache_policies.def
//   expr        parse_expr.h
//
// Dtypes have their names in kernel text (bf16). Expressions are built through Exprs, which brings
// them into normal form. The parser checks only the syntax that it needs; verify() checks the rest.
#include <optional>

#include "base/error.h"
#include "ir/parse_expr.h"

namespace fuser::ir {
namespace {

constexpr int kMaxNesting = 100;  // nesting of loops and conditions: bodies are traversed by
                                  // recursion

struct Parser : ExprParser {
  using ExprParser::ExprParser;

  // ---- Declarations

  void declare(Names& table, size_t index, const char* what) {
    const Token t = peek();
    if (!table.emplace(name(what), static_cast<int>(index)).second)
      fail(t, text(what, " that is not defined yet"));
  }

  std::optional<State> state() {
    if (!accept("state")) return std::nullopt;
    State s;
    if (!find_reduction(peek().text, s.op)) fail(peek(), "the name of a reduction, e.g. sum");
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
    if (numbered_name('p', "the name of a parameter, e.g. p0") != next) fail(t, text("p", next));
    expect(":");
    Param p{.dtype = dtype()};
    if (accept("int") || accept("divisor")) {
      p.kind = tokens[position - 1].text == "int" ? Param::Kind::Int : Param::Kind::Divisor;
      p.value = expression();
    } else if (accept("real") || accept("inverse")) {
      p.kind = Param::Kind::Real;
      p.inverse = tokens[position - 1].text == "inverse";
      p.value = expression();
    } else if (accept("scalar") || accept("rng_offset") || accept("value")) {
      const std::string_view kind = tokens[position - 1].text;
      p.kind = kind == "scalar"       ? Param::Kind::Scalar
               : kind == "rng_offset" ? Param::Kind::RngOffset
                                      : Param::Kind::Value;
      p.index = integer("the number of an input");
    } else {
      fail(peek(), "int, divisor, real, inverse, scalar, rng_offset or value");
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
    while (!accept("]")) w.axes.push_back(numbered_name('a', "an axis, e.g. a0, or ']'"));
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
    // An array may have the name of a keyword: r[i] = ... starts with a name and a bracket.
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
    if (s.index && at("is_last_block") && peek(1).kind == Token::Kind::Name) return last(s.var);
    s.value = expression();
    if (!s.index && s.value->dtype != stated)
      fail(t, text("a value of dtype ", row(stated).device, ", as v", s.var, " states (it is ",
                   row(s.value->dtype).device, ")"));
    var_types[s.var] = s.value->dtype;
    return {s};
  }

  Stmt last(int var) {
    expect("is_last_block");
    IsLastBlock s{.var = var, .counters = declared(buffers, "a declared buffer")};
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
    if constexpr (requires { s.cache; })
      s.cache = parse_cache_policy([&](const char* word) { return accept(word); });
  }

  Stmt shiftable(Load s) {
    guards(s);
    s.unaligned = accept("unaligned");
    if (s.unaligned && accept("by")) s.words = integer("the words of the shift");
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
    if (accept("async_commit")) return {AsyncCommit{}};
    if (accept("async_wait")) return {AsyncWait{integer("the number of pending groups")}};
    if (accept("arrive_cluster"))
      return {SyncCluster{SyncCluster::Part::Arrive, declared(buffers, "a declared buffer")}};
    if (accept("wait_cluster")) return {SyncCluster{SyncCluster::Part::Wait}};
    if (accept("sync_grid")) return {SyncGrid{declared(buffers, "a declared buffer")}};
    if (accept("async_copy")) {
      AsyncCopy s{.shared = declared(buffers, "a declared buffer")};
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
    if (accept("assert_index")) {
      AssertIndex s{.number = integer("the number of the check")};
      s.index = expression();
      expect("of");
      s.extent = expression();
      if (accept("in")) s.in = expression();
      return {s};
    }
    if (auto s = reduction()) return std::move(*s);
    return let();
  }

  // Statements on partial results.
  std::optional<Stmt> reduction() {
    const char* const array = "a declared array";
    if (accept("init_state")) return Stmt{InitState{declared(arrays, array)}};
    if (accept("accumulate_all")) {
      AccumulateAll s{.array = declared(arrays, array)};
      s.values = declared(arrays, array);
      if (accept("at")) s.positions = declared(arrays, array);
      return Stmt{s};
    }
    if (accept("thread_reduce")) return Stmt{ThreadReduce{declared(arrays, array)}};
    if (accept("lane_transpose")) return Stmt{LaneTranspose{declared(arrays, array)}};
    if (accept("lane_reduce")) {
      const int to = declared(arrays, array);
      return Stmt{LaneReduce{.array = to, .other = declared(arrays, array)}};
    }
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
    if (accept("block_reduce")) {
      BlockReduce s{.arrays = list(arrays, array)};
      expect("group");
      s.group = integer("the number of threads");
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
    if (accept("block_reduce_columns")) {
      BlockReduceColumns s{.arrays = list(arrays, array)};
      expect("threads_y");
      s.threads_y = integer("the number of threads along y");
      expect("threads_x");
      s.threads_x = integer("the number of columns of threads");
      if (accept("slots")) s.slots = slots();
      return Stmt{std::move(s)};
    }
    return std::nullopt;
  }

  // Reads the head of a statement with a body, up to its "{". Returns nullopt for any other
  // statement.
  std::optional<Stmt> opening() {
    Stmt out;
    if (accept("for")) {
      For s{.var = numbered_name('v', "a variable, e.g. v0"), .body = {}};
      expect("<");
      s.extent = integer("the number of iterations");
      out.node = std::move(s);
    } else if (accept("serial")) {
      Serial s{.var = numbered_name('v', "a variable, e.g. v0"), .body = {}};
      expect("<");
      s.extent = expression();
      if (accept("unroll")) s.unroll = integer("the number of unrolled iterations");
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

  // Reads statements up to the "}" of the kernel. Unfinished statements are on a stack, each with
  // its body so far.
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
      // An array may have the name of a keyword.
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
    kernel.threads = integer("the number of threads per block");
    expect("min_blocks");
    kernel.min_blocks = integer("the number of blocks, 0 for any");
    expect("index");
    if (!at("32") && !at("64")) fail(peek(), "32 or 64");
    kernel.index64 = at("64");
    ++position;
    if (accept("cluster")) kernel.cluster = integer("the number of blocks per cluster");
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

}  // namespace fuser::ir
