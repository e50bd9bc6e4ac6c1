// Invariants of a kernel between any two compiler passes.
#include <algorithm>
#include <optional>
#include <unordered_set>

#include "base/error.h"
#include "ir/kernel.h"

namespace fuser::ir {
namespace {

constexpr int kArgumentBytes = 4096;  // bytes of arguments of a launch that every supported driver
                                      // allows

bool is_name(const std::string& s) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  if (s.empty() || !letter(s[0])) return false;
  for (char c : s)
    if (!letter(c) && !(c >= '0' && c <= '9')) return false;
  return true;
}

const char* device_name(DType d) { return row(d).device; }

std::string dtypes_of(std::span<const Expr> args) {
  std::vector<std::string> names;
  for (Expr a : args) names.push_back(device_name(a->dtype));
  return joined(names);
}

bool is_host_symbol(Expr e) {
  return e->is_symbol(Symbol::Size) || e->is_symbol(Symbol::Stride) || e->is_symbol(Symbol::Scalar);
}

struct Verifier {
  const KernelIR& kernel;
  const Stmt* at = nullptr;                    // nullptr: in the declarations
  std::vector<std::optional<DType>> in_scope;  // by variable
  std::vector<bool> has_axis;
  bool divergent = false;               // some threads of the block may not reach this statement
  std::unordered_set<int> thread_vars;  // variables that may differ between threads of a block

  // Returns the prefix of a message: kernel and statement.
  std::string here() const {
    return text("kernel ", kernel.name, ": ", at ? text(to_text(kernel, *at), ": ") : "");
  }

  // ---- Expressions

  void symbol(Expr e) {
    const auto is_int64 = [&] {
      FUSER_ASSERT(e->dtype == DType::Int64, here(), to_string(e), " has dtype ",
                   device_name(e->dtype), ", expected i64");
    };
    const int a = e->a;
    switch (e->symbol) {
      case Symbol::Var:
        FUSER_ASSERT(a >= 0 && a < kernel.vars && in_scope[a], here(), "v", a,
                     " is not defined here");
        FUSER_ASSERT(*in_scope[a] == e->dtype, here(), "v", a, " is used as ",
                     device_name(e->dtype), " and defined as ", device_name(*in_scope[a]));
        return;
      case Symbol::Param: {
        const int count = static_cast<int>(kernel.params.size());
        FUSER_ASSERT(a >= 0 && a < count, here(), "p", a, " of ", count, " parameters");
        const Param& p = kernel.params[a];
        const bool integer = p.kind == Param::Kind::Int || p.kind == Param::Kind::Divisor;
        const DType expected = integer ? DType::Int64 : p.dtype;
        FUSER_ASSERT(e->dtype == expected, here(), "p", a, " is used as ", device_name(e->dtype),
                     ", expected ", device_name(expected));
        return;
      }
      case Symbol::Axis:
        is_int64();
        FUSER_ASSERT(a >= 0 && a < static_cast<int>(has_axis.size()) && has_axis[a], here(), "a", a,
                     " is not among the declared axes");
        return;
      case Symbol::Scalar:
      case Symbol::RngOffset:
      case Symbol::Value:
        return;
      case Symbol::Size:
      case Symbol::Stride:
      case Symbol::Thread:
      case Symbol::Block:
        is_int64();
        return;
      case Symbol::Indirect:
      case Symbol::Extent:
        FUSER_ASSERT(false, here(), to_string(e), " is not a value of a kernel");
    }
  }

  void element(Expr e) {
    const Array& array = array_at(e->a);
    FUSER_ASSERT(!array.chunk, here(), array.name,
                 " holds packed chunks, expected unpacked elements");
    const DType dtype =
        array.state ? result_dtype(array.state->op, array.dtype, e->b) : array.dtype;
    FUSER_ASSERT(e->dtype == dtype, here(), array.name, " is used as ", device_name(e->dtype),
                 " and has dtype ", device_name(dtype));
    within(array, e->args[0], 1);
  }

  void apply(Expr e) {
    const OpRow& op = row(e->op);
    const bool condition = op.rule == ResultRule::Condition;
    FUSER_ASSERT(!condition || e->args[0]->dtype == DType::Bool, here(), op.name,
                 " has a condition of dtype ", device_name(e->args[0]->dtype), ", expected bool");
    const DType compute = compute_dtype(e);
    const auto values = e->operands().subspan(condition ? 1 : 0);
    for (Expr a : values)
      FUSER_ASSERT(a->dtype == compute, here(), op.name, " has operands of ", dtypes_of(values),
                   ", expected one dtype");
    // A value that is only selected may have a type that no op is computed in.
    FUSER_ASSERT(condition || (compute_type(compute) == compute && op_text(e->op, compute)), here(),
                 op.name, " is not computed in ", device_name(compute));
  }

  // Returns whether `e` is a divisor parameter: a number prepared for division, not an integer.
  bool is_divisor(Expr e) const {
    return e->is_symbol(Symbol::Param) && e->a >= 0 &&
           e->a < static_cast<int>(kernel.params.size()) &&
           kernel.params[e->a].kind == Param::Kind::Divisor;
  }

  void expr(Expr root, DType expected, const char* what) {
    FUSER_ASSERT(root, here(), what, " is missing");
    visit(root, [&](Expr e) {
      for (int i = 0; i < e->arity; ++i) {
        const bool divides = i == 1 && (e->op == Op::div || e->op == Op::mod);
        FUSER_ASSERT(divides || !is_divisor(e->args[i]), here(), "divisor ", to_string(e->args[i]),
                     " is used in ", to_string(e), ", expected only after / or %");
      }
      switch (e->kind) {
        case ExprNode::Kind::Constant:
          FUSER_ASSERT(wrap(e->dtype, e->value.integer) == e->value.integer, here(), "constant ",
                       e->value.integer, " is out of range for ", device_name(e->dtype));
          break;
        case ExprNode::Kind::Symbol:
          symbol(e);
          break;
        case ExprNode::Kind::Element:
          element(e);
          break;
        case ExprNode::Kind::Apply:
          apply(e);
          break;
        case ExprNode::Kind::Cast:
          break;
      }
    });
    FUSER_ASSERT(root->dtype == expected, here(), what, " has dtype ", device_name(root->dtype),
                 ", expected ", device_name(expected));
    FUSER_ASSERT(!is_divisor(root), here(), what, " is the divisor ", to_string(root));
  }

  // Checks an expression that is computed before the launch, from sizes, strides and scalar inputs.
  void host_expr(Expr root, const char* what) {
    expr(root, DType::Int64, what);
    visit(root, [&](Expr e) {
      const bool known = e->kind == ExprNode::Kind::Symbol ? is_host_symbol(e)
                                                           : e->kind != ExprNode::Kind::Element;
      FUSER_ASSERT(known, here(), what, " depends on ", to_string(e),
                   ", expected sizes, strides and scalar inputs only");
    });
  }

  // ---- Statements

  const Array& array_at(int i) {
    FUSER_ASSERT(i >= 0 && i < static_cast<int>(kernel.arrays.size()), here(), "array ", i, " of ",
                 kernel.arrays.size());
    return kernel.arrays[i];
  }

  // Checks that `width` elements from a constant index on are inside the array.
  void within(const Array& array, Expr index, int width) {
    FUSER_ASSERT(index->dtype == DType::Int64, here(), "the index into ", array.name, " has dtype ",
                 device_name(index->dtype), ", expected i64");
    const int64_t first = index->is_constant() ? index->value.integer : 0;
    FUSER_ASSERT(first >= 0 && first <= array.extent - width, here(), "elements ", first, " to ",
                 first + width - 1, " of ", array.name, ", which has ", array.extent);
  }

  template <class Access>  // Load or Write
  void access(const Access& s, bool Buffer::*allowed, const char* verb) {
    const Array& array = array_at(s.array);
    FUSER_ASSERT(s.buffer >= 0 && s.buffer < static_cast<int>(kernel.buffers.size()), here(),
                 "buffer ", s.buffer, " of ", kernel.buffers.size());
    const Buffer& buffer = kernel.buffers[s.buffer];
    FUSER_ASSERT(buffer.*allowed, here(), buffer.name, " is not declared as ", verb);
    FUSER_ASSERT(array.state == buffer.state, here(), array.name, " and ", buffer.name,
                 " do not hold partial results of one reduction");
    FUSER_ASSERT(array.dtype == buffer.dtype, here(), array.name, " has dtype ",
                 device_name(array.dtype), " and ", buffer.name, " has ",
                 device_name(buffer.dtype));
    FUSER_ASSERT(s.width >= 1, here(), "width ", s.width, ", expected at least 1");
    expr(s.element, DType::Int64, "the array's index");
    FUSER_ASSERT(!array.chunk || array.chunk == s.width, here(), "width ", s.width,
                 " of chunks of ", array.chunk);
    within(array, s.element, array.chunk ? 1 : s.width);
    expr(s.offset, DType::Int64, "the offset");
    FUSER_ASSERT(!array.chunk || !s.count, here(), "a partial access to a chunk");
    if (s.in) expr(s.in, DType::Bool, "the predicate");
    if (s.count) expr(s.count, DType::Int64, "the count");
    FUSER_ASSERT(!s.column == !s.columns && !s.column == !s.jump, here(),
                 "column, columns and jump must be given together");
    if (!s.column) return;
    expr(s.column, DType::Int64, "the column");
    expr(s.columns, DType::Int64, "the columns");
    expr(s.jump, DType::Int64, "the jump");
  }

  void define(int var, DType dtype) {
    FUSER_ASSERT(var >= 0 && var < kernel.vars, here(), "v", var, ", but ", kernel.vars,
                 " variables are declared");
    FUSER_ASSERT(!in_scope[var], here(), "v", var, " is defined twice");
    in_scope[var] = dtype;
  }

  // Checks a statement; a kind without a check() overload does not compile.
  void statement(const Stmt& stmt) {
    at = &stmt;
    std::visit([this](const auto& s) { check(s); }, stmt.node);
  }

  void check(const Let& s) {
    FUSER_ASSERT(s.value, "kernel ", kernel.name, ": v", s.var, " has no value");
    const DType dtype = s.value->dtype;
    expr(s.value, dtype, "the value");
    FUSER_ASSERT(!s.index || dtype == DType::Int64 || dtype == DType::Bool, here(),
                 "an index has dtype ", device_name(dtype), ", expected i64 or bool");
    define(s.var, dtype);
    visit(s.value, [&](Expr e) {
      if (varies(e)) thread_vars.insert(s.var);
    });
  }

  void check(const Load& s) { access(s, &Buffer::read, "read"); }

  void check(const Assign& s) {
    const Array& array = array_at(s.array);
    expr(s.element, DType::Int64, "the array's index");
    within(array, s.element, 1);
    expr(s.value, array.dtype, "the value");
  }

  void check(const Write& s) { access(s, &Buffer::written, "written"); }

  void check(const For& s) {
    FUSER_ASSERT(s.extent >= 1, here(), "extent ", s.extent, ", expected at least 1");
    inner(s.var, s.body, divergent);
  }

  void check(const Serial& s) {
    expr(s.extent, DType::Int64, "the trip count");
    inner(s.var, s.body, divergent || differs(s.extent));
  }

  void check(const If& s) {
    expr(s.condition, DType::Bool, "the condition");
    inner(-1, s.body, divergent || !s.uniform);
  }

  void check(const InitState& s) { state_at(s.array); }

  void check(const ThreadReduce& s) { state_at(s.array); }

  void check(const Accumulate& s) {
    const Array& array = state_at(s.array);
    const ReductionRow& r = row(array.state->op);
    expr(s.element, DType::Int64, "the array's index");
    within(array, s.element, 1);
    const bool product = r.adds() && s.values.size() == 2;
    FUSER_ASSERT(product || s.values.size() == r.operands, here(), s.values.size(), " values, ",
                 r.name, " takes ", int(r.operands));
    for (size_t i = 0; i < s.values.size(); ++i)
      expr(s.values[i], i == 0 || product ? array.dtype : DType::Int64, "the value");
    if (s.in) expr(s.in, DType::Bool, "the predicate");
  }

  void check(const AccumulateAll& s) {
    const Array &to = state_at(s.array), &from = array_at(s.values);
    const bool placed = s.positions >= 0;
    FUSER_ASSERT(row(to.state->op).operands == 1 + placed && from.dtype == to.dtype &&
                     !from.state && !from.chunk && from.extent % to.extent == 0,
                 here(), from.name, " has no elements that ", to.name, " can accumulate");
    if (!placed) return;
    const Array& at_each = array_at(s.positions);
    FUSER_ASSERT(at_each.dtype == DType::Int64 && at_each.extent == from.extent, here(),
                 at_each.name, " does not hold one position per element of ", from.name);
  }

  void check(const Merge& s) {
    const Array &to = state_at(s.array), &from = state_at(s.other);
    FUSER_ASSERT(to.state == from.state && to.dtype == from.dtype, here(), to.name, " and ",
                 from.name, " are partial results of different reductions");
    expr(s.element, DType::Int64, "the array's index");
    expr(s.other_element, DType::Int64, "the array's index");
    within(to, s.element, 1);
    within(from, s.other_element, 1);
  }

  void check(const LaneReduce& s) {
    converge(s);
    const Array &to = state_at(s.array), &from = state_at(s.other);
    FUSER_ASSERT(to.state == from.state && to.dtype == from.dtype && s.array != s.other, here(),
                 to.name, " and ", from.name, " are not two arrays of one reduction");
  }

  void check(const LaneTranspose& s) {
    converge(s);
    const Array& array = array_at(s.array);
    FUSER_ASSERT(array.extent == kernel.threads && !array.state && !array.chunk, here(), array.name,
                 " has ", array.extent, " elements, expected ", kernel.threads);
  }

  void check(const BlockReduce& s) {
    converge(s);
    const bool block = s.group == kernel.threads && s.group % 32 == 0;
    FUSER_ASSERT(
        block || (s.group >= 1 && (s.group & (s.group - 1)) == 0 && kernel.threads % s.group == 0),
        here(), s.group, " of ", kernel.threads, " threads");
    FUSER_ASSERT(kernel.cluster == 1 || s.group == kernel.threads, here(), s.group, " of ",
                 kernel.threads, " threads, expected all threads of a cluster");
    for (size_t i = 0; i < s.arrays.size(); ++i) {
      state_at(s.arrays[i]);
      const int warps = kernel.threads / 32;
      if (kernel.cluster > 1)
        slot(s.arrays, i, s.cluster_slots,
             kernel.cluster * warps * words_of(kernel.arrays[s.arrays[i]]));
      else if (s.group > 32)
        slot(s.arrays, i, s.slots, warps);
    }
    if (s.parity) expr(s.parity, DType::Int64, "the parity");
    FUSER_ASSERT((kernel.cluster > 1) == (s.arrival != nullptr), here(),
                 "expected an arrival if and only if the kernel has clusters");
    if (s.arrival) {
      buffer_at(s.arrivals, Buffer::Kind::Shared);
      expr(s.arrival, DType::Int64, "the arrival");
      expr(s.turn, DType::Int64, "the turn");
    }
  }

  void check(const BlockReduceColumns& s) {
    converge(s);
    FUSER_ASSERT(s.threads_y * s.threads_x == kernel.threads, here(), s.threads_y, " x ",
                 s.threads_x, " of ", kernel.threads, " threads");
    for (size_t i = 0; i < s.arrays.size(); ++i)
      slot(s.arrays, i, s.slots, state_at(s.arrays[i]).extent * kernel.threads);
  }

  void check(const IsLastBlock& s) {
    converge(s);
    buffer_at(s.counters, Buffer::Kind::Counters);
    buffer_at(s.slot, Buffer::Kind::Shared);
    expr(s.index, DType::Int64, "the counter's index");
    expr(s.count, DType::Int64, "the count");
    define(s.var, DType::Bool);
  }

  void check(const AsyncCopy& s) {
    const Buffer& to = buffer_at(s.shared, Buffer::Kind::Shared);
    const Buffer& from = buffer_at(s.buffer, Buffer::Kind::Tensor);
    FUSER_ASSERT(to.dtype == from.dtype, here(), "a copy from ", from.name, " to ", to.name,
                 ", expected equal dtypes");
    const int bytes = s.width * size_of(from.dtype);
    FUSER_ASSERT(bytes == 4 || bytes == 8 || bytes == 16, here(), "a copy of ", bytes,
                 " bytes, expected 4, 8 or 16");
    expr(s.element, DType::Int64, "the element");
    expr(s.offset, DType::Int64, "the offset");
    if (s.in) expr(s.in, DType::Bool, "the predicate");
  }

  void check(const Unpack& s) {
    const Array &to = array_at(s.array), &from = array_at(s.raw);
    FUSER_ASSERT(from.chunk == to.extent && from.dtype == to.dtype && !to.chunk, here(),
                 "chunks of ", from.chunk, " elements become ", to.extent);
    expr(s.chunk, DType::Int64, "the chunk");
    within(from, s.chunk, 1);
  }

  void check(const AssertIndex& s) {
    expr(s.index, s.index->dtype, "the index");
    FUSER_ASSERT(kind_of(s.index->dtype) == Kind::Int, here(), "an index of dtype ",
                 device_name(s.index->dtype));
    expr(s.extent, DType::Int64, "the extent");
    if (s.in) expr(s.in, DType::Bool, "the predicate");
  }

  void check(const SyncGrid& s) {
    converge(s);
    buffer_at(s.counters, Buffer::Kind::Counters);
    FUSER_ASSERT(kernel.cooperative, here(), "in a kernel that is not cooperative");
  }

  void check(const SyncCluster& s) {
    converge(s);
    if (s.part == SyncCluster::Part::Arrive) buffer_at(s.arrivals, Buffer::Kind::Shared);
  }

  void check(const Barrier& s) { converge(s); }

  void check(const AsyncCommit&) {}
  void check(const AsyncWait&) {}

  // ---- Convergence: all threads of a block reach a collective.

  template <class S>
  void converge(const S&) {
    FUSER_ASSERT(!divergent, here(), "a barrier in divergent control flow");
  }

  // Returns whether this node alone may give different values to threads of a block.
  bool varies(Expr e) const {
    return e->is_symbol(Symbol::Thread) || e->kind == ExprNode::Kind::Element ||
           (e->is_symbol(Symbol::Var) && thread_vars.count(e->a));
  }

  // Returns whether threads of the block may have different values of it.
  bool differs(Expr root) const {
    bool found = false;
    visit(root, [&](Expr e) { found |= varies(e); });
    return found;
  }

  void inner(int var, const Body& statements, bool diverges) {
    const bool before = divergent;
    divergent = diverges;
    if (var >= 0) define(var, DType::Int64);
    body(statements);
    if (var >= 0) in_scope[var].reset();
    divergent = before;
  }

  const Array& state_at(int i) {
    const Array& array = array_at(i);
    FUSER_ASSERT(array.state, here(), array.name, " holds no partial results");
    return array;
  }

  const Buffer& buffer_at(int i, Buffer::Kind kind) {
    FUSER_ASSERT(i >= 0 && i < static_cast<int>(kernel.buffers.size()), here(), "buffer ", i,
                 " of ", kernel.buffers.size());
    FUSER_ASSERT(kernel.buffers[i].kind == kind, here(), kernel.buffers[i].name,
                 " has another kind of memory");
    return kernel.buffers[i];
  }

  static int words_of(const Array& a) {
    return std::max(1, least_sent_bytes / state_bytes(a.state->op, a.dtype));
  }

  void slot(const std::vector<int>& arrays, size_t i, const std::vector<int>& slots, int states) {
    FUSER_ASSERT(slots.size() == arrays.size(), here(), slots.size(), " slots for ", arrays.size(),
                 " partial results");
    const Buffer& b = buffer_at(slots[i], Buffer::Kind::Shared);
    const Array& a = kernel.arrays[arrays[i]];
    FUSER_ASSERT(b.state == a.state && b.dtype == a.dtype && b.elements->value.integer >= states,
                 here(), b.name, " is too small for ", states, " partial results of ", a.name);
  }

  void body(const Body& statements) {
    for (const Stmt& s : statements) statement(s);
    for (const Stmt& s : statements)
      if (const int var = defined_var(s); var >= 0) in_scope[var].reset();
  }

  // ---- Declarations

  void names() {
    FUSER_ASSERT(is_name(kernel.name), "kernel '", kernel.name, "': its name is not an identifier");
    std::unordered_set<std::string> taken;
    const auto take = [&](const std::string& name) {
      FUSER_ASSERT(is_name(name), here(), "'", name, "' is not an identifier");
      FUSER_ASSERT(taken.insert(name).second, here(), name, " is declared twice");
    };
    for (const Buffer& b : kernel.buffers) take(b.name);
    for (const Array& a : kernel.arrays) {
      take(a.name);
      FUSER_ASSERT(a.extent >= 1, here(), "array ", a.name, " has extent ", a.extent,
                   ", expected at least 1");
    }
  }

  void params() {
    for (size_t i = 0; i < kernel.params.size(); ++i) {
      const Param& p = kernel.params[i];
      if (p.kind == Param::Kind::Real) {
        FUSER_ASSERT(p.dtype == DType::Float32 || p.dtype == DType::Float64, here(), "p", i,
                     " has dtype ", device_name(p.dtype), ", expected f32 or f64");
        host_expr(p.value, text("the value of p", i).c_str());
      } else if (p.kind == Param::Kind::Int || p.kind == Param::Kind::Divisor) {
        FUSER_ASSERT(p.dtype == DType::Int64 || p.dtype == DType::Int32, here(), "p", i,
                     " has dtype ", device_name(p.dtype), ", expected i32 or i64");
        host_expr(p.value, text("the value of p", i).c_str());
      } else {
        FUSER_ASSERT(p.index >= 0, here(), "p", i, " is input ", p.index);
      }
    }
  }

  // The index of a dim uses variables of the body. Their scope is checked at the offsets that use
  // the index.
  void axes() {
    for (const LinearAxes& w : kernel.axes) {
      FUSER_ASSERT(w.index && w.index->dtype == DType::Int64, here(),
                   "a group of axes has no index of dtype i64");
      FUSER_ASSERT(w.axes.size() == w.extents.size(), here(), w.axes.size(), " axes have ",
                   w.extents.size(), " extents");
      for (int a : w.axes) {
        FUSER_ASSERT(a >= 0, here(), "a", a, " is not an axis");
        if (a >= static_cast<int>(has_axis.size())) has_axis.resize(a + 1);
        FUSER_ASSERT(!has_axis[a], here(), "a", a, " is declared twice");
        has_axis[a] = true;
      }
      for (Expr e : w.extents) host_expr(e, "the extent of an axis");
    }
  }

  void declarations() {
    names();
    FUSER_ASSERT(kernel.threads >= 1 && kernel.threads <= 1024, here(), kernel.threads,
                 " threads, expected 1 to 1024");
    for (const Buffer& b : kernel.buffers) {
      if (b.kind == Buffer::Kind::Shared)
        FUSER_ASSERT(b.elements && (b.elements->is_constant() || kernel.shared_rows), here(),
                     b.name, " is in shared memory and has no size");
      else if (b.kind != Buffer::Kind::Tensor)
        host_expr(b.elements, "the size of scratch memory");
    }
    FUSER_ASSERT(kernel.cluster >= 1 && kernel.cluster <= 16, here(), "clusters of ",
                 kernel.cluster, " blocks");
    FUSER_ASSERT(kernel.min_blocks >= 0, here(), "min_blocks is ", kernel.min_blocks);
    params();
    axes();
    if (kernel.shared_rows) host_expr(kernel.shared_rows, "the size of shared memory");
    if (kernel.blocks) host_expr(kernel.blocks, "the number of blocks");
  }
};

}  // namespace

void verify(const KernelIR& kernel) {
  Verifier v{.kernel = kernel, .in_scope = {}, .has_axis = {}, .thread_vars = {}};
  const size_t vars = std::max(kernel.vars, 0);
  v.in_scope.resize(vars);
  v.declarations();
  v.body(kernel.body);
  const int bytes = kernel.argument_bytes();
  FUSER_CHECK(bytes <= kArgumentBytes, Unsupported, "kernel-size-3", "kernel ", kernel.name,
              " takes ", bytes, " bytes of arguments (", kernel.buffers.size(), " tensors, ",
              kernel.params.size(), " parameters); expected at most ", kArgumentBytes,
              "; define fewer inputs and outputs in one fusion");
}

}  // namespace fuser::ir
