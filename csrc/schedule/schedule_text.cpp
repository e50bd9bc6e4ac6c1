#include "schedule/schedule_text.h"

#include <cctype>
#include <functional>
#include <limits>
#include <sstream>
#include <utility>

#include "base/error.h"

namespace fuser::schedule {

using namespace fusion;

namespace {

// Names of enumerators, in their order.
template <class E>
struct Names;
template <>
struct Names<Bind> {
  static constexpr const char* what = "a kind of loop";
  static constexpr const char* names[] = {"GridThread", "Grid",   "Cluster", "ThreadY",
                                          "ThreadX",    "Serial", "Unroll",  "Vector"};
  static constexpr int first = 0;
};
template <>
struct Names<VectorKind> {
  static constexpr const char* what = "a kind of access";
  static constexpr const char* names[] = {"Scalar", "Aligned", "Unaligned", "Strided"};
  static constexpr int first = 0;
};
template <>
struct Names<Place> {
  static constexpr const char* what = "a memory";
  static constexpr const char* names[] = {"Registers", "Shared", "Reload"};
  static constexpr int first = 1;
};
template <>
struct Names<StagingShape> {
  static constexpr const char* what = "a shape";
  static constexpr const char* names[] = {"Row", "PackedRows", "Tile"};
  static constexpr int first = 0;
};
template <>
struct Names<Finish> {
  static constexpr const char* what = "a scope";
  static constexpr const char* names[] = {"InTile", "LastBlock", "Cooperative"};
  static constexpr int first = 0;
};

// Prints the fields of one line in order. Parser has the same functions, and fields() names the
// fields of each struct once for both.
class Printer {
 public:
  explicit Printer(const std::string& start) : out_(start) {}

  void dim(DimId& d) { out_ += text(" d", d); }
  void index(int& n) { out_ += text(" ", n); }
  template <class E>
  void word(E& e) {
    out_ += text(" ", Names<E>::names[static_cast<int>(e) - Names<E>::first]);
  }
  // A number without a name, left out at its default.
  template <class T>
  void count(T& n, int default_value) {
    if (n != default_value) out_ += text(" ", n);
  }
  void flag(const char* name, bool& set) {
    if (set) out_ += text(" ", name);
  }
  void policy(ir::CachePolicy& cache) {
    if (cache != ir::CachePolicy{}) out_ += text(" ", row(cache).word);
  }
  template <class T>
  void number(const char* name, T& n, int default_value) {
    if (n != default_value) out_ += text(" ", name, "(", n, ")");
  }
  template <class... T>
  void numbers(const char* name, bool any, T&... n) {
    std::string all;
    ((all += text(all.empty() ? "" : ", ", n)), ...);
    if (any) out_ += text(" ", name, "(", all, ")");
  }
  void axes(std::vector<AxisId>& axes) {
    std::vector<std::string> names;
    for (AxisId a : axes) names.push_back(text("a", a));
    out_ += text(" [", joined(names, " "), "]");
  }
  // Numbers in any order; neighbours that ascend are printed as a range.
  void list(std::vector<int>& numbers) {
    for (size_t i = 0; i < numbers.size();) {
      size_t end = i + 1;
      while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
      out_ += text(" ", numbers[i]);
      if (end > i + 1) out_ += text("-", numbers[end - 1]);
      i = end;
    }
  }
  std::string take() { return out_ + "\n"; }

 private:
  std::string out_;
};

// Reads the tokens of one line: words, numbers, and the characters [ ] ( ) , and -.
class Parser {
 public:
  Parser(const std::string& line, int number) : line_(line), number_(number) {
    for (size_t i = 0; i < line.size();) {
      const auto is_word = [&](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
      };
      size_t end = i + 1;
      if (is_word(line[i]))
        while (end < line.size() && is_word(line[end])) ++end;
      if (!std::isspace(static_cast<unsigned char>(line[i])))
        tokens_.push_back(line.substr(i, end - i));
      i = end;
    }
  }
  bool empty() const { return tokens_.empty(); }

  bool next_is(const std::string& token) const {
    return at_ < tokens_.size() && tokens_[at_] == token;
  }
  bool take(const std::string& token) {
    if (!next_is(token)) return false;
    ++at_;
    return true;
  }
  void expect(const std::string& token) {
    if (!take(token)) refuse(text("\"", token, "\""));
  }
  [[noreturn]] void refuse(const std::string& expected) const {
    throw Fault(FaultKind::User, "schedule-1",
                text("schedule: line ", number_, ": expected ", expected, ", got ",
                     at_ < tokens_.size() ? text("\"", tokens_[at_], "\"") : "the end of the line",
                     "\n  line: ", line_, "\n  hint: start from a text of fd.schedules(inputs)"));
  }

  void dim(DimId& d) { d = prefixed('d', "a dim like d0"); }
  template <class T>
  void index(T& n) {
    n = integer<T>(at_ < tokens_.size() ? tokens_[at_] : "", "a number");
    ++at_;
  }
  template <class E>
  void word(E& e) {
    int i = Names<E>::first;
    for (const char* name : Names<E>::names) {
      if (take(name)) {
        e = static_cast<E>(i);
        return;
      }
      ++i;
    }
    std::string all;
    for (const char* name : Names<E>::names) all += text(all.empty() ? "" : ", ", name);
    refuse(text(Names<E>::what, " (", all, ")"));
  }
  template <class T>
  void count(T& n, int) {
    if (at_ < tokens_.size() && std::isdigit(static_cast<unsigned char>(tokens_[at_][0]))) index(n);
  }
  // Attributes follow in any order: each function looks for its name among them.
  void flag(const char* name, bool& set) {
    if (find(name)) tokens_.erase(tokens_.begin() + found_), set = true;
  }
  void policy(ir::CachePolicy& cache) {
    cache = ir::parse_cache_policy([&](const char* word) {
      bool found = false;
      flag(word, found);
      return found;
    });
  }
  template <class T>
  void number(const char* name, T& n, int) {
    numbers(name, true, n);
  }
  template <class... T>
  void numbers(const char* name, bool, T&... n) {
    if (!find(name)) return;
    const size_t back = std::exchange(at_, found_ + 1);
    bool first = true;
    expect("(");
    (((first ? void() : expect(",")), first = false, index(n)), ...);
    expect(")");
    tokens_.erase(tokens_.begin() + found_, tokens_.begin() + static_cast<std::ptrdiff_t>(at_));
    at_ = back;
  }
  void axes(std::vector<AxisId>& axes) {
    expect("[");
    while (!take("]")) axes.push_back(prefixed('a', "an axis like a0, or \"]\""));
  }
  void list(std::vector<int>& numbers) {
    while (at_ < tokens_.size()) {
      int first = 0;
      index(first);
      int last = first;
      if (take("-")) index(last);
      if (last - first >= most_of_list) refuse("fewer numbers");
      for (int i = first; i <= last; ++i) numbers.push_back(i);
    }
  }
  void end() const {
    if (at_ < tokens_.size()) refuse("the end of the line");
  }

 private:
  static constexpr int most_of_list = 1 << 16;

  bool find(const char* name) {
    for (found_ = at_; found_ < tokens_.size(); ++found_)
      if (tokens_[found_] == name) return true;
    return false;
  }
  template <class T>
  T integer(const std::string& digits, const char* expected) const {
    constexpr size_t most_digits = 9;  // every number of a schedule is below 10^9
    if (digits.empty() || digits.size() > most_digits) refuse(expected);
    T n = 0;
    for (char c : digits) {
      if (!std::isdigit(static_cast<unsigned char>(c))) refuse(expected);
      n = static_cast<T>(10 * n + (c - '0'));
    }
    return n;
  }
  int prefixed(char prefix, const char* expected) {
    if (at_ == tokens_.size() || tokens_[at_][0] != prefix) refuse(expected);
    const int n = integer<int>(tokens_[at_].substr(1), expected);
    ++at_;
    return n;
  }

  const std::string line_;
  const int number_;
  std::vector<std::string> tokens_;
  size_t at_ = 0, found_ = 0;
};

// ---- The fields of each struct, in the order of their text

template <class V>
void fields(V& v, Dim& d) {
  v.axes(d.axes);
  v.flag("divides", d.divides);
  v.numbers("lines", d.line != LineAlignment(), d.line.access, d.line.elements);
}

template <class V>
void fields(V& v, Loop& l) {
  v.dim(l.dim);
  v.word(l.bind);
  v.count(l.extent, 0);
  v.number("unroll", l.unroll, 0);
  v.number("elements", l.elements, 0);
}

template <class V>
void fields(V& v, Lanes& l) {
#define FUSER_LANES_FLAG(name, meaning) v.flag(#name, l.name);
#define FUSER_LANES_NUMBER(name, default_value, least, most, meaning) \
  v.number(#name, l.name, default_value);
#include "schedule/attributes.def"
}

template <class V>
void fields(V& v, Vectorization& a) {
  v.word(a.kind);
  v.count(a.width, 1);
  LaneWindow& w = a.window;
  v.numbers("window", w != LaneWindow(), w.width, w.repeat, w.step, w.start);
  v.policy(a.cache);
}

template <class V>
void fields(V& v, Staging& s) {
  v.index(s.access >= 0 ? s.access : s.value);
  v.word(s.place);
  v.word(s.shape);
#define FUSER_STAGING_FLAG(name, meaning) v.flag(#name, s.name);
#define FUSER_STAGING_NUMBER(name, default_value, least, most, meaning) \
  v.number(#name, s.name, default_value);
#include "schedule/attributes.def"
}

template <class V>
void fields(V& v, Combination& c) {
  v.dim(c.dim);
  v.word(c.finish);
  v.number("columns", c.columns, 0);
}

template <class V>
void fields(V& v, Launch& l) {
  v.number("threads", l.threads, -1);  // always printed
#define FUSER_LAUNCH_FLAG(name, meaning) v.flag(#name, l.name);
#define FUSER_LAUNCH_NUMBER(name, default_value, least, most, meaning) \
  v.number(#name, l.name, default_value);
#include "schedule/attributes.def"
}

template <class T>
std::string line(const std::string& start, T value) {
  Printer printer(start);
  fields(printer, value);
  return printer.take();
}

std::string line(const std::string& start, std::vector<int> numbers) {
  Printer printer(start);
  printer.list(numbers);
  return printer.take();
}

// Reads the lines that belong to a nest.
bool read_into(LoopNest& nest, Parser& p) {
  if (p.take("lanes"))
    fields(p, nest.lanes);
  else if (p.take("computed"))
    p.list(nest.computed);
  else if (p.take("stores"))
    p.list(nest.stores);
  else
    return false;
  return true;
}

void read_line(Schedule& s, Parser& p) {
  const auto in_order = [&](int n, size_t size, const char* what) {
    if (n != static_cast<int>(size)) p.refuse(text(what, " ", size, " before ", what, " ", n));
  };
  if (p.take("form")) {
    p.expect("single_pass");
    s.single_pass = true;
  } else if (p.take("dim")) {
    DimId d = 0;
    p.dim(d);
    in_order(d, s.dims.size(), "dim");
    fields(p, s.dims.emplace_back());
  } else if (p.take("nest")) {
    p.flag("ends", s.nests.emplace_back().ends);
  } else if (p.take("access")) {
    int n = 0;
    p.index(n);
    in_order(n, s.accesses.size(), "access");
    fields(p, s.accesses.emplace_back());
  } else if (p.take("staging")) {
    Staging& staging = s.stagings.emplace_back();
    if (p.take("access"))
      staging.access = 0;
    else
      p.expect("value");
    fields(p, staging);
  } else if (p.take("reduction")) {
    fields(p, s.reductions.emplace_back());
  } else if (p.take("launch")) {
    fields(p, s.launch);
  } else if (s.nests.empty()) {
    p.refuse("form, dim, nest, access, staging, reduction or launch");
  } else if (!read_into(s.nests.back(), p)) {
    fields(p, s.nests.back().loops.emplace_back());
  }
  p.end();
}

}  // namespace

std::string to_string(const Schedule& s) {
  std::string out;
  if (s.single_pass) out += "form single_pass\n";
  for (size_t d = 0; d < s.dims.size(); ++d) out += line(text("dim d", d), s.dims[d]);
  for (const LoopNest& nest : s.nests) {
    out += nest.ends ? "nest ends\n" : "nest\n";
    for (const Loop& l : nest.loops) out += line(" ", l);
    if (nest.lanes != Lanes()) out += line("  lanes", nest.lanes);
    if (!nest.computed.empty()) out += line("  computed", nest.computed);
    if (!nest.stores.empty()) out += line("  stores", nest.stores);
  }
  for (size_t i = 0; i < s.accesses.size(); ++i) out += line(text("access ", i), s.accesses[i]);
  for (const Staging& staging : s.stagings)
    out += line(staging.access >= 0 ? "staging access" : "staging value", staging);
  for (const Combination& c : s.reductions) out += line("reduction", c);
  return out + line("launch", s.launch);
}

Schedule parse_schedule(const std::string& text) {
  Schedule out;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    Parser parser(line, number);
    if (!parser.empty()) read_line(out, parser);
  }
  return out;
}

size_t hash(const Schedule& schedule) { return std::hash<std::string>()(to_string(schedule)); }

}  // namespace fuser::schedule
