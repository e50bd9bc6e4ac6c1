// ir/ops.h: the table of scalar ops, read-only
#include "ir/ops.h"

#include <pybind11/stl.h>

#include "bind/bind.h"

namespace py = pybind11;

namespace fuser::bind {

using namespace ir;

namespace {

const char* rule_name(ResultRule rule) {
  switch (rule) {
    case ResultRule::Same:
      return "Same";
    case ResultRule::Float:
      return "Float";
    case ResultRule::Predicate:
      return "Predicate";
    case ResultRule::Real:
      return "Real";
    case ResultRule::Complex:
      return "Complex";
    case ResultRule::Condition:
      return "Condition";
    case ResultRule::Common:
      return "Common";
  }
  return "";
}

std::vector<const char*> kind_names(uint8_t accepts) {
  std::vector<const char*> names;
  if (accepts & kBool) names.push_back("Bool");
  if (accepts & kInt) names.push_back("Int");
  if (accepts & kUnsigned) names.push_back("Unsigned");
  if (accepts & kFloat) names.push_back("Float");
  if (accepts & kComplex) names.push_back("Complex");
  return names;
}

}  // namespace

void bind_ops(py::module_& m) {
  py::class_<OpRow>(m, "OpRow", "One row of the op table.")
      .def_readonly("name", &OpRow::name)
      .def_readonly("arity", &OpRow::arity)
      .def_property_readonly(
          "rule", [](const OpRow& r) { return rule_name(r.rule); },
          "Same, Float, Predicate, Real, Complex, Condition or Common.")
      .def_property_readonly(
          "accepts", [](const OpRow& r) { return kind_names(r.accepts); },
          "Accepted kinds of compute types.")
      .def_readonly("cost", &OpRow::cost, "Issue slots of one float32 result.")
      .def_readonly("ulp", &OpRow::ulp,
                    "Bound on the error of a float32 result; 0: exact or correctly rounded.")
      .def_readonly("real_text", &OpRow::real_text, "Kernel text for float32 and float64, or None.")
      .def_readonly("int_text", &OpRow::int_text, "Kernel text for integers and bool, or None.")
      .def_readonly("complex_text", &OpRow::complex_text, "Kernel text for complex, or None.")
      .def("__repr__", [](const OpRow& r) { return std::string("<OpRow ") + r.name + ">"; });
  m.def(
      "op_rows",
      [] {
        const auto rows = op_rows();
        return std::vector<OpRow>(rows.begin(), rows.end());
      },
      "Every scalar op; an op's number is its place in this list.");
}

}  // namespace fuser::bind
