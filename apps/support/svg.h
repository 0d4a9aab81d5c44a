// The elements of the SVG charts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace kvcast::svg {

// All coordinates are in pixels. `anchor`: the SVG text-anchor. `text` is escaped.
// `attributes`: SVG attributes, not CSS, for example stroke="#ddd". They are not escaped.
std::string Number(double value);
std::string Text(double x, double y, const char* anchor, const std::string& text);
std::string Line(double x1, double y1, double x2, double y2, const std::string& attributes);
// The start of a document with a white background. The caller appends the elements and kEnd.
std::string Begin(double width, double height);
inline constexpr char kEnd[] = "</svg>\n";

}  // namespace kvcast::svg
