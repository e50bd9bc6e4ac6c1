// ir/expr.h, ir/ops.h, ir/reductions.h and ir/kernel.h as fuser._core_testing.ir: functions for
// tests only.
#include <pybind11/complex.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <complex>
#include <memory>

#include "base/error.h"
#include "bind/testing/testing.h"
#include "ir/expr.h"
#include "ir/kernel.h"
#include "ir/movement.h"

namespace py = pybind11;

namespace fuser::bind {

using namespace ir;

namespace {

using Arena = std::shared_ptr<Exprs>;

// An expression and its arena. Equal if the nodes are identical.
struct Node {
  Arena arena;
  Expr expr = nullptr;
  bool operator==(const Node&) const = default;
};

Expr of(const Arena& arena, const Node& node) {
  FUSER_ASSERT(node.arena == arena, "an operand is of another arena");
  return node.expr;
}

std::vector<Expr> of(const Arena& arena, const std::vector<Node>& nodes) {
  std::vector<Expr> out;
  for (const Node& n : nodes) out.push_back(of(arena, n));
  return out;
}

Op op_named(const std::string& name) {
  Op op{};
  FUSER_CHECK(find_op(name, op), User, "op-name", "unknown op ", name);
  return op;
}

int64_t run(const Node& root, const std::function<int64_t(Symbol, int, int)>& leaf) {
  IntProgram program;
  const int slot = program.add(root.expr);
  std::vector<int64_t> values;
  program.run(leaf, values);
  return values[slot];
}

// Returns a kernel whose only statement computes the expression, printed and parsed back.
std::string let_text(const Node& value) {
  KernelIR kernel;
  kernel.name = "k";
  const Expr copy = rewrite(kernel.exprs, value.expr, [](Expr) -> Expr { return nullptr; });
  kernel.body.push_back({Let{.var = 0, .value = copy}});
  kernel.vars = named_vars(kernel);
  return ir::to_text(kernel);
}

// Returns the kernel with a variable replaced by a number in every use.
KernelIR substitute(const std::string& text, int var, int64_t number) {
  KernelIR kernel = parse_kernel(text);
  map_expressions(kernel.body, [&](Expr root) {
    return rewrite(kernel.exprs, root, [&](Expr e) -> Expr {
      return e->is_symbol(Symbol::Var) && e->a == var ? kernel.exprs.constant(number) : nullptr;
    });
  });
  return kernel;
}

std::vector<std::string> visited(const std::vector<Node>& roots, bool axes) {
  std::vector<Expr> exprs;
  for (const Node& r : roots) exprs.push_back(r.expr);
  std::vector<std::string> out;
  visit(
      exprs, [&](Expr e) { out.push_back(ir::to_string(e)); },
      axes ? std::optional(bit(Symbol::Axis)) : std::nullopt);
  return out;
}

ReduceOp reduction_named(const std::string& name) {
  ReduceOp op{};
  FUSER_CHECK(find_reduction(name, op), User, "op-name", "unknown reduction ", name);
  return op;
}

void bind_reductions(py::module_& m) {
  py::class_<ReductionRow>(m, "ReductionRow", "One row of the table of reductions.")
      .def_readonly("name", &ReductionRow::name)
      .def_readonly("combine", &ReductionRow::combine)
      .def_readonly("state", &ReductionRow::state)
      .def_property_readonly("operands", [](const ReductionRow& r) { return int(r.operands); })
      .def_property_readonly("results", &ReductionRow::results)
      .def_property_readonly("fields", [](const ReductionRow& r) { return std::string(r.fields); })
      .def_property_readonly("selects", &ReductionRow::selects)
      .def_property_readonly("pair", [](const ReductionRow& r) -> std::optional<const char*> {
        return r.pair ? std::optional(row(*r.pair).name) : std::nullopt;
      });
  m.def("reduction_rows", [] {
    const auto rows = reduction_rows();
    return std::vector<ReductionRow>(rows.begin(), rows.end());
  });
  m.def("reduction_named", [](const std::string& name) { return row(reduction_named(name)); });
  m.def(
      "result_dtype",
      [](const std::string& name, DType compute, int result) {
        return result_dtype(reduction_named(name), compute, result);
      },
      py::arg("name"), py::arg("compute"), py::arg("result"));
  m.def(
      "state_bytes",
      [](const std::string& name, DType compute) {
        return state_bytes(reduction_named(name), compute);
      },
      py::arg("name"), py::arg("compute"));
}

void bind_movement_ops(py::module_& m) {
  m.def(
      "movement_ops",
      [] {
        py::dict ops;
        visit_movement_ops([&]<class D>() {
          D op;
          py::list names;
          visit_fields(op, [&](const auto& field, const auto&) { names.append(field.name); });
          ops[D::name] = names;
        });
        return ops;
      },
      "Returns the names of the arguments of each movement op, by its name.");
}

void bind_exprs(py::module_& m) {
  py::enum_<Symbol>(m, "Symbol")
      .value("Size", Symbol::Size)
      .value("Stride", Symbol::Stride)
      .value("Scalar", Symbol::Scalar)
      .value("RngOffset", Symbol::RngOffset)
      .value("Value", Symbol::Value)
      .value("Axis", Symbol::Axis)
      .value("Var", Symbol::Var)
      .value("Param", Symbol::Param)
      .value("Thread", Symbol::Thread)
      .value("Block", Symbol::Block)
      .value("Extent", Symbol::Extent);

  py::class_<Node>(m, "Expr")
      .def_property_readonly("dtype", [](const Node& n) { return n.expr->dtype; })
      .def_property_readonly("arity", [](const Node& n) { return int(n.expr->arity); })
      .def("__str__", [](const Node& n) { return ir::to_string(n.expr); })
      .def("__repr__", [](const Node& n) { return ir::to_string(n.expr); })
      .def("__eq__", [](const Node& a, const Node& b) { return a == b; })
      .def("__hash__", [](const Node& n) { return n.expr->id; });

  py::class_<Exprs, Arena>(m, "Exprs", "An arena of expressions.")
      .def(py::init<>())
      .def("__len__", &Exprs::size)
      .def(
          "integer",
          [](const Arena& a, int64_t value, DType dtype) {
            return Node{a, a->constant(dtype, {.integer = value})};
          },
          py::arg("value"), py::arg("dtype") = DType::Int64)
      .def(
          "real",
          [](const Arena& a, std::complex<double> value, DType dtype) {
            return Node{a, a->constant(dtype, {.real = value.real(), .imag = value.imag()})};
          },
          py::arg("value"), py::arg("dtype"))
      .def(
          "symbol",
          [](const Arena& a, Symbol symbol, int i, int j, DType dtype) {
            return Node{a, a->symbol(symbol, i, j, dtype)};
          },
          py::arg("symbol"), py::arg("i") = 0, py::arg("j") = 0, py::arg("dtype") = DType::Int64)
      .def(
          "apply",
          [](const Arena& a, const std::string& op, const std::vector<Node>& args) {
            return Node{a, a->apply(op_named(op), of(a, args))};
          },
          py::arg("op"), py::arg("args"))
      .def("cast",
           [](const Arena& a, DType dtype, const Node& n) {
             return Node{a, a->cast(dtype, of(a, n))};
           })
      .def("ceil_div",
           [](const Arena& a, const Node& n, int64_t d) {
             return Node{a, a->ceil_div(of(a, n), d)};
           })
      .def("rebuilt",
           [](const Arena& a, const Node& n) {
             return Node{a, rewrite(*a, of(a, n), [](Expr) -> Expr { return nullptr; })};
           })
      .def("product", [](const Arena& a, const std::vector<Node>& factors) {
        return Node{a, a->product(of(a, factors))};
      });

  m.def("run", &run, py::arg("root"), py::arg("leaf"),
        "Evaluates an integer expression; leaf(symbol, i, j) returns the value of a symbol.");
  m.def("visited", &visited, py::arg("roots"), py::arg("axes") = false,
        "Returns the texts of the distinct nodes in visiting order; with `axes` only nodes that "
        "contain an axis.");
}

}  // namespace

void bind_ir_testing(py::module_& tests) {
  py::module_ m = tests.def_submodule("ir", "Compiler functions for tests.");
  bind_exprs(m);
  bind_reductions(m);
  bind_movement_ops(m);
  m.def("let_text", &let_text, py::arg("value"), "Text of a kernel with one Let.");
  m.def("substitute", &substitute, py::arg("text"), py::arg("var"), py::arg("number"));

  m.def(
      "op_text",
      [](const std::string& name, DType compute) { return op_text(op_named(name), compute); },
      py::arg("name"), py::arg("compute"), "Kernel text with $0 $1 $2, or None.");
  m.def(
      "half_form", [](const std::string& name) { return row(half_form(op_named(name))).name; },
      py::arg("name"));
}

}  // namespace fuser::bind
