// Plans as Python dicts: {"scheduler": "pointwise", "threads": 128, ...}.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "bind/text.h"
#include "schedule/plan.h"

namespace fuser::bind {

inline pybind11::dict plan_dict(const schedule::Plan& plan) {
  namespace py = pybind11;
  py::dict out;
  out["scheduler"] = plan.scheduler;
  for (const auto& [name, value] : plan.fields) {
    if (const auto* number = std::get_if<int64_t>(&value)) {
      out[name.c_str()] = *number;
      continue;
    }
    const auto& words = std::get<schedule::AccessSet>(value).words();
    py::object set = py::int_(0);
    for (size_t i = words.size(); i-- > 0;) set = (set << py::int_(64)) | py::int_(words[i]);
    out[name.c_str()] = set;
  }
  return out;
}

// Converts a Python int of any size: a 64-bit number, or a set of accesses if it is larger.
inline schedule::PlanValue plan_value(const std::string& name, pybind11::handle value) {
  namespace py = pybind11;
  const auto refuse = [&](const char* expected) {
    return Fault(FaultKind::User, "plan-1",
                 text("plan: ", name, "=", to_text(py::repr(value)), " has a wrong type; expected ",
                      expected));
  };
  const auto integer = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!integer) {
    PyErr_Clear();
    throw refuse("an int");
  }
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(integer.ptr(), &overflow);
  if (!overflow) return number;
  if (overflow < 0) throw refuse("an int of 64 bits");
  constexpr size_t most = 64;  // words; no kernel has more accesses
  std::vector<uint64_t> words;
  const py::int_ all(~uint64_t{0});
  py::object rest = integer;
  while (words.size() < most && !rest.equal(py::int_(0))) {
    words.push_back((rest & all).cast<uint64_t>());
    rest = rest >> py::int_(64);
  }
  if (words.size() == most) throw refuse("a set of the kernel's accesses, or an int of 64 bits");
  return schedule::AccessSet(std::move(words));
}

// Returns the plan of a dict, the plans of a list of dicts (one per kernel), or no plan for None.
inline std::vector<schedule::Plan> plans_of(pybind11::handle plans) {
  namespace py = pybind11;
  std::vector<schedule::Plan> out;
  const auto add = [&](const py::dict& fields) {
    schedule::Plan& plan = out.emplace_back();
    for (const auto& [key, value] : fields) {
      const std::string name = to_text(key);
      if (name != "scheduler" && name != "schedule") {
        plan.fields.emplace_back(name, plan_value(name, value));
        continue;
      }
      if (!py::isinstance<py::str>(value))
        throw Fault(FaultKind::User, "plan-1",
                    text("plan: ", name, "=", to_text(py::repr(value)),
                         " has a wrong type; expected a str"));
      (name == "schedule" ? plan.schedule : plan.scheduler) = to_text(value);
    }
  };
  if (py::isinstance<py::dict>(plans))
    add(py::reinterpret_borrow<py::dict>(plans));
  else if (!plans.is_none())
    for (const py::handle item : py::reinterpret_borrow<py::sequence>(plans))
      add(item.cast<py::dict>());
  return out;
}

}  // namespace fuser::bind
