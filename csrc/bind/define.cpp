// fusion/build/define.h: the functions that add ops to a definition, on handles
#include "fusion/build/define.h"

#include <pybind11/stl.h>

#include <algorithm>

#include "base/error.h"
#include "bind/bind.h"
#include "bind/handles.h"
#include "bind/text.h"
#include "fusion/build/rebuild.h"
#include "fusion/build/rules.h"

namespace py = pybind11;

namespace fuser::bind {

using namespace fusion;
using namespace ir;

namespace {

// Converts a size or bound of any integer type to int64.
Expr to_size(Builder& builder, py::handle value, Where where) {
  const Expr size = to_scalar(builder, value, where);
  return kind_of(size->dtype) == Kind::Int ? builder.exprs.cast(DType::Int64, size) : size;
}

std::vector<Expr> to_sizes(Builder& builder, const py::sequence& shape, const char* call) {
  std::vector<Expr> sizes;
  for (size_t d = 0; d < shape.size(); ++d)
    sizes.push_back(to_size(builder, py::object(shape[d]), {call, "size", static_cast<int>(d)}));
  return sizes;
}

const Tensor* argument(const BuilderRef& builder, const TensorHandle& value, const char* call) {
  check_open(*builder);
  return to_tensor(*builder, value, {call, "arg"});
}

std::vector<const Tensor*> arguments(const BuilderRef& builder,
                                     const std::vector<TensorHandle>& values, const char* call) {
  check_open(*builder);
  std::vector<const Tensor*> args;
  for (const TensorHandle& v : values) args.push_back(to_tensor(*builder, v, {call, "arg"}));
  return args;
}

// Converts the value of an argument of a movement op.
template <class T>
void convert(Builder& builder, const char* call, const char* name, py::handle value, T& out) {
  if constexpr (std::is_same_v<T, Expr>) {
    out = to_size(builder, value, {call, name});
    return;
  }
  try {
    if constexpr (std::is_same_v<T, std::vector<Expr>>)
      out = to_sizes(builder, value.cast<py::sequence>(), call);
    else
      out = value.cast<T>();
  } catch (const py::cast_error&) {
    throw py::type_error(text(call, "(): ", name, ": unexpected value ", to_text(py::repr(value))));
  }
}

// Returns the movement op of this name with these arguments, without its operand.
Movement movement_op(Builder& builder, const std::string& name, const py::args& values) {
  std::optional<Movement> made;
  visit_movement_ops([&]<class D>() {
    if (name != D::name) return;
    D op;
    size_t next = 0;
    visit_fields(op, [&](const auto& field, auto& value) {
      FUSER_ASSERT(next < values.size(), name, "() lacks ", field.name);
      convert(builder, D::name, field.name, values[next++], value);
    });
    FUSER_ASSERT(next == values.size(), name, "() has ", next, " arguments, got ", values.size());
    made = std::move(op);
  });
  FUSER_ASSERT(made, "there is no movement op ", name);
  return *std::move(made);
}

ReduceOp reduction_op(const std::string& name) {
  ReduceOp op{};
  FUSER_CHECK(find_reduction(name, op), User, "reduction-1", "reduction(): unknown reduction ",
              name);
  return op;
}

LibraryOp library_op(const std::string& name) {
  LibraryOp op{};
  FUSER_CHECK(find_library_op(name, op), User, "library-1", "library(): unknown library op ", name);
  return op;
}

int64_t held_attribute(LibraryOp op, const LibraryAttribute& wanted, const py::object& value) {
  using Kind = LibraryAttribute::Kind;
  try {
    switch (wanted.kind) {
      case Kind::Int:
        return value.cast<int64_t>();
      case Kind::Bool:
        return value.cast<bool>();
      case Kind::Real:
        return held(value.cast<double>());
      case Kind::Type:
        return static_cast<int64_t>(value.cast<DType>());
    }
  } catch (const py::cast_error&) {
  }
  throw Fault(FaultKind::User, "library-3",
              text(row(op).name, "(): ", wanted.name, ": got ",
                   to_text(py::type::of(value).attr("__name__")), ", expected ",
                   wanted.kind == Kind::Int    ? "an integer"
                   : wanted.kind == Kind::Bool ? "a bool"
                   : wanted.kind == Kind::Real ? "a number"
                                               : "a DataType"));
}

// Returns the values of a call's attributes, one per attribute of the row. The second list holds
// the attributes that are scalars of the run.
std::pair<std::vector<int64_t>, std::vector<Expr>> held_attributes(Builder& builder, LibraryOp op,
                                                                   const py::sequence& values) {
  const std::vector<LibraryAttribute> wanted = attributes_of(op);
  std::vector<int64_t> numbers(wanted.size(), 0);
  std::vector<Expr> given(wanted.size(), nullptr);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const py::object value = values[i];
    if (py::isinstance<ScalarHandle>(value))
      given[i] = to_scalar(builder, value, {row(op).name, "attribute", static_cast<int>(i)});
    else
      numbers[i] = held_attribute(op, wanted[i], value);
  }
  return {std::move(numbers), std::move(given)};
}

int input_index(const Fusion& fusion, const Tensor* alias, const Tensor* output) {
  const int input = input_of(fusion, *alias);
  FUSER_CHECK(input >= 0, User, "alias-4", "add_output(t", output->id, ", t", alias->id,
              "): expected an input tensor as alias_input\n  t", alias->id, ": ", describe(*alias),
              alias->location.empty() ? "" : "  defined at " + alias->location);
  return input;
}

// Returns the tensor that was last written into an input, or the input itself.
TensorHandle written(const BuilderRef& builder, const TensorHandle& input) {
  const Tensor* t = to_tensor(*builder, input, {"written", "input"});
  const int index = input_of(*builder, *t);
  const Tensor* last = index < 0 ? nullptr : written_into(*builder, index);
  return {builder, last ? last : t};
}

py::object cast_operand(const BuilderRef& builder, py::handle value, DType dtype) {
  check_open(*builder);
  const Operand arg = to_operand(*builder, value, {"cast", "arg"});
  if (arg.tensor)
    return py::cast(TensorHandle{builder, cast(*builder, arg.tensor, dtype, user_line())});
  const Kind to = kind_of(dtype);
  FUSER_CHECK(
      kind_of(arg.scalar->dtype) != Kind::Complex || to == Kind::Complex || to == Kind::Bool, DType,
      "cast-1", "cast(", ir::to_string(arg.scalar), ", ", row(dtype).torch,
      "): casting complex to real discards the imaginary part\n  hint: use fd.ops.real(...) first");
  return py::cast(ScalarHandle{builder, builder->exprs.cast(dtype, arg.scalar)});
}

// Binds tensors and scalars that are not results of ops.
void bind_leaves(py::module_& m) {
  m.def(
      "define_tensor",
      [](const BuilderRef& builder, const std::vector<int64_t>& shape,
         std::vector<std::optional<bool>> contiguity, DType dtype, bool is_cpu,
         std::vector<int64_t> stride_order) {
        check_open(*builder);
        Input input{.contiguity = std::move(contiguity),
                    .stride_order = std::move(stride_order),
                    .is_cpu = is_cpu};
        return TensorHandle{builder,
                            define_tensor(*builder, shape, dtype, std::move(input), user_line())};
      },
      py::arg("builder"), py::arg("shape"), py::arg("contiguity"), py::arg("dtype"),
      py::arg("is_cpu"), py::arg("stride_order"));
  m.def(
      "define_scalar",
      [](const BuilderRef& builder, DType dtype) {
        check_open(*builder);
        return ScalarHandle{builder, define_scalar(*builder, dtype)};
      },
      py::arg("builder"), py::arg("dtype"));
  m.def(
      "random_state",
      [](const BuilderRef& builder, int64_t ops) {
        check_open(*builder);
        const auto [seed, offset] = take_random(*builder, ops);
        return std::pair(ScalarHandle{builder, seed}, ScalarHandle{builder, offset});
      },
      py::arg("builder"), py::arg("ops"));
  m.def(
      "constant",
      [](const BuilderRef& builder, py::handle value, std::optional<DType> dtype) {
        check_open(*builder);
        const Expr number = to_scalar(*builder, value, {"define_scalar", "value"});
        if (dtype) rules::check_value("define_scalar()", number, *dtype);
        return ScalarHandle{builder, dtype ? builder->exprs.cast(*dtype, number) : number};
      },
      py::arg("builder"), py::arg("value"), py::arg("dtype"));
  m.def(
      "full",
      [](const BuilderRef& builder, const py::sequence& shape, py::handle value, DType dtype) {
        check_open(*builder);
        const std::vector<Expr> sizes = to_sizes(*builder, shape, "full");
        const Expr fill = to_scalar(*builder, value, {"full", "fill_value"});
        return TensorHandle{builder, full(*builder, sizes, fill, dtype, user_line())};
      },
      py::arg("builder"), py::arg("shape"), py::arg("fill_value"), py::arg("dtype"));
  m.def(
      "iota",
      [](const BuilderRef& builder, py::handle length) {
        check_open(*builder);
        const Expr n = to_size(*builder, length, {"iota", "length"});
        return TensorHandle{builder, iota(*builder, n, user_line())};
      },
      py::arg("builder"), py::arg("length"));
}

void bind_elementwise(py::module_& m) {
  m.def(
      "pointwise",
      [](const BuilderRef& builder, int op, const py::args& args) {
        const std::vector<py::handle> operands(args.begin(), args.end());
        return apply(builder, static_cast<Op>(op), operands);
      },
      py::arg("builder"), py::arg("op"),
      "Applies op number `op` of op_rows() to tensors, scalars and numbers.");
  m.def(
      "common_dtype",
      [](const BuilderRef& builder, const py::args& values) -> std::optional<DType> {
        std::vector<Operand> operands;
        for (py::handle value : values)
          if (is_operand(value))
            operands.push_back(to_operand(*builder, value, {"common_dtype", "operand"}));
        if (operands.empty()) return std::nullopt;
        return common_dtype(operands);
      },
      py::arg("builder"),
      "Returns the compute type of the operands, or None if no operand is a tensor, Scalar or "
      "number.");
  m.def("cast", &cast_operand, py::arg("builder"), py::arg("arg"), py::arg("dtype"));
}

// Binds ops that change dims and keep elements.
void bind_dims(py::module_& m) {
  m.def(
      "movement",
      [](const BuilderRef& builder, const std::string& op, const TensorHandle& arg,
         const py::args& values) {
        const Tensor* t = argument(builder, arg, op.c_str());
        Movement made = movement_op(*builder, op, values);
        std::visit([&](auto& d) { d.arg = t; }, made);
        return TensorHandle{builder, movement(*builder, std::move(made), user_line())};
      },
      py::arg("builder"), py::arg("op"), py::arg("arg"),
      "Applies the movement op of this name (csrc/ir/movement.h) with its arguments in order.");
  m.def(
      "broadcast_in_dim",
      [](const BuilderRef& builder, const TensorHandle& arg, const py::sequence& shape,
         const std::vector<int64_t>& broadcast_dims) {
        const Tensor* t = argument(builder, arg, "broadcast_in_dim");
        const std::vector<Expr> sizes = to_sizes(*builder, shape, "broadcast_in_dim");
        return TensorHandle{builder,
                            broadcast_in_dim(*builder, t, sizes, broadcast_dims, user_line())};
      },
      py::arg("builder"), py::arg("arg"), py::arg("shape"), py::arg("broadcast_dims"));
  m.def(
      "dim_of",
      [](const TensorHandle& arg, const std::string& op, int64_t dim, int more) {
        std::string rule = op + "-dim";
        std::replace(rule.begin(), rule.end(), '_', '-');
        return rules::dim_of(text(op, "(t", arg.tensor->id, ")"), rule, *arg.tensor, dim, more);
      },
      py::arg("arg"), py::arg("op"), py::arg("dim"), py::arg("more") = 0,
      "Returns the dim counted from the front, for a result with `more` dims than `arg`. Raises "
      "ShapeError `<op>-dim`.");
}

// Binds ops that move elements.
void bind_moves(py::module_& m) {
  m.def(
      "pad",
      [](const BuilderRef& builder, const TensorHandle& arg, const py::sequence& before,
         const py::sequence& after, py::handle value) {
        const Tensor* t = argument(builder, arg, "pad");
        const std::vector<Expr> low = to_sizes(*builder, before, "pad");
        const std::vector<Expr> high = to_sizes(*builder, after, "pad");
        const Expr fill = to_scalar(*builder, value, {"pad", "value"});
        return TensorHandle{builder, pad(*builder, t, low, high, fill, user_line())};
      },
      py::arg("builder"), py::arg("arg"), py::arg("before"), py::arg("after"), py::arg("value"));
  m.def(
      "cat",
      [](const BuilderRef& builder, const std::vector<TensorHandle>& tensors, int64_t dim) {
        const std::vector<const Tensor*> args = arguments(builder, tensors, "cat");
        return TensorHandle{builder, cat(*builder, args, dim, user_line())};
      },
      py::arg("builder"), py::arg("tensors"), py::arg("dim"));
  m.def(
      "take_along_axis",
      [](const BuilderRef& builder, const TensorHandle& arg, const TensorHandle& index, int64_t dim,
         bool same_sizes) {
        const char* call = same_sizes ? "gather" : "take_along_axis";
        const Tensor* t = argument(builder, arg, call);
        const Tensor* at = to_tensor(*builder, index, {call, "index"});
        return TensorHandle{builder,
                            take_along_axis(*builder, t, at, dim, same_sizes, user_line())};
      },
      py::arg("builder"), py::arg("arg"), py::arg("index"), py::arg("dim"), py::arg("same_sizes"));
}

void bind_reductions(py::module_& m) {
  m.def(
      "reduce",
      [](const BuilderRef& builder, const std::string& op, const TensorHandle& arg,
         const std::vector<int64_t>& dims, bool identity) {
        const Tensor* t = argument(builder, arg, "reduction");
        return TensorHandle{
            builder, reduce_in_turn(*builder, reduction_op(op), t, dims, identity, user_line())};
      },
      py::arg("builder"), py::arg("op"), py::arg("arg"), py::arg("dims"), py::arg("identity"));
  m.def(
      "result",
      [](const BuilderRef& builder, const TensorHandle& of, int index) {
        check_open(*builder);
        const Tensor* t = to_tensor(*builder, of, {"result", "of"});
        return TensorHandle{builder, result(*builder, t, index, user_line())};
      },
      py::arg("builder"), py::arg("of"), py::arg("index"));
}

void bind_library(py::module_& m) {
  m.def(
      "library",
      [](const BuilderRef& builder, const std::string& op, const std::vector<TensorHandle>& tensors,
         const py::sequence& attributes) {
        const std::vector<const Tensor*> args = arguments(builder, tensors, "library");
        const LibraryOp wanted = library_op(op);
        auto [numbers, given] = held_attributes(*builder, wanted, attributes);
        return TensorHandle{
            builder, library(*builder, wanted, args, numbers, std::move(given), user_line())};
      },
      py::arg("builder"), py::arg("op"), py::arg("tensors"), py::arg("attributes"));
  m.def(
      "library_attributes",
      [](const std::string& op) {
        std::vector<std::string> names;
        for (const LibraryAttribute& a : attributes_of(library_op(op))) names.emplace_back(a.name);
        return names;
      },
      py::arg("op"), "Names of the attributes of a library op, in order.");
  m.def(
      "library_ops",
      [] {
        std::vector<std::string> names;
        for (const LibraryRow& r : library_rows()) names.emplace_back(r.name);
        return names;
      },
      "Names of all library ops.");
}

}  // namespace

void bind_define(py::module_& m) {
  m.def("skip_frames_in", &skip_frames_in, py::arg("folder"),
        "Excludes files under this path when a definition records the user's line.");
  bind_leaves(m);
  bind_elementwise(m);
  bind_dims(m);
  bind_moves(m);
  bind_reductions(m);
  bind_library(m);
  m.def("size", &size, py::arg("builder"), py::arg("arg"), py::arg("dim"));
  m.def("shape", &shape, py::arg("builder"), py::arg("arg"));
  m.def(
      "add_output",
      [](const BuilderRef& builder, const TensorHandle& output,
         const std::optional<TensorHandle>& alias) {
        check_open(*builder);
        const Tensor* t = to_tensor(*builder, output, {"add_output", "output"});
        const Tensor* target =
            alias ? to_tensor(*builder, *alias, {"add_output", "alias_input"}) : nullptr;
        add_output(*builder, t, target ? input_index(*builder, target, t) : -1);
      },
      py::arg("builder"), py::arg("output"), py::arg("alias_input"));
  m.def("written", &written, py::arg("builder"), py::arg("input"));
  m.def(
      "specialize",
      [](const Fusion& fusion, const std::vector<std::vector<bool>>& ones) {
        return std::make_shared<Fusion>(specialize(fusion, ones));
      },
      py::arg("fusion"), py::arg("ones"),
      "Returns the definition with size 1 for the symbolic dims flagged in ones[input][dim].");
}

}  // namespace fuser::bind
