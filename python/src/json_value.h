// Conversions between Python objects and JSON texts of the service, with Python's own json module.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <string>

namespace kvcast::python {

// TypeError: the object has no JSON form.
std::string ToJsonText(const pybind11::object& object);
pybind11::object FromJsonText(const std::string& text);

}  // namespace kvcast::python
