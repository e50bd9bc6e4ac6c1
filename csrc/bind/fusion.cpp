// ir/fusion.h: definitions and their tensors as Python objects
#include "ir/fusion.h"

#include <pybind11/stl.h>

#include <cctype>
#include <string_view>

#include "base/error.h"
#include "bind/bind.h"
#include "bind/handles.h"
#include "bind/text.h"

namespace py = pybind11;

namespace fuser::bind {

using namespace fusion;
using namespace ir;

namespace {

struct Operator {
  const char* name;
  const char* reflected;  // nullptr: Python swaps comparisons itself
  Op op;
};
constexpr Operator binary_operators[] = {
    {"__add__", "__radd__", Op::add},
    {"__sub__", "__rsub__", Op::sub},
    {"__mul__", "__rmul__", Op::mul},
    {"__truediv__", "__rtruediv__", Op::truediv},
    {"__floordiv__", "__rfloordiv__", Op::floor_divide},
    {"__mod__", "__rmod__", Op::remainder},
    {"__pow__", "__rpow__", Op::pow},
    {"__and__", "__rand__", Op::bitwise_and},
    {"__or__", "__ror__", Op::bitwise_or},
    {"__xor__", "__rxor__", Op::bitwise_xor},
    {"__lshift__", "__rlshift__", Op::bitwise_left_shift},
    {"__rshift__", "__rrshift__", Op::bitwise_right_shift},
    {"__eq__", nullptr, Op::eq},
    {"__ne__", nullptr, Op::ne},
    {"__lt__", nullptr, Op::lt},
    {"__le__", nullptr, Op::le},
    {"__gt__", nullptr, Op::gt},
    {"__ge__", nullptr, Op::ge},
};
constexpr std::pair<const char*, Op> unary_operators[] = {{"__neg__", Op::neg},
                                                          {"__pos__", Op::set},
                                                          {"__abs__", Op::abs},
                                                          {"__invert__", Op::bitwise_not}};

template <class Handle>
py::object operate(Op op, py::handle self, py::handle left, py::handle right) {
  const py::handle args[] = {left, right};
  for (py::handle arg : args)
    if (!is_operand(arg)) return py::reinterpret_borrow<py::object>(Py_NotImplemented);
  return apply(self.cast<const Handle&>().builder, op, args);
}

// Binds the operators, which are elementwise, including == and !=. Therefore a handle hashes by its
// identity and has no truth value.
template <class Handle>
void bind_operators(py::class_<Handle>& type, const char* what) {
  for (const Operator& o : binary_operators) {
    type.def(o.name,
             [op = o.op](py::handle a, py::handle b) { return operate<Handle>(op, a, a, b); });
    if (o.reflected)
      type.def(o.reflected,
               [op = o.op](py::handle a, py::handle b) { return operate<Handle>(op, a, b, a); });
  }
  for (const auto& [name, op] : unary_operators)
    type.def(name, [op = op](py::handle a) {
      return apply(a.cast<const Handle&>().builder, op, {&a, 1});
    });
  type.def("__hash__", [](py::handle self) { return reinterpret_cast<intptr_t>(self.ptr()) >> 4; });
  type.def("__bool__", [what](py::handle self) -> bool {
    throw Fault(
        FaultKind::User, "truth-1",
        text(to_text(py::repr(self)), ": ", what,
             " of a definition has no truth value: it is known only at run time\n"
             "  hint: fd.ops.where(condition, x, y) selects by value; `is` compares handles"));
  });
  type.attr("__array_ufunc__") = py::none();  // numpy scalars leave `number * handle` to the handle
}

py::object number(DType dtype, const Number& value) {
  switch (kind_of(dtype)) {
    case Kind::Bool:
      return py::bool_(value.integer != 0);
    case Kind::Int:
      return py::int_(value.integer);
    case Kind::Float:
      return py::float_(value.real);
    case Kind::Complex:
      break;
  }
  return py::reinterpret_steal<py::object>(PyComplex_FromDoubles(value.real, value.imag));
}

#define FUSER_TENSOR_OP(name, text) \
  const char* struct_name(const name&) { return #name; }
#include "ir/tensor_ops.def"
#undef FUSER_TENSOR_OP
const char* struct_name(const std::monostate&) { return ""; }

// Returns the kind of the definition: "SplitDim" for split_dim.
std::string kind_name(const Definition& definition) {
  return std::visit(
      []<class D>(const D& d) -> std::string {
        if constexpr (MovementOp<D>) {
          std::string kind;
          bool begins = true;
          for (const char c : std::string_view(D::name)) {
            if (c != '_') kind += begins ? static_cast<char>(std::toupper(c)) : c;
            begins = c == '_';
          }
          return kind;
        } else {
          return struct_name(d);
        }
      },
      definition);
}

// Returns the requested sizes of a tensor: -1 in an expand keeps the size of its operand.
const std::vector<Expr>& wanted_shape(const Tensor& t) {
  const auto* expand = std::get_if<Expand>(&t.definition);
  return expand ? expand->shape : t.shape;
}

// Returns the scalars that must be known before the tensor can be computed.
std::vector<Expr> scalars_of(const Tensor& t) {
  std::vector<Expr> out = wanted_shape(t);
  const std::vector<Expr> written = written_scalars(t);
  out.insert(out.end(), written.begin(), written.end());
  return out;
}

// The definition as plain Python data, operands before their users; see Fusion.records.
struct Records {
  const Fusion& fusion;
  std::unordered_map<Expr, int> places{};

  py::list scalars() {
    std::vector<Expr> roots;
    for (const Tensor& t : fusion.tensors) {
      const std::vector<Expr> mine = scalars_of(t);
      roots.insert(roots.end(), mine.begin(), mine.end());
    }
    py::list records;
    visit(roots, [&](Expr e) {
      records.append(scalar(e));
      places.emplace(e, static_cast<int>(places.size()));
    });
    return records;
  }

  py::tuple scalar(Expr e) const {
    switch (e->kind) {
      case ExprNode::Kind::Constant:
        return py::make_tuple("constant", e->dtype, number(e->dtype, e->value));
      case ExprNode::Kind::Cast:
        return py::make_tuple("cast", e->dtype, places.at(e->args[0]));
      case ExprNode::Kind::Apply: {
        py::list args;
        for (Expr a : e->operands()) args.append(places.at(a));
        return py::make_tuple("apply", e->dtype, row(e->op).name, compute_dtype(e), args);
      }
      case ExprNode::Kind::Symbol:
        if (e->symbol == Symbol::Scalar || e->symbol == Symbol::RngOffset)
          return py::make_tuple("input", e->dtype, e->a);
        if (e->symbol == Symbol::Extent) return py::make_tuple("size", e->dtype, e->a, e->b);
        return py::make_tuple("size", e->dtype, fusion.inputs[e->a]->id, e->b);
      case ExprNode::Kind::Element:
        break;
    }
    FUSER_ASSERT(false, "a definition holds ", ir::to_string(e));
    return py::tuple();
  }

  std::vector<int> all_places(const std::vector<Expr>& list) const {
    std::vector<int> out;
    for (Expr e : list) out.push_back(places.at(e));
    return out;
  }

  py::dict tensor(const Tensor& t) const {
    py::dict record;
    py::list shape;
    for (Expr e : wanted_shape(t)) shape.append(places.at(e));
    record["id"] = t.id;
    record["kind"] = kind_name(t.definition);
    record["dtype"] = t.dtype;
    record["shape"] = shape;
    record["scalars"] = all_places(scalars_of(t));
    record["location"] = t.location;
    record["composite"] = t.composite;
    py::list read;
    for (const Tensor* a : operands(t)) read.append(a->id);
    record["operands"] = read;
    std::visit([&](const auto& d) { add_definition(record, d); }, t.definition);
    return record;
  }

  // Adds the op's arguments besides its operands.
  template <class D>
  void add_definition(py::dict& record, const D& d) const {
    if constexpr (requires { d.arg; }) record["arg"] = d.arg->id;
    if constexpr (MovementOp<D>) add_fields(record, d);
    if constexpr (std::is_same_v<D, Reduction>) record["dims"] = d.dims;
    if constexpr (std::is_same_v<D, TakeAlongAxis> || std::is_same_v<D, Cat>) record["dim"] = d.dim;
    if constexpr (std::is_same_v<D, Full>) record["value"] = places.at(d.value);
    if constexpr (std::is_same_v<D, Pointwise>) {
      py::list args;  // (is it a tensor?, id or index)
      for (const Operand& a : d.args)
        args.append(
            py::make_tuple(a.tensor != nullptr, a.tensor ? a.tensor->id : places.at(a.scalar)));
      record["args"] = args;
    }
    if constexpr (std::is_same_v<D, Pad>) {
      record["before"] = all_places(d.before);
      record["after"] = all_places(d.after);
      record["value"] = places.at(d.value);
    }
    if constexpr (requires { d.compute; }) {
      record["op"] = row(d.op).name;
      record["compute"] = d.compute;
    }
    if constexpr (std::is_same_v<D, Library>) {
      record["op"] = row(d.op).name;
      record["attributes"] = attributes(d);
      py::dict given;
      for (size_t i = 0; i < d.given.size(); ++i)
        if (d.given[i]) given[py::str(attributes_of(d.op)[i].name)] = places.at(d.given[i]);
      record["given"] = given;
    }
    if constexpr (std::is_same_v<D, Reduction>) {
      record["identity"] = d.identity;
      record["selects"] = row(d.op).selects();
      record["takes_positions"] = row(d.op).takes_positions();
      record["adds"] = row(d.op).adds();
      record["rounds"] = row(d.op).rounds();
    }
    if constexpr (std::is_same_v<D, Result>) record["index"] = d.index;
    if constexpr (std::is_same_v<D, TakeAlongAxis>) {
      record["index"] = d.index->id;
      record["same_sizes"] = d.same_sizes;
    }
  }

  // Adds the arguments of a movement op, and the names of these arguments: all of them, and those
  // that are scalars.
  template <MovementOp D>
  void add_fields(py::dict& record, const D& d) const {
    py::list names, scalars;
    visit_fields(d, [&]<class T>(const auto& field, const T& value) {
      names.append(field.name);
      if constexpr (std::is_same_v<T, Expr> || std::is_same_v<T, std::vector<Expr>>)
        scalars.append(field.name);
      if constexpr (std::is_same_v<T, Expr>)
        record[field.name] = places.at(value);
      else if constexpr (std::is_same_v<T, std::vector<Expr>>)
        record[field.name] = all_places(value);
      else
        record[field.name] = value;
    });
    record["op"] = D::name;
    record["fields"] = names;
    record["scalar_fields"] = scalars;
  }

  static py::dict attributes(const Library& d) {
    const auto wanted = attributes_of(d.op);
    py::dict out;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const auto& [name, kind] = wanted[i];
      const int64_t held = d.attributes[i];
      out[py::str(name)] = kind == LibraryAttribute::Kind::Real ? py::cast(real_of(held))
                           : kind == LibraryAttribute::Kind::Type
                               ? py::cast(static_cast<DType>(held))
                               : py::cast(held);
    }
    return out;
  }
};

py::dict records(const Fusion& fusion) {
  Records of{fusion};
  py::dict out;
  out["scalars"] = of.scalars();
  py::list tensors, arguments, outputs;
  for (const Tensor& t : fusion.tensors) tensors.append(of.tensor(t));
  for (const Argument& a : fusion.arguments)
    arguments.append(py::make_tuple(
        a.is_tensor, a.is_tensor ? fusion.inputs[a.index]->id : a.index,
        a.is_tensor ? fusion.inputs[a.index]->dtype : fusion.scalars[a.index].dtype));
  for (const Output& o : fusion.outputs) {
    if (o.superseded) continue;
    const Tensor* value = o.input < 0 ? o.tensor : written_into(fusion, o.input);
    outputs.append(py::make_tuple(value->id, o.alias < 0 ? -1 : fusion.inputs[o.alias]->id));
  }
  py::list nonempty;
  for (const NonEmpty& n : fusion.nonempty)
    nonempty.append(py::make_tuple(n.op, n.axis, n.tensor->id));
  out["nonempty"] = nonempty;
  out["tensors"] = tensors;
  out["arguments"] = arguments;
  out["random"] = py::make_tuple(fusion.random.seed, fusion.random.offset, fusion.random.ops);
  out["outputs"] = outputs;
  return out;
}

py::list inputs(const BuilderRef& builder) {
  py::list handles;
  for (const Argument& a : builder->arguments) {
    if (a.is_tensor)
      handles.append(TensorHandle{builder, builder->inputs[a.index]});
    else
      handles.append(ScalarHandle{builder, builder->scalars[a.index].symbol});
  }
  return handles;
}

std::vector<TensorHandle> tensors(const BuilderRef& builder) {
  std::vector<TensorHandle> handles;
  for (const Tensor& t : builder->tensors) handles.push_back({builder, &t});
  return handles;
}

std::vector<TensorHandle> outputs(const BuilderRef& builder) {
  std::vector<TensorHandle> handles;
  for (const Output& o : builder->outputs) handles.push_back({builder, o.tensor});
  return handles;
}

void bind_definitions(py::module_& m) {
  py::class_<Fusion, std::shared_ptr<Fusion>>(m, "Fusion", "A graph of tensors to compute.")
      .def("to_python", &to_python, "Returns Python source that rebuilds the definition.")
      .def(
          "structure", [](const Fusion& f) { return py::bytes(structure(f)); },
          "Returns canonical bytes: two definitions are equal if and only if their bytes are.")
      .def("records", &records,
           "Returns plain data: scalars (kind, dtype, ...), tensors (dicts), arguments (is_tensor, "
           "id or index, dtype), random (scalars of seed and offset or -1, number of ops), outputs "
           "(id, id of the overwritten input or -1) and nonempty (op, axis, id of a tensor whose "
           "axis must not have size 0). Operands are ids of tensors or indices into `scalars`. "
           "Superseded in-place outputs are omitted; an output that is also written into an input "
           "has the input's final value.");
  py::class_<Builder, Fusion, BuilderRef>(m, "Builder", "A Fusion under construction.")
      .def(py::init<>())
      .def(
          "seal", [](Builder& b) { b.sealed = true; }, "Makes the definition immutable.")
      .def_readonly("sealed", &Builder::sealed)
      .def_readwrite("composite", &Builder::composite,
                     "Composite op that records the following statements, for names of kernels.")
      .def("inputs", &inputs, "Tensors and symbolic scalars in the order of execute()'s list.")
      .def("tensors", &tensors, "All tensors in the order of definition.")
      .def("outputs", &outputs,
           "All outputs in the order of add_output(), including in-place outputs.");
}

void bind_tensor(py::module_& m) {
  py::class_<TensorHandle> tensor(
      m, "Tensor", "A tensor of a definition. Its operators are elementwise, as in torch.");
  tensor
      .def_property_readonly(
          "id", [](const TensorHandle& t) { return t.tensor->id; }, "Creation order.")
      .def_property_readonly("ndim", [](const TensorHandle& t) { return t.tensor->rank(); })
      .def(
          "is_tensor", [](const TensorHandle&) { return true; },
          "True for a Tensor, False for a Scalar.")
      .def_property_readonly("_builder", [](const TensorHandle& t) { return t.builder; })
      .def_property_readonly(
          "location", [](const TensorHandle& t) { return t.tensor->location; },
          "Line of the definition, e.g. 'train.py:41'.")
      .def_property_readonly(
          "dtype", [](const TensorHandle& t) { return t.tensor->dtype; },
          "DataType of the elements; x.dtype() gives the same type.")
      .def(
          "size", [](const TensorHandle& t, int64_t dim) { return size(t.builder, t, dim); },
          py::arg("dim"), "Returns the size of a dim (negative: from the end) as a Scalar.")
      .def(
          "shape", [](const TensorHandle& t) { return shape(t.builder, t); },
          "Returns all sizes as Scalars.")
      .def("__repr__", [](const TensorHandle& t) {
        return text("t", t.tensor->id, ": ", describe(*t.tensor));
      });
  bind_operators(tensor, "a tensor");
}

void bind_scalar(py::module_& m) {
  py::class_<ScalarHandle> scalar(
      m, "Scalar", "A scalar of a definition: an input, a size, a constant or arithmetic.");
  scalar
      .def_property_readonly(
          "dtype", [](const ScalarHandle& s) { return s.expr->dtype; },
          "DataType of the scalar; s.dtype() gives the same type.")
      .def_property_readonly("_builder", [](const ScalarHandle& s) { return s.builder; })
      .def(
          "is_tensor", [](const ScalarHandle&) { return false; },
          "False for a Scalar, True for a Tensor.")
      .def(
          "is_same",
          [](const ScalarHandle& s, const ScalarHandle& other) { return s.expr == other.expr; },
          py::arg("other"),
          "True if both scalars are structurally equal, i.e. equal for all inputs.")
      .def_property_readonly(
          "value",
          [](const ScalarHandle& s) -> py::object {
            return s.expr->is_constant() ? number(s.expr->dtype, s.expr->value) : py::none();
          },
          "Value of a constant of the definition, else None.")
      .def("__repr__", [](const ScalarHandle& s) {
        return text(row(s.expr->dtype).torch, " ", ir::to_string(s.expr));
      });
  bind_operators(scalar, "a scalar");
}

}  // namespace

void bind_fusion(py::module_& m) {
  bind_definitions(m);
  bind_tensor(m);
  bind_scalar(m);
}

}  // namespace fuser::bind
