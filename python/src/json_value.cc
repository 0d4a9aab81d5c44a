// SPDX-License-Identifier: Apache-2.0
#include "python/src/json_value.h"

namespace py = pybind11;

namespace kvcast::python {

std::string ToJsonText(const py::object& object) {
  return py::module_::import("json").attr("dumps")(object).cast<std::string>();
}

py::object FromJsonText(const std::string& text) {
  return py::module_::import("json").attr("loads")(py::str(text));
}

}  // namespace kvcast::python
