#include "codegen/cuda.h"

#include <algorithm>

#include "base/error.h"
#include "base/sha256.h"
#include "codegen/cuda_expr.h"
#include "codegen/device_text.h"
#include "ir/fast_div.h"
#include "schedule/device.h"

namespace fuser::codegen {

using namespace ir;
using namespace schedule;

namespace {

// Returns the C++ type of an element.
std::string type_of(DType dtype, const std::optional<State>& state) {
  const std::string name = row(dtype).device;
  return fields_of(state) > 1 ? text(row(state->op).state, "<", name, ">") : name;
}

struct Printer : ExprPrinter {
  const Constants& constants;
  std::string out = {};
  int depth = 1;

  void line(const std::string& s) { out += std::string(2 * depth, ' ') + s + "\n"; }

  // Prints a line under mask `in`, if there is one.
  void line_if(Expr in, const std::string& s) { line(in ? text("if (", index(in), ") ", s) : s); }

  std::string address(int buffer, Expr offset) const {
    const std::string o = index(offset);
    return o == "0" ? kernel.buffers[buffer].name
                    : kernel.buffers[buffer].name + " + " + wrapped(o);
  }

  // ---- Loads and writes

  template <class Access>
  static constexpr bool stores = std::is_same_v<Access, Write>;

  // Returns the number of existing elements of an access.
  template <class Access>
  std::string existing(const Access& s, const std::string& count) const {
    return s.in ? text(wrapped(index(s.in)), " ? ", wrapped(count), " : 0") : count;
  }

  // Mask of an access: the suffix of the function, and its last arguments.
  struct Guard {
    const char* form = "";
    std::string arguments;
  };
  template <class Access>
  Guard guard(const Access& s) const {
    if (s.count) return {.form = "_some", .arguments = text(", ", existing(s, index(s.count)))};
    return s.in ? Guard{.form = "_if", .arguments = text(", ", index(s.in))} : Guard{};
  }

  // Returns the condition that the element of a one-element access exists.
  template <class Access>
  std::string one_exists(const Access& s) const {
    if (!s.count) return s.in ? index(s.in) : "";
    const std::string counted = text(wrapped(index(s.count)), " > 0");
    return s.in ? text(wrapped(index(s.in)), " && ", counted) : counted;
  }

  template <class Access>
  bool moves_partials(const Access& s) const {
    return kernel.arrays[s.array].state && kernel.buffers[s.buffer].state;
  }

  // Source and destination are in the order of an assignment.
  template <class Access>
  void access_row(const Access& s) {
    const std::string &name = kernel.arrays[s.array].name, at = address(s.buffer, s.offset);
    const std::string count = s.count ? index(s.count) : text(index_type(), "(", s.width, ")");
    line(text(stores<Access> ? "store_row(" : "load_row(", stores<Access> ? at : name, ", ",
              stores<Access> ? name : at, ", ", index(s.column), ", ", index(s.columns), ", ",
              index(s.jump), ", ", existing(s, count), ");"));
  }

  template <class Access>
  void access_partials(const Access& s) {
    FUSER_ASSERT(!s.count, "partial results are accessed as a whole");
    const std::string e = element(s.array, s.element), at = address(s.buffer, s.offset);
    const std::string some = text("partials<", s.width, ">(");
    if (s.width > 1)
      line_if(s.in, stores<Access> ? text("store_", some, at, ", &", e, ");")
                                   : text("load_", some, "&", e, ", ", at, ");"));
    else
      line_if(s.in, stores<Access> ? text("store_partial(", at, ", ", e, ");")
                                   : text(e, " = load_partial(", at, ");"));
  }

  // Returns the register operand: the array, or a slice of it.
  template <class Access>
  std::string part(const Access& s) const {
    const Array& a = kernel.arrays[s.array];
    return s.width == a.extent ? a.name
                               : text("part<", s.width, ">(", a.name, ", ", index(s.element), ")");
  }

  template <class Access>
  void access_vector(const Access& s) {
    const std::string at = address(s.buffer, s.offset);
    const Guard g = guard(s);
    if constexpr (stores<Access>)
      line(text("store", g.form, row(s.cache).argument, "(", at, ", ", part(s), g.arguments, ");"));
    else
      line(text("load", g.form, "(", part(s), ", ", at, g.arguments, ");"));
  }

  // Loads a raw chunk, which keeps its memory representation until it is unpacked.
  void load_raw(const Load& s) {
    const int chunk = kernel.arrays[s.array].chunk;
    FUSER_ASSERT(s.width == chunk, "an access of ", s.width, " elements to chunks of ", chunk);
    const Guard g = guard(s);
    line(text("load_raw", g.form, row(s.cache).argument, "(", element(s.array, s.element), ", ",
              address(s.buffer, s.offset), g.arguments, ");"));
  }

  void load_unaligned(const Load& s) {
    const bool some = s.in || s.count;
    FUSER_ASSERT(!some || s.words < 0, "a shift by constant words has no mask");
    const std::string by = some ? "_some" : s.words < 0 ? "" : text("_by<", s.words, ">");
    const std::string count = s.count ? index(s.count) : std::to_string(s.width);
    line(text("load_shifted", by, "(", part(s), ", ", kernel.buffers[s.buffer].name, ", ",
              index(s.offset), some ? ", " + existing(s, count) : "", ");"));
  }

  void load_one(const Load& s) {
    const std::string e = element(s.array, s.element), at = address(s.buffer, s.offset);
    const std::string exists = one_exists(s);
    line(exists.empty() ? text(e, " = load1(", at, ");")
                        : text(e, " = load1_if(", at, ", ", exists, ");"));
  }

  void store_one(const Write& s) {
    const std::string exists = one_exists(s);
    line(text(exists.empty() ? "" : text("if (", exists, ") "), "store1(",
              address(s.buffer, s.offset), ", ", element(s.array, s.element), ");"));
  }

  void statement(const Load& s) {
    const Array& a = kernel.arrays[s.array];
    if (s.column) return access_row(s);
    if (a.chunk) return load_raw(s);
    if (moves_partials(s)) return access_partials(s);
    if (s.unaligned) return load_unaligned(s);
    if (s.width > 1 || a.extent == 1) return access_vector(s);
    load_one(s);
  }

  void statement(const Write& s) {
    const Array& a = kernel.arrays[s.array];
    if (s.column) return access_row(s);
    FUSER_ASSERT(!a.chunk, "a store of packed chunks");
    if (moves_partials(s)) return access_partials(s);
    if (s.width > 1 || a.extent == 1) return access_vector(s);
    store_one(s);
  }

  void statement(const AsyncCopy& s) {
    line(text("copy_async<", s.width, ">(", kernel.buffers[s.shared].name, " + ",
              wrapped(index(s.element)), ", ", address(s.buffer, s.offset), ", ",
              s.in ? index(s.in) : "true", ");"));
  }

  void statement(const AsyncCommit&) { line("commit_copies();"); }

  void statement(const AsyncWait& s) { line(text("wait_copies<", s.pending, ">();")); }

  void statement(const Unpack& s) {
    line(text("unpack(", kernel.arrays[s.array].name, ", ", element(s.raw, s.chunk), ");"));
  }

  // ---- Values and the order of statements

  void statement(const Let& s) {
    const char* type = !s.index                        ? row(s.value->dtype).device
                       : s.value->dtype == DType::Bool ? "bool"
                                                       : index_type();
    line(text("const ", type, " v", s.var, " = ", s.index ? index(s.value) : value(s.value), ";"));
  }

  void statement(const Assign& s) {
    line(text(element(s.array, s.element), " = ", value(s.value), ";"));
  }

  void statement(const For& s) {
    block(text("UNROLL for (i32 v", s.var, " = 0; v", s.var, " < ", s.extent, "; ++v", s.var, ")"),
          s.body);
  }

  void statement(const Serial& s) {
    if (s.unroll) line(text("_Pragma(\"unroll ", s.unroll, "\")"));
    block(text("for (", index_type(), " v", s.var, " = 0; v", s.var, " < ", index(s.extent),
               "; ++v", s.var, ")"),
          s.body);
  }

  void statement(const If& s) { block(text("if (", index(s.condition), ")"), s.body); }

  void statement(const AssertIndex& s) {
    line_if(s.in,
            text("check_index(", value(s.index), ", ", index(s.extent), ", ", s.number, ");"));
  }

  // ---- Partial results

  const std::string& name_of(int array) const { return kernel.arrays[array].name; }
  const char* combine_of(int array) const { return row(kernel.arrays[array].state->op).combine; }

  void statement(const InitState& s) {
    line(text("reset<", combine_of(s.array), ">(", name_of(s.array), ");"));
  }

  void statement(const Accumulate& s) {
    std::string call =
        text("accumulate_(", combine_of(s.array), "(), ", element(s.array, s.element));
    for (Expr e : s.values) call += text(", ", value(e));
    line_if(s.in, call + ");");
  }

  void statement(const AccumulateAll& s) {
    const bool one = kernel.arrays[s.array].extent == 1;
    line(text(one ? "accumulate_(" : "accumulate_each(", combine_of(s.array), "(), ",
              name_of(s.array), one ? "[0], " : ", ", name_of(s.values),
              s.positions < 0 ? "" : ", " + name_of(s.positions), ");"));
  }

  void statement(const Merge& s) {
    const std::string to = element(s.array, s.element);
    line(text(to, " = merge_(", combine_of(s.array), "(), ", to, ", ",
              element(s.other, s.other_element), ");"));
  }

  void statement(const ThreadReduce& s) {
    line(text("fold<", combine_of(s.array), ">(", name_of(s.array), ");"));
  }

  void statement(const LaneReduce&) {
    throw Fault(FaultKind::Internal, "internal", "a kernel of a GPU reduces the lanes of a vector");
  }

  void statement(const LaneTranspose&) {
    throw Fault(FaultKind::Internal, "internal", "a kernel of a GPU has a transpose of lanes");
  }

  // Returns the slots of partial results of a Combine. With odd parity they are `size` entries
  // further on.
  std::string slot(const BlockReduce& s, int buffer, int size) const {
    const std::string& name = kernel.buffers[buffer].name;
    return s.parity ? text(name, " + ", size, " * ", wrapped(index(s.parity))) : name;
  }

  void statement(const BlockReduce& s) {
    for (int r : s.arrays)
      line(text(name_of(r), "[0] = reduce_lanes<", combine_of(r), ", ", std::min(s.group, warp),
                ">(", name_of(r), "[0]);"));
    if (kernel.cluster > 1)
      combine_cluster(s);
    else if (s.group > warp)
      combine_warps(s);
  }

  void combine_warps(const BlockReduce& s) {
    const int size = kernel.threads / warp;
    for (size_t i = 0; i < s.arrays.size(); ++i)
      line(text("publish_warp(", slot(s, s.slots[i], size), ", ", name_of(s.arrays[i]), "[0]);"));
    line("sync_block();");
    for (size_t i = 0; i < s.arrays.size(); ++i)
      line(text(name_of(s.arrays[i]), "[0] = collect_warps<", combine_of(s.arrays[i]), ", ",
                s.group / warp, ">(", slot(s, s.slots[i], size), ");"));
  }

  void combine_cluster(const BlockReduce& s) {
    const int block = kernel.threads / warp, size = kernel.cluster * block;
    const std::string arrival =
        text(kernel.buffers[s.arrivals].name, " + ", wrapped(index(s.arrival)));
    std::vector<std::string> places;
    int sent = 0;
    for (int buffer : s.cluster_slots) {
      const int bytes = element_bytes(kernel.buffers[buffer]);
      places.push_back(slot(s, buffer, size * std::max(1, least_sent_bytes / bytes)));
      sent += size * std::max(least_sent_bytes, bytes);
    }
    for (size_t i = 0; i < s.arrays.size(); ++i)
      line(text("publish_cluster<", kernel.cluster, ", ", block, ">(", places[i], ", ",
                name_of(s.arrays[i]), "[0], ", arrival, ");"));
    line(text("await_cluster(", arrival, ", ", sent, ", ", index(s.turn), ");"));
    for (size_t i = 0; i < s.arrays.size(); ++i)
      line(text(name_of(s.arrays[i]), "[0] = collect_cluster<", combine_of(s.arrays[i]), ", ", size,
                ">(", places[i], ");"));
  }

  void statement(const BlockReduceColumns& s) {
    for (size_t i = 0; i < s.arrays.size(); ++i)
      line(text("reduce_rows<", combine_of(s.arrays[i]), ", ", s.threads_y, ", ", s.threads_x, ">(",
                name_of(s.arrays[i]), ", ", kernel.buffers[s.slots[i]].name, ");"));
  }

  // ---- Synchronization of threads

  void statement(const Barrier&) { line("sync_block();"); }

  void statement(const IsLastBlock& s) {
    line(text("const bool v", s.var, " = last_block(", address(s.counters, s.index), ", ",
              index(s.count), ", (u32*)", kernel.buffers[s.slot].name, ");"));
  }

  void statement(const SyncCluster& s) {
    if (s.arrivals < 0) return line("wait_cluster();");
    const Buffer& places = kernel.buffers[s.arrivals];
    line(text("begin_cluster<", places.elements->value.integer, ">(", places.name, ");"));
  }

  void statement(const SyncGrid& s) {
    line(text("grid_barrier(", kernel.buffers[s.counters].name, ");"));
  }

  // ---- Complete kernel

  // Prints statements; a kind without a statement() overload does not compile.
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

  static std::string buffer_type(const Buffer& b) {
    return b.kind == Buffer::Kind::Counters ? "u32" : type_of(b.dtype, b.state);
  }

  void drawn() {
    for (size_t i = 0; i < kernel.params.size(); ++i)
      if (kernel.params[i].kind == Param::Kind::RngOffset)
        line(text("const i64 p", i, " = drawn_(d", i, ");"));
  }

  // Divides the dynamic shared memory in the order of the buffers.
  void shared() {
    int offset = 0;
    for (const Buffer& b : kernel.buffers) {
      if (b.kind != Buffer::Kind::Shared || !b.elements->is_constant()) continue;
      const std::string type = buffer_type(b);
      offset = (offset + 15) / 16 * 16;
      line(text(type, "* ", b.name, " = (", type, "*)(shared_memory()",
                offset ? text(" + ", offset) : "", ");"));
      offset += element_bytes(b) * static_cast<int>(b.elements->value.integer);
    }
    for (const Buffer& b : kernel.buffers) {
      if (b.kind != Buffer::Kind::Shared || b.elements->is_constant()) continue;
      const std::string type = buffer_type(b);
      const int behind = kernel.shared_bytes();
      line(text(type, "* ", b.name, " = (", type, "*)(shared_memory()",
                behind ? text(" + ", behind) : "", ");"));
    }
  }

  static std::string param_type(const Param& p) {
    if (p.kind == Param::Kind::RngOffset) return "Drawn";
    return is_fast_divisor(p) ? "FastDiv" : row(p.dtype).device;
  }

  struct Argument {
    std::string type, qualifier, name;
  };
  std::vector<Argument> arguments() const {
    std::vector<Argument> args;
    for (const Buffer& b : kernel.buffers)
      if (b.kind != Buffer::Kind::Shared)
        args.push_back({.type = text(b.written ? "" : "const ", buffer_type(b), "*"),
                        .qualifier = b.restrict_ ? "__restrict__ " : "",
                        .name = b.name});
    for (size_t i = 0; i < kernel.params.size(); ++i)
      if (!is_constant(i))
        args.push_back(
            {.type = param_type(kernel.params[i]),
             .qualifier = "",
             .name = text(kernel.params[i].kind == Param::Kind::RngOffset ? "d" : "p", i)});
    return args;
  }

  // Prints the function's body; arguments are in variables of their names.
  void statements() {
    constant_params();
    drawn();
    shared();
    for (const Array& a : kernel.arrays) {
      const std::string type = a.chunk ? text("Raw<", row(a.dtype).device, ", ", a.chunk, ">")
                                       : type_of(a.dtype, a.state);
      line(text(type, " ", a.name, "[", a.extent, "];"));
    }
    body(kernel.body);
  }

  bool is_constant(size_t param) const {
    return param < constants.size() && constants[param].has_value();
  }

  void constant_params() {
    for (size_t i = 0; i < kernel.params.size(); ++i) {
      if (!is_constant(i)) continue;
      const Param& p = kernel.params[i];
      std::string value = literal(p.dtype, *constants[i]);
      if (is_fast_divisor(p)) {
        const FastDiv d = make_fast_div(static_cast<uint32_t>(constants[i]->integer));
        value = text("{", d.divisor, "u, ", d.magic, "u, ", d.shift, "u}");
      }
      line(text("const ", param_type(p), " p", i, " = ", value, ";"));
    }
  }
};

// `before`: text in front of the function; `signature`: its parameters.
KernelText finished(const KernelIR& kernel, const std::string& before, const std::string& signature,
                    const std::string& statements) {
  const std::string rest = text("(", signature, ") {\n", statements, "}\n");
  const std::string bounds = kernel.min_blocks
                                 ? text("KERNEL2(", kernel.threads, ", ", kernel.min_blocks, ")")
                                 : text("KERNEL(", kernel.threads, ")");
  const std::string head = before + bounds + " void ";
  const std::string helpers = device_text(head + rest);
  const Digest digest = sha256(helpers + head + rest);
  const std::string name = text(kernel.name, "_", hex(digest).substr(0, 8));
  return {.name = name,
          .text = helpers + head + name + rest,
          .digest = digest,
          .collectives = kernel.collectives(),
          .threads = kernel.threads,
          .shared_bytes = kernel.shared_bytes(),
          .shared_grows = kernel.shared_rows != nullptr,
          .cluster = kernel.cluster,
          .cooperative = kernel.cooperative};
}

}  // namespace

KernelText print_cuda(const KernelIR& kernel, const Constants& constants) {
  Printer printer{{.kernel = kernel}, constants};
  printer.statements();
  std::vector<std::string> signature;
  for (const Printer::Argument& a : printer.arguments())
    signature.push_back(text(a.type, " ", a.qualifier, a.name));
  return finished(kernel, "", joined(signature), printer.out);
}

KernelText renamed(KernelText kernel, const std::string& name) {
  if (kernel.name == name) return kernel;
  kernel.text.replace(kernel.text.rfind(kernel.name + "("), kernel.name.size(), name);
  kernel.name = name;
  return kernel;
}

HorizontalLayout horizontal_layout(const KernelIR& kernel) {
  const auto shares_grid = [](const Buffer& b) {
    return b.kind == Buffer::Kind::Workspace || b.kind == Buffer::Kind::Counters;
  };
  // Both compilers must lay out the struct of arguments equally, so its members need at most 8-byte
  // alignment.
  const auto wide = [](const Param& p) { return size_of(p.dtype) > 8; };
  if (kernel.cooperative || kernel.cluster > 1 ||
      std::any_of(kernel.buffers.begin(), kernel.buffers.end(), shares_grid) ||
      std::any_of(kernel.params.begin(), kernel.params.end(), wide))
    return {};
  constexpr int room = 4096;  // bytes of arguments per launch
  HorizontalLayout out;
  out.part_bytes = (kernel.argument_bytes() + 7) / 8 * 8;
  out.most = (room - 12) / (out.part_bytes + 4);
  out.part_offset = ((out.most + 1) * 4 + 7) / 8 * 8;
  return out;
}

KernelText print_horizontal(const KernelIR& kernel) {
  const int most = horizontal_layout(kernel).most;
  const Constants none;
  Printer printer{{.kernel = kernel, .in_parts = true}, none};
  std::string fields;
  printer.line(text("const i32 place_ = part_at_(parts.first, ", most, ");"));
  printer.line("const Part& part_ = parts.part[place_];");
  printer.line("const i32 block_ = block_x() - parts.first[place_];");
  for (const Printer::Argument& a : printer.arguments()) {
    fields += text("  ", a.type, " ", a.name, ";\n");
    printer.line(text(a.type, " ", a.qualifier, a.name, " = part_.", a.name, ";"));
  }
  printer.statements();
  const std::string structs = text("struct Part {\n", fields, "};\nstruct Parts {\n  i32 first[",
                                   most + 1, "];\n  Part part[", most, "];\n};\n");
  return finished(kernel, structs, "PARTS Parts parts", printer.out);
}

}  // namespace fuser::codegen
