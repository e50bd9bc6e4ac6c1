#include "codegen/cpp.h"

#include <algorithm>

#include "base/error.h"
#include "base/sha256.h"
#include "codegen/cpp_expr.h"
#include "codegen/device_text.h"
#include "ir/fast_div.h"

namespace fuser::codegen {

using namespace ir;

namespace {

struct CppPrinter : LanePrinter {
  const Constants& constants;
  std::string out = {};
  int depth = 2;

  CppPrinter(const KernelIR& of, const Constants& with) : LanePrinter(of), constants(with) {}

  void line(const std::string& s) { out += std::string(2 * depth, ' ') + s + "\n"; }

  int lanes() const { return kernel.threads; }
  const std::string& name_of(int array) const { return kernel.arrays[array].name; }
  const char* combine_of(int array) const { return row(kernel.arrays[array].state->op).combine; }
  std::string element(int array, Expr at) { return text(name_of(array), "[", first(at), "]"); }

  // ---- Types

  static std::string state_type(const std::optional<State>& state, const std::string& value) {
    return fields_of(state) > 1 ? text(row(state->op).state, "<", value, ">") : value;
  }
  static std::string buffer_type(const Buffer& b) {
    return b.kind == Buffer::Kind::Counters ? "u32" : state_type(b.state, row(b.dtype).device);
  }
  std::string array_type(const Array& a, bool vector) const {
    const std::string value = row(a.dtype).device;
    return state_type(a.state, vector ? vector_type(value) : value);
  }

  // ---- Accesses

  std::string address(int buffer, Expr offset) {
    const std::string o = first(offset);
    return o == "0" ? kernel.buffers[buffer].name
                    : kernel.buffers[buffer].name + " + " + wrapped(o);
  }

  // Lanes of an access that exist: their number from lane 0 on, a range, or a mask; "" if all
  // exist.
  enum class Lanes { Count, Range, Mask };
  template <class Access>
  std::string existing(const Access& s, Lanes as) {
    const std::string size = std::to_string(lanes());
    std::string count = s.count ? text("(i64)", wrapped(first(s.count))) : "", in;
    if (s.in && is_uniform(s.in, true))
      count = text("(", wrapped(lane_index(s.in)), " ? ", count.empty() ? size : count, " : 0)");
    else if (s.in)
      in = as == Lanes::Range ? range_text(s.in) : lane_index(s.in);
    if (as == Lanes::Count || (in.empty() && count.empty())) return count;
    std::string below = count.empty() ? "" : text("lanes_below<", size, ">(", count, ")");
    if (as == Lanes::Range) return below.empty() ? in : text(wrapped(in), " && ", below);
    if (!below.empty()) below += ".mask()";
    if (in.empty() || below.empty()) return in + below;
    return text(wrapped(in), " & ", below);
  }

  template <class Access>
  bool moves_states(const Access& s) const {
    return kernel.arrays[s.array].state && kernel.buffers[s.buffer].state;
  }

  // How an access moves its lanes.
  enum class Form { Scalar, Neighbours, Range, Masked, Strided, Pattern, Scattered };
  template <class Access>
  Form form(const Access& s) {
    FUSER_ASSERT(s.width == 1 && !s.column, "an access of several elements in a CPU kernel");
    constexpr bool is_load = std::is_same_v<Access, Load>;
    const LaneShape at = shape(s.offset, true), in = shape(s.in, true);
    const bool lane_mask = in.kind != LaneShape::Uniform;
    // Lanes that read one element all have it if lane 0 exists.
    const bool lane_count = s.count && !is_uniform(s.count, true) && !is_load;
    if (at.kind == LaneShape::Uniform && !lane_mask && !lane_count) return Form::Scalar;
    const bool neighbours = at.kind == LaneShape::Linear && at.step->is_constant(1);
    if (lane_mask) {
      if (!is_load || !neighbours) return Form::Scattered;
      return in.kind == LaneShape::Range ? Form::Range : Form::Masked;
    }
    if (neighbours) return Form::Neighbours;
    if (is_load && is_near(at, s.count != nullptr)) return Form::Pattern;
    return at.kind == LaneShape::Linear ? Form::Strided : Form::Scattered;
  }

  // Returns whether the lanes of a load are near in memory, at constant offsets, so that a few
  // vectors and a shuffle move them. If lanes may not exist, then the last one is the farthest.
  bool is_near(const LaneShape& at, bool counted) const {
    const std::vector<int64_t> offsets = offsets_of(at);
    if (offsets.empty()) return false;
    const auto [least, most] = std::minmax_element(offsets.begin(), offsets.end());
    if (counted && !std::is_sorted(offsets.begin(), offsets.end())) return false;
    return *most - *least < most_vectors * lanes();
  }
  static constexpr int most_vectors = 4;  // read for one vector of near lanes

  static std::string then(const std::string& argument) {
    return argument.empty() ? "" : ", " + argument;
  }

  std::string loaded(const Load& s) {
    const Buffer& b = kernel.buffers[s.buffer];
    const std::string type = row(b.dtype).device, of = text("<", type, ", ", lanes(), ">(");
    const Form how = form(s);
    const bool masked = how == Form::Scattered || how == Form::Masked;
    const std::string e = existing(s, masked               ? Lanes::Mask
                                      : how == Form::Range ? Lanes::Range
                                                           : Lanes::Count);
    switch (how) {
      case Form::Scalar: {
        std::string at = text(b.name, "[", first(s.offset), "]");
        // Every byte but 0 is true.
        if (b.dtype == DType::Bool)
          at = text("(((const u8*)", b.name, ")[", first(s.offset), "] != 0)");
        return e.empty() ? at : text(wrapped(e), " > 0 ? ", at, " : ", type, "{}");
      }
      case Form::Neighbours:
        return text("load", of, address(s.buffer, s.offset), then(e), ")");
      case Form::Range:
        return text("load_range", of, address(s.buffer, s.offset), ", ", e, ")");
      case Form::Masked:
        return text("load_where", of, address(s.buffer, s.offset), ", ", e, ")");
      case Form::Pattern:
        return text("load_pattern(", address(s.buffer, s.offset), ", ",
                    order_of(offsets_of(shape(s.offset, true))), "()", then(e), ")");
      case Form::Strided:
        return text("gather_strided", of, address(s.buffer, s.offset), ", ",
                    first(shape(s.offset, true).step), then(e), ")");
      case Form::Scattered:
        return text("gather", of, b.name, ", ", vector_index(s.offset), then(e), ")");
    }
    return {};
  }

  void statement(const Load& s) {
    if (moves_states(s) && varying[s.array]) {
      line(text("load_states(&", element(s.array, s.element), ", ", address(s.buffer, s.offset),
                ");"));
      return;
    }
    line(text(element(s.array, s.element), " = ", loaded(s), ";"));
  }

  void statement(const Write& s) {
    const Buffer& b = kernel.buffers[s.buffer];
    const std::string value = element(s.array, s.element);
    if (moves_states(s) && varying[s.array]) {
      line(text("store_states(", address(s.buffer, s.offset), ", &", value, ");"));
      return;
    }
    const Form how = form(s);
    const std::string e = existing(s, how == Form::Scattered ? Lanes::Mask : Lanes::Count);
    const std::string vector =
        varying[s.array] ? value : text(vector_type(row(b.dtype).device), "(", value, ")");
    switch (how) {
      case Form::Scalar:
        line(text(e.empty() ? "" : text("if (", e, " > 0) "), b.name, "[", first(s.offset),
                  "] = ", value, ";"));
        break;
      case Form::Neighbours:
        line(text(s.cache == CachePolicy::Streaming ? "stream(" : "store(",
                  address(s.buffer, s.offset), ", ", vector, then(e), ");"));
        break;
      case Form::Strided:
        line(text("scatter_strided(", address(s.buffer, s.offset), ", ",
                  first(shape(s.offset, true).step), ", ", vector, then(e), ");"));
        break;
      case Form::Range:  // loads alone
      case Form::Masked:
      case Form::Pattern:
      case Form::Scattered:
        line(text("scatter(", b.name, ", ", vector_index(s.offset), ", ", vector, then(e), ");"));
        break;
    }
  }

  // ---- Values and the order of statements

  void statement(const Let& s) {
    const LaneShape& shape = vars[s.var];
    std::string type = !s.index                        ? row(s.value->dtype).device
                       : s.value->dtype == DType::Bool ? "bool"
                                                       : index_type();
    const bool vector = shape.kind == LaneShape::Varying, range = shape.kind == LaneShape::Range;
    if (vector) type = vector_type(type);
    if (range) type = text("LaneRange<", lanes(), ">");
    const std::string value = !s.index ? lane_value(s.value)
                              : vector ? lane_index(s.value)
                              : range  ? range_text(s.value)
                                       : first(s.value);
    line(text("const ", type, " v", s.var, " = ", value, ";"));
  }

  void statement(const Assign& s) {
    line(text(element(s.array, s.element), " = ", lane_value(s.value), ";"));
  }

  void statement(const For& s) {
    block(text("UNROLL for (i32 v", s.var, " = 0; v", s.var, " < ", s.extent, "; ++v", s.var, ")"),
          s.body);
  }

  void statement(const Serial& s) {
    FUSER_ASSERT(is_uniform(s.extent, true), "a trip count differs between lanes");
    block(text("for (", index_type(), " v", s.var, " = 0; v", s.var, " < ", first(s.extent),
               "; ++v", s.var, ")"),
          s.body);
  }

  void statement(const If& s) {
    FUSER_ASSERT(is_uniform(s.condition, true), "a branch differs between lanes");
    block(text("if (", first(s.condition), ")"), s.body);
  }

  void statement(const AssertIndex& s) {
    const bool whole = !s.in || is_uniform(s.in, true);
    const std::string index = whole ? lane_value(s.index) : vector_value(s.index);
    line(text(s.in && whole ? text("if (", first(s.in), ") ") : "", "assert_index(status, ", index,
              ", ", first(s.extent), ", ", s.number, whole ? "" : then(lane_index(s.in)), ");"));
  }

  // ---- Partial results

  void statement(const InitState& s) {
    line(text("reset<", combine_of(s.array), ">(", name_of(s.array), ");"));
  }

  void statement(const Accumulate& s) {
    const bool vector = varying[s.array];
    const std::string to = element(s.array, s.element);
    std::string values;
    for (Expr e : s.values) values += text(", ", vector ? vector_value(e) : lane_value(e));
    const std::string combine = text(combine_of(s.array), "()");
    if (!s.in || is_uniform(s.in, true)) {
      line(text(s.in ? text("if (", first(s.in), ") ") : "", "accumulate_(", combine, ", ", to,
                values, ");"));
      return;
    }
    line(text("accumulate_some(", combine, ", ", lane_index(s.in), ", ", to, values, ");"));
  }

  void statement(const Merge& s) {
    const std::string to = element(s.array, s.element);
    line(text(to, " = merge_(", combine_of(s.array), "(), ", to, ", ",
              element(s.other, s.other_element), ");"));
  }

  void statement(const LaneReduce& s) {
    line(text(name_of(s.array), "[0] = merge_lanes<", combine_of(s.array), ">(", name_of(s.other),
              "[0]);"));
  }

  void statement(const LaneTranspose& s) {
    if (lanes() > 1) line(text("transpose_lanes(", name_of(s.array), ");"));
  }

  void statement(const IsLastBlock& s) {
    line(text("const bool v", s.var, " = last_task(", address(s.counters, s.index), ", ",
              first(s.count), ");"));
  }

  template <class S>
  void statement(const S&) {
    throw Fault(FaultKind::Internal, "internal", "a CPU kernel has a statement of GPU kernels");
  }

  // ---- Complete kernel

  void body(const Body& statements) {
    for (const Stmt& s : statements) std::visit([this](const auto& n) { statement(n); }, s.node);
  }

  void block(const std::string& head, const Body& inner) {
    line(head + " {");
    ++depth;
    body(inner);
    --depth;
    line("}");
  }

  bool is_constant(size_t param) const {
    return param < constants.size() && constants[param].has_value();
  }

  static std::string param_type(const Param& p) {
    if (p.kind == Param::Kind::RngOffset) return "Drawn";
    return is_fast_divisor(p) ? "FastDiv" : row(p.dtype).device;
  }

  template <class S>
  bool has() const {
    bool found = false;
    visit(kernel.body, [&](const Stmt& s) { found |= std::holds_alternative<S>(s.node); });
    return found;
  }

  std::vector<std::string> signature() const {
    std::vector<std::string> args;
    for (const Buffer& b : kernel.buffers)
      if (b.kind != Buffer::Kind::Shared)
        args.push_back(text(b.written ? "" : "const ", buffer_type(b), "* ",
                            b.restrict_ ? "__restrict__ " : "", b.name));
    for (size_t i = 0; i < kernel.params.size(); ++i)
      if (!is_constant(i))
        args.push_back(text(param_type(kernel.params[i]), " ",
                            kernel.params[i].kind == Param::Kind::RngOffset ? "d" : "p", i));
    if (has<AssertIndex>()) args.emplace_back("::fuser::IndexStatus* status");
    args.emplace_back("__INT64_TYPE__ begin");
    args.emplace_back("__INT64_TYPE__ end");
    return args;
  }

  void params() {
    for (size_t i = 0; i < kernel.params.size(); ++i) {
      const Param& p = kernel.params[i];
      if (p.kind == Param::Kind::RngOffset && !is_constant(i))
        line(text("const i64 p", i, " = drawn_(d", i, ");"));
      if (!is_constant(i)) continue;
      std::string value = literal(p.dtype, *constants[i]);
      if (is_fast_divisor(p)) {
        const FastDiv d = make_fast_div(static_cast<uint32_t>(constants[i]->integer));
        value = text("{", d.divisor, "u, ", d.magic, "u, ", d.shift, "u}");
      }
      line(text("const ", param_type(p), " p", i, " = ", value, ";"));
    }
  }

  void arrays() {
    for (size_t i = 0; i < kernel.arrays.size(); ++i) {
      const Array& a = kernel.arrays[i];
      FUSER_ASSERT(!a.chunk, a.name, " holds raw chunks in a CPU kernel");
      line(text(array_type(a, varying[i]), " ", a.name, "[", a.extent, "];"));
    }
  }

  bool streams() const {
    bool found = false;
    visit(kernel.body, [&](const Stmt& s) {
      const auto* write = std::get_if<Write>(&s.node);
      found |= write && write->cache == CachePolicy::Streaming;
    });
    return found;
  }

  std::string function() {
    analyse(kernel.body);
    depth = 1;
    params();
    line("for (__INT64_TYPE__ task = begin; task < end; ++task) {");
    depth = 2;
    line(text("const ", index_type(), " block_ = (", index_type(), ")task;"));
    arrays();
    body(kernel.body);
    depth = 1;
    line("}");
    if (streams()) line("stream_end();");
    return text("(", joined(signature()), ") {\n", out, "}\n");
  }
};

}  // namespace

KernelText print_cpp(const KernelIR& kernel, const Constants& constants) {
  CppPrinter printer(kernel, constants);
  const std::string rest = printer.function();
  const std::string head = "static void ";
  const std::string helpers = cpu_text(head + rest);
  const Digest digest = sha256(helpers + head + rest);
  const std::string name = text(kernel.name, "_", hex(digest).substr(0, 8));
  return {.name = name,
          .text = helpers + head + name + rest,
          .digest = digest,
          .threads = 1,
          .for_cpu = true};
}

}  // namespace fuser::codegen
