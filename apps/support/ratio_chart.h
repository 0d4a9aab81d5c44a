// RatioChart: ratios over the size of fragments, as a picture.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace kvcast::tools {

struct RatioLine {
  std::string name;
  std::string color;  // as SVG says it
  bool dashed = false;
  std::vector<std::pair<size_t, double>> points;  // fragment in bytes, ratio; by size
};

// One panel of a picture.
struct RatioPanel {
  std::string title;
  std::vector<RatioLine> lines;
};

// A whole SVG document: panels side by side, sizes by powers of 2, ratios from 0 to 1.1.
std::string RatioChartSvg(const std::string& title, const std::vector<RatioPanel>& panels);

}  // namespace kvcast::tools
