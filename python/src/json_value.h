// Conversions between Python objects and JSON texts of the service, with Python's own json module.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace kvcast::python {

// TypeError: the object has no JSON form.
std::string ToJsonText(const pybind11::object& object);
// TypeError: as for ToJsonText. InvalidArgumentError: a number is not finite, or a text is not
// Unicode. `name`: the name of the object in the error.
nlohmann::json ToJson(const pybind11::object& object, const char* name);
pybind11::object FromJsonText(const std::string& text);

}  // namespace kvcast::python
