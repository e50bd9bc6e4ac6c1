// base/options.h and base/log.h
#include "base/options.h"

#include "base/log.h"
#include "bind/bind.h"
#include "bind/text.h"

namespace py = pybind11;

namespace fuser::bind {

void bind_options(py::module_& m) {
  m.def(
      "option_rows",
      [] {
        py::list rows;
        for (const OptionRow& row : option_rows())
          rows.append(py::make_tuple(row.variable, row.type, row.value, row.help));
        return rows;
      },
      "(variable, type, default, help) of every option, in the order of the table.");
  m.def(
      "get_option", [](std::string_view variable) { return from_system(get_option(variable)); },
      py::arg("variable"),
      "Returns the current value of an option in the syntax of the environment variable.");
  m.def(
      "set_option",
      [](std::string_view variable, const py::str& value) {
        set_option(variable, to_system(value));
      },
      py::arg("variable"), py::arg("value"),
      "Sets an option of this process; no launch may be running.");
  m.def(
      "log_line", [](const py::str& line) { log_line(to_text(line)); }, py::arg("text"),
      "Prints the line 'fuser: <text>' to stderr.");
  m.def(
      "log", [](const py::str& line) { log(to_text(line)); }, py::arg("text"),
      "The same, under FUSER_LOG=1 only.");
  m.def("dump_enabled", &dump_enabled, py::arg("stage"), py::arg("kernel"),
        "Does FUSER_DUMP select this stage of this kernel?");
  m.def(
      "dump",
      [](std::string_view stage, std::string_view kernel, const py::str& body) {
        dump(stage, kernel, to_text(body));
      },
      py::arg("stage"), py::arg("kernel"), py::arg("text"),
      "Writes a stage's text to stderr, or to its own file in FUSER_DUMP_DIR.");
}

}  // namespace fuser::bind
