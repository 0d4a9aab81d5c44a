// RatioChartSvg: draws ratios over the fragment size (the contiguous bytes of one copy) as SVG.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace kvcast::tools {

struct RatioLine {
  std::string name;
  std::string color;  // an SVG color
  bool dashed = false;
  std::vector<std::pair<size_t, double>> points;  // fragment size in bytes, ratio; ordered by size
};

struct RatioPanel {
  std::string title;
  std::vector<RatioLine> lines;
};

// Returns an SVG document with the panels side by side. The axis of sizes is logarithmic, with
// labels at powers of 2. The axis of ratios is from 0 to 1.1.
std::string RatioChartSvg(const std::string& title, const std::vector<RatioPanel>& panels);

}  // namespace kvcast::tools
