// fusion/index/access.h and fusion/kernel/problem.h as fuser._core_testing.fusion: kernels before
// they are scheduled, as plain data for tests.
#include <pybind11/stl.h>

#include "base/error.h"
#include "bind/testing/testing.h"
#include "fusion/build/rebuild.h"
#include "fusion/index/layouts.h"
#include "fusion/kernel/problem.h"

namespace py = pybind11;

namespace fuser::bind {

using namespace fusion;
using namespace ir;

namespace {

std::vector<int> list(AxisSet set) {
  std::vector<int> out;
  for (int a = 0; a < 64; ++a)
    if (set >> a & 1) out.push_back(a);
  return out;
}

std::vector<std::string> texts(const std::vector<Expr>& exprs) {
  std::vector<std::string> out;
  for (Expr e : exprs) out.push_back(ir::to_string(e));
  return out;
}

// Returns an expression to evaluate: ("constant", dtype, number), ("symbol", dtype, kind, a, b),
// ("apply", dtype, op, [args]) or ("cast", dtype, arg).
py::tuple tree(Expr e) {
  const char* dtype = row(e->dtype).torch;
  switch (e->kind) {
    case ExprNode::Kind::Constant:
      if (kind_of(e->dtype) == Kind::Float || kind_of(e->dtype) == Kind::Complex)
        return py::make_tuple("constant", dtype, e->value.real);
      return py::make_tuple("constant", dtype, e->value.integer);
    case ExprNode::Kind::Symbol:
      return py::make_tuple("symbol", dtype, static_cast<int>(e->symbol), e->a, e->b);
    case ExprNode::Kind::Cast:
      return py::make_tuple("cast", dtype, tree(e->args[0]));
    default:
      break;
  }
  py::list args;
  for (Expr a : e->operands()) args.append(tree(a));
  return py::make_tuple("apply", dtype, row(e->op).name, args);
}

std::vector<py::tuple> trees(const std::vector<Expr>& exprs) {
  std::vector<py::tuple> out;
  for (Expr e : exprs) out.push_back(tree(e));
  return out;
}

py::object plain(const Access& a) {
  if (a.value >= 0) return py::int_(a.value);
  return tree(a.otherwise);
}

py::dict plain(const Value& v) {
  py::dict out;
  out["tensor"] = v.tensor ? v.tensor->id : -1;
  out["at"] = texts(v.at);
  out["where"] = trees(v.at);
  out["dtype"] = row(v.dtype).torch;
  out["axes"] = list(v.axes);
  py::list args;
  std::visit(
      [&](const auto& how) {
        using H = std::decay_t<decltype(how)>;
        if constexpr (requires { how.args; })
          for (const Access& a : how.args) args.append(plain(a));
        if constexpr (std::is_same_v<H, Read>) {
          out["how"] = "read";
          out["output"] = how.output;
        } else if constexpr (std::is_same_v<H, Apply>) {
          out["how"] = row(how.op).name;
          out["compute"] = row(how.compute).torch;
        } else if constexpr (std::is_same_v<H, Convert>) {
          out["how"] = "convert";
          args.append(plain(how.arg));
        } else if constexpr (std::is_same_v<H, Select>) {
          out["how"] = "select";
        } else if constexpr (std::is_same_v<H, Splat>) {
          out["how"] = "splat";
          args.append(tree(how.scalar));
        } else if constexpr (std::is_same_v<H, Coordinate>) {
          out["how"] = "coordinate";
          args.append(tree(how.at));
        } else if constexpr (std::is_same_v<H, Reduced>) {
          out["how"] = text("reduce ", row(how.op).name);
          out["compute"] = row(how.compute).torch;
          out["over"] = list(how.over);
        } else if constexpr (std::is_same_v<H, Project>) {
          out["how"] = text("project ", how.result);
          args.append(how.reduced);
        }
      },
      v.how);
  out["args"] = args;
  std::vector<ValueId> reads;
  visit_operands(v, [&](ValueId a) { reads.push_back(a); });
  out["operands"] = reads;
  return out;
}

py::dict plain(const Refined& r) {
  py::dict out;
  py::list axes, values, stores;
  for (const Axis& a : r.axes) axes.append(tree(a.extent));
  for (const Value& v : r.values) values.append(plain(v));
  for (const Store& s : r.stores) {
    py::dict store;
    store["output"] = s.output;
    store["value"] = s.access.value;
    store["at"] = texts(s.at);
    store["where"] = trees(s.at);
    stores.append(store);
  }
  out["axes"] = axes;
  out["values"] = values;
  out["stores"] = stores;
  if (const auto sets = reduction_sets(r)) {
    out["rows"] = list(sets->rows);
    out["columns"] = list(sets->columns);
  }
  return out;
}

py::dict plain(const Problem& p) {
  py::dict out = plain(p.refined);
  out["order"] = p.order;
  out["reduced"] = list(p.reduced);
  out["columns"] = list(p.columns);
  out["output_order"] = p.output_order;
  py::list buffers, accesses;
  for (const BufferUse& b : p.buffers)
    buffers.append(py::make_tuple(b.tensor->id, b.input, b.output, b.read, b.written));
  for (const MemoryAccess& a : p.accesses) {
    py::dict access;
    access["store"] = a.store;
    access["index"] = a.index;
    access["buffer"] = a.buffer;
    access["strides"] = a.strides ? py::cast(texts(a.strides->coefficients)) : py::none();
    accesses.append(access);
  }
  out["buffers"] = buffers;
  out["accesses"] = accesses;
  out["single_pass"] = p.single_pass ? py::object(plain(*p.single_pass)) : py::none();
  return out;
}

// A definition for inputs of these layouts, segmented into groups, without its library calls.
struct Groups {
  Fusion fusion;
  std::vector<LayoutClass> layouts;
  std::vector<Refined> groups;
};

using Layout = std::pair<std::vector<int64_t>, std::vector<int64_t>>;

Groups make(const Fusion& definition, const std::vector<Layout>& inputs) {
  Groups g;
  std::vector<std::vector<bool>> ones;
  for (const auto& [sizes, strides] : inputs) {
    g.layouts.push_back(layout_class(sizes, strides));
    ones.push_back(g.layouts.back().one);
  }
  g.fusion = specialize(definition, ones);
  for (Segment& segment : refine(g.fusion))
    if (auto* kernel = std::get_if<Refined>(&segment)) g.groups.push_back(std::move(*kernel));
  return g;
}

py::list problems(Groups& g, const std::vector<bool>& in_place) {
  py::list out;
  OutputOrders orders = result_orders(g.fusion, g.layouts);
  for (const Refined& whole : g.groups) {
    std::vector<ValueId> image;
    Refined copy = extract(whole.axes, whole.values, whole.stores, image);
    out.append(plain(make_problem(g.fusion, std::move(copy), g.layouts, in_place, orders)));
  }
  return out;
}

}  // namespace

void bind_fusion_testing(py::module_& tests) {
  py::module_ m = tests.def_submodule("fusion", "Kernels before they are scheduled.");
  py::class_<Groups>(m, "Groups")
      .def(py::init(&make), py::arg("definition"), py::arg("layouts"),
           "layouts: (sizes, strides) of each tensor input.")
      .def_property_readonly("groups",
                             [](const Groups& g) {
                               py::list out;
                               for (const Refined& r : g.groups) out.append(plain(r));
                               return out;
                             })
      .def_property_readonly(
          "outputs",
          [](const Groups& g) {
            py::list out;
            for (const Output& o : g.fusion.outputs)
              out.append(py::make_tuple(o.tensor->id, o.alias, o.temp));
            return out;
          },
          "(tensor, alias, temp) of each output, including temporaries.")
      .def("shape",
           [](const Groups& g, int tensor) { return trees(g.fusion.tensors[tensor].shape); })
      .def("fission",
           [](Groups& g, int group) {
             py::list out;
             for (const Refined& r : fission(g.fusion, g.groups[group])) out.append(plain(r));
             return out;
           })
      .def("single_pass",
           [](const Groups& g, int group) -> py::object {
             const auto shorter = single_pass(g.groups[group]);
             return shorter ? py::object(plain(*shorter)) : py::none();
           })
      .def("problems", &problems, py::arg("in_place"));
}

}  // namespace fuser::bind
