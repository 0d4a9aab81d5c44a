// LineChartSvg: draws curves over logarithmic axes as SVG.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace kvcast::bench {

struct Curve {
  std::string name;
  std::string color;                              // an SVG color
  std::vector<std::pair<double, double>> points;  // x, y; both > 0, ordered by x
};

struct ChartPanel {
  std::string title;
  std::vector<Curve> curves;
};

// Returns an SVG document with the panels side by side. Each panel has its own axes, with ticks at
// powers of 10. Titles and names are escaped.
std::string LineChartSvg(const std::vector<ChartPanel>& panels);

}  // namespace kvcast::bench
