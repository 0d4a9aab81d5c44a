// SPDX-License-Identifier: Apache-2.0
#include "python/src/json_value.h"

#include <nlohmann/json.hpp>

#include "python/src/errors.h"

namespace py = pybind11;

namespace kvcast::python {

std::string ToJsonText(const py::object& object) {
  return py::module_::import("json").attr("dumps")(object).cast<std::string>();
}

nlohmann::json ToJson(const py::object& object, const char* name) {
  // Python writes Infinity, NaN and single surrogates, which JSON does not allow.
  auto json = nlohmann::json::parse(ToJsonText(object), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    ThrowInvalid(std::string(name) + ": a number is not finite, or a text is not Unicode");
  }
  return json;
}

py::object FromJsonText(const std::string& text) {
  return py::module_::import("json").attr("loads")(py::str(text));
}

}  // namespace kvcast::python
