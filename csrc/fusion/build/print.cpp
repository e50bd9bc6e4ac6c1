// Text of a Fusion: Python that runs. It contains every attribute, so it also serves as the
// structural key by which fusions are compared.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "ir/fusion.h"

namespace fuser::ir {
namespace {

std::string dtype_text(DType d) { return text("DataType.", row(d).member); }

// Returns the shortest decimal that parses to the same float64.
std::string real_literal(double v) {
  if (std::isnan(v)) return "float(\"nan\")";
  if (std::isinf(v)) return v < 0 ? "float(\"-inf\")" : "float(\"inf\")";
  char buffer[40];
  std::string s(buffer, std::to_chars(buffer, buffer + sizeof buffer, v).ptr);
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  return s;
}

std::string literal(DType dtype, const Number& v) {
  switch (kind_of(dtype)) {
    case Kind::Bool:
      return v.integer ? "True" : "False";
    case Kind::Int:
      return text(v.integer);
    case Kind::Float:
      return real_literal(v.real);
    case Kind::Complex:
      return text("complex(", real_literal(v.real), ", ", real_literal(v.imag), ")");
  }
  return {};
}

// Returns whether define_scalar gives this dtype to a Python number.
bool is_natural(DType d) {
  return d == DType::Bool || d == DType::Int64 || d == DType::Float64 || d == DType::Complex128;
}

// Returns whether an optional argument of a movement op has its default.
bool is_default(bool flag) { return !flag; }
bool is_default(Expr size) { return size->is_constant(-1); }
template <class T>
bool is_default(const T&) {
  return false;
}

bool is_computed(Expr e) {
  return e->kind == ExprNode::Kind::Apply || e->kind == ExprNode::Kind::Cast;
}

// Prints scalar arithmetic as statements, each node once. Nested calls would grow exponentially
// with sharing, and overflow Python's parser with depth. Statements are in the order in which the
// nodes were created, so operands come first. Sums and products of sizes are kept in that order
// too, so the text is a fixed point of printing and parsing.
struct Printer {
  const Fusion& fusion;
  std::string out{};
  std::vector<Expr> computed{};  // computed scalars that are used, by id
  size_t next_computed = 0;
  size_t next_argument = 0;
  bool random_printed = false;
  std::vector<size_t> input_places{}, scalar_places{};  // positions in fusion.arguments
  std::unordered_map<Expr, std::string> names{};        // names of computed scalars already printed

  explicit Printer(const Fusion& f)
      : fusion(f), input_places(f.inputs.size()), scalar_places(f.scalars.size()) {
    for (size_t i = 0; i < fusion.arguments.size(); ++i) {
      const Argument& a = fusion.arguments[i];
      (a.is_tensor ? input_places : scalar_places)[a.index] = i;
    }
    std::vector<Expr> roots;
    for (const Tensor& t : fusion.tensors)
      for (Expr e : written_scalars(t)) roots.push_back(e);
    visit(roots, [&](Expr e) {
      if (is_computed(e)) computed.push_back(e);
    });
    std::sort(computed.begin(), computed.end(), [](Expr a, Expr b) { return a->id < b->id; });
  }

  // Prints the scalar inputs before argument `end`, in the order of execute()'s list.
  void arguments_before(size_t end) {
    for (; next_argument < end; ++next_argument) {
      const Argument& a = fusion.arguments[next_argument];
      if (a.is_tensor) continue;
      if (a.index > fusion.random.offset) random_state();
      out += text("    S", a.index,
                  " = fd.define_scalar(None, dtype=", dtype_text(fusion.scalars[a.index].dtype),
                  ")\n");
    }
  }

  // Prints the statement that takes seed and offset, at its position among the scalar inputs.
  void random_state() {
    const RandomState& random = fusion.random;
    if (!random.ops || std::exchange(random_printed, true)) return;
    if (random.seed > 0) arguments_before(scalar_places[random.seed - 1] + 1);
    out +=
        text("    S", random.seed, ", S", random.offset, " = fd.random_state(", random.ops, ")\n");
  }

  // Prints the statements that `root` depends on, if they are not printed yet.
  void require(Expr root) {
    if (root->is_symbol(Symbol::RngOffset)) return random_state();
    if (root->is_symbol(Symbol::Scalar)) {
      if (scalar_places[root->a] >= next_argument) arguments_before(scalar_places[root->a] + 1);
    }
    if (is_computed(root)) computed_before(root->id + 1);
  }

  void computed_before(uint32_t id) {
    for (; next_computed < computed.size() && computed[next_computed]->id < id; ++next_computed) {
      Expr e = computed[next_computed];
      for (Expr a : e->operands())
        if (a->is_symbol(Symbol::Scalar) || a->is_symbol(Symbol::RngOffset)) require(a);
      std::vector<std::string> args;
      for (Expr a : e->operands()) args.push_back(scalar(a));
      std::string& name = names[e] = text("E", next_computed);
      if (e->kind == ExprNode::Kind::Cast)
        out +=
            text("    ", name, " = fd.ops.cast(", args[0], ", dtype=", dtype_text(e->dtype), ")\n");
      else
        out += text("    ", name, " = fd.ops.", row(e->op).name, "(", joined(args), ")\n");
    }
  }

  // `typed`: print a Scalar even if its dtype is the default.
  std::string scalar(Expr e, bool typed = false) const {
    if (e->is_constant()) {
      const std::string value = literal(e->dtype, e->value);
      return is_natural(e->dtype) && !typed
                 ? value
                 : text("fd.define_scalar(", value, ", dtype=", dtype_text(e->dtype), ")");
    }
    if (e->is_symbol(Symbol::Scalar) || e->is_symbol(Symbol::RngOffset)) return text("S", e->a);
    if (e->is_symbol(Symbol::Extent)) return text("fd.ops.size(T", e->a, ", ", e->b, ")");
    if (e->is_symbol(Symbol::Size))
      return text("fd.ops.size(T", fusion.inputs[e->a]->id, ", ", e->b, ")");
    const auto it = names.find(e);
    FUSER_ASSERT(it != names.end(), "a definition contains ", to_string(e));
    return it->second;
  }

  void statement(const Tensor& t) {
    // Scalars that were computed before the sizes of this tensor stay before them. The sizes of a
    // slice are created with the slice.
    for (Expr e : t.shape)
      if (e->is_symbol(Symbol::Size) || is_computed(e)) computed_before(e->id);
    if (const auto* input = std::get_if<Input>(&t.definition)) {
      arguments_before(input_places[input->index]);
      next_argument = input_places[input->index] + 1;
    }
    for (Expr e : written_scalars(t)) require(e);
    out += text("    T", t.id, " = ", definition(t), "\n");
  }

  std::string shape(std::span<const Expr> extents) const {
    std::vector<std::string> parts;
    for (Expr e : extents) parts.push_back(scalar(e));
    return text("[", joined(parts), "]");
  }

  std::string bools(const std::vector<bool>& flags) const {
    std::vector<std::string> parts;
    for (bool b : flags) parts.push_back(b ? "True" : "False");
    return text("[", joined(parts), "]");
  }

  std::string call(const Tensor& t, const Input& d) const {
    std::vector<std::string> sizes, contiguity;
    for (Expr e : t.shape) sizes.push_back(e->is_constant() ? text(e->value.integer) : "-1");
    for (const auto& c : d.contiguity) contiguity.push_back(!c ? "None" : *c ? "True" : "False");
    std::string out =
        text("fd.define_tensor(shape=[", joined(sizes), "], contiguity=[", joined(contiguity),
             "], dtype=", dtype_text(t.dtype), ", is_cpu=", d.is_cpu ? "True" : "False");
    if (!d.stride_order.empty()) out += text(", stride_order=[", joined(d.stride_order), "]");
    return out + ")";
  }

  static std::string attribute(const LibraryAttribute& of, int64_t held) {
    switch (of.kind) {
      case LibraryAttribute::Kind::Int:
        return std::to_string(held);
      case LibraryAttribute::Kind::Bool:
        return held ? "True" : "False";
      case LibraryAttribute::Kind::Real:
        return literal(DType::Float64, {.real = real_of(held)});
      case LibraryAttribute::Kind::Type:
        return dtype_text(static_cast<DType>(held));
    }
    return {};
  }

  // Ops with one result are printed by name; library() returns all results of other ops at once.
  std::string call(const Tensor&, const Library& d) const {
    std::vector<std::string> args, attributes;
    for (const Tensor* a : d.args) args.push_back(text("T", a->id));
    const auto row_attributes = attributes_of(d.op);
    for (size_t i = 0; i < row_attributes.size(); ++i) {
      const bool given = !d.given.empty() && d.given[i];
      attributes.push_back(
          text(", ", row_attributes[i].name, "=",
               given ? scalar(d.given[i]) : attribute(row_attributes[i], d.attributes[i])));
    }
    const bool one = row(d.op).results.size() == 1;
    return text("fd.ops.", one ? row(d.op).name : text("library(\"", row(d.op).name, "\", "),
                one ? "(" : "[", joined(args), one ? "" : "]", joined(attributes, ""), ")");
  }

  // Returns the call that defines the tensor. A kind of definition without a call() does not
  // compile.
  std::string definition(const Tensor& t) const {
    return std::visit([&](const auto& d) { return call(t, d); }, t.definition);
  }

  std::string call(const Tensor&, const Pointwise& d) const {
    // If a select has only numbers to select from, they need a dtype; else torch's default would
    // apply.
    const bool typed =
        row(d.op).rule == ResultRule::Condition && !d.args[1].tensor && !d.args[2].tensor;
    std::vector<std::string> args;
    for (const Operand& a : d.args)
      args.push_back(a.tensor ? text("T", a.tensor->id) : scalar(a.scalar, typed));
    return text("fd.ops.", row(d.op).name, "(", joined(args), ")");
  }

  std::string call(const Tensor& t, const Cast& d) const {
    return text("fd.ops.cast(T", d.arg->id, ", dtype=", dtype_text(t.dtype), ")");
  }

  std::string call(const Tensor& t, const Full& d) const {
    return text("fd.ops.full(shape=", shape(t.shape), ", fill_value=", scalar(d.value),
                ", dtype=", dtype_text(t.dtype), ")");
  }

  // The argument of a movement op as it is written.
  std::string written(const std::vector<bool>& flags) const { return bools(flags); }
  std::string written(bool flag) const { return flag ? "True" : "False"; }
  std::string written(int64_t number) const { return std::to_string(number); }
  std::string written(const std::vector<int64_t>& numbers) const {
    return text("[", joined(numbers), "]");
  }
  std::string written(Expr e) const { return scalar(e); }
  std::string written(const std::vector<Expr>& list) const { return shape(list); }

  template <MovementOp D>
  std::string call(const Tensor&, const D& d) const {
    std::string arguments;
    visit_fields(d, [&](const auto& field, const auto& value) {
      if (!field.optional || !is_default(value))
        arguments += text(", ", field.name, "=", written(value));
    });
    return text("fd.ops.", D::name, "(T", d.arg->id, arguments, ")");
  }

  std::string call(const Tensor& t, const Reduction& d) const {
    // The methods of reductions that select give half types, by a cast that stands in the
    // definition.
    const bool before_cast = row(d.op).selects() && t.dtype != d.arg->dtype;
    const std::string call = row(d.op).results() > 1 || before_cast
                                 ? text("reduction(\"", row(d.op).name, "\", ")
                                 : text(row(d.op).name, "(");
    return text("fd.ops.", call, "T", d.arg->id, ", dims=[", joined(d.dims),
                d.identity ? "], identity=True)" : "])");
  }

  std::string call(const Tensor&, const Result& d) const {
    return text("fd.ops.result(T", d.of->id, ", ", d.index, ")");
  }

  std::string call(const Tensor& t, const Iota&) const {
    return text("fd.ops.iota(", scalar(t.shape[0]), ")");
  }

  std::string call(const Tensor&, const TakeAlongAxis& d) const {
    return text("fd.ops.", d.same_sizes ? "gather" : "take_along_axis", "(T", d.arg->id, ", T",
                d.index->id, ", dim=", d.dim, ")");
  }

  std::string call(const Tensor&, const Pad& d) const {
    std::vector<std::string> widths;  // innermost dim first
    for (size_t i = d.before.size(); i-- > 0;) {
      widths.push_back(scalar(d.before[i]));
      widths.push_back(scalar(d.after[i]));
    }
    return text("fd.ops.pad(T", d.arg->id, ", pad_widths=[", joined(widths),
                "], value=", scalar(d.value), ")");
  }

  std::string call(const Tensor&, const Cat& d) const {
    std::vector<std::string> args;
    for (const Tensor* a : d.args) args.push_back(text("T", a->id));
    return text("fd.ops.cat([", joined(args), "], dim=", d.dim, ")");
  }

  std::string call(const Tensor&, const std::monostate&) const { return {}; }
};

}  // namespace

std::vector<Expr> written_scalars(const Tensor& t) {
  std::vector<Expr> out;
  const auto all = [&](const std::vector<Expr>& list) {
    out.insert(out.end(), list.begin(), list.end());
  };
  std::visit(
      [&](const auto& d) {
        using D = std::decay_t<decltype(d)>;
        if constexpr (std::is_same_v<D, Full>) {
          out.push_back(d.value);
          all(t.shape);
        } else if constexpr (std::is_same_v<D, Iota>) {
          all(t.shape);
        } else if constexpr (MovementOp<D>) {
          visit_fields(d, [&]<class T>(const auto&, const T& value) {
            if constexpr (std::is_same_v<T, Expr>) out.push_back(value);
            if constexpr (std::is_same_v<T, std::vector<Expr>>) all(value);
          });
        } else if constexpr (std::is_same_v<D, Pad>) {
          all(d.before);
          all(d.after);
          out.push_back(d.value);
        } else if constexpr (std::is_same_v<D, Pointwise>) {
          for (const Operand& a : d.args)
            if (a.scalar) out.push_back(a.scalar);
        } else if constexpr (std::is_same_v<D, Library>) {
          for (Expr e : d.given)
            if (e) out.push_back(e);
        } else {
          static_assert(std::is_same_v<D, Input> || std::is_same_v<D, Cast> ||
                            std::is_same_v<D, Reduction> || std::is_same_v<D, Result> ||
                            std::is_same_v<D, TakeAlongAxis> || std::is_same_v<D, Cat> ||
                            std::is_same_v<D, std::monostate>,
                        "written_scalars() misses an op");
        }
      },
      t.definition);
  return out;
}

std::vector<const Tensor*> operands(const Tensor& tensor) {
  return std::visit(
      [](const auto& d) -> std::vector<const Tensor*> {
        using D = std::decay_t<decltype(d)>;
        std::vector<const Tensor*> out;
        if constexpr (std::is_same_v<D, Pointwise>) {
          for (const Operand& a : d.args)
            if (a.tensor) out.push_back(a.tensor);
        } else if constexpr (std::is_same_v<D, Result>) {
          out.push_back(d.of);
        } else if constexpr (std::is_same_v<D, TakeAlongAxis>) {
          out = {d.arg, d.index};
        } else if constexpr (std::is_same_v<D, Cat> || std::is_same_v<D, Library>) {
          out = d.args;
        } else if constexpr (requires { d.arg; }) {
          out.push_back(d.arg);
        } else {
          static_assert(std::is_same_v<D, Input> || std::is_same_v<D, Full> ||
                            std::is_same_v<D, Iota> || std::is_same_v<D, std::monostate>,
                        "operands() misses an op");
        }
        return out;
      },
      tensor.definition);
}

namespace {

#define FUSER_TENSOR_OP(name, text) \
  [[maybe_unused]] const char* text_of(const name&) { return text; }
#include "ir/tensor_ops.def"
#undef FUSER_TENSOR_OP
const char* text_of(const std::monostate&) { return ""; }

}  // namespace

const char* name_of(const Definition& definition) {
  return std::visit(
      []<class D>(const D& d) {
        if constexpr (MovementOp<D>)
          return D::name;
        else
          return text_of(d);
      },
      definition);
}

const Tensor* library_call(const Tensor& tensor) {
  const auto* result = std::get_if<Result>(&tensor.definition);
  const Tensor* first = result ? result->of : &tensor;
  return std::holds_alternative<Library>(first->definition) ? first : nullptr;
}

std::string describe(const Tensor& t) {
  std::vector<std::string> sizes;
  for (Expr e : t.shape) sizes.push_back(to_string(e));
  return text(row(t.dtype).torch, "[", joined(sizes), "]");
}

std::string to_python(const Fusion& fusion) {
  Printer print(fusion);
  for (const Tensor& t : fusion.tensors) print.statement(t);
  print.arguments_before(fusion.arguments.size());
  print.random_state();
  for (const Output& o : fusion.outputs) {
    print.out += text("    fd.add_output(T", o.tensor->id);
    if (o.alias >= 0) print.out += text(", alias_input=T", fusion.inputs[o.alias]->id);
    print.out += ")\n";
  }
  return "def nvfuser_fusion(fd: FusionDefinition) -> None:\n" +
         (print.out.empty() ? "    pass\n" : print.out);
}

std::string structure(const Fusion& fusion) { return to_python(fusion); }

}  // namespace fuser::ir
