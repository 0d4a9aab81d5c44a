// LineChart: curves over logarithmic axes, as a picture.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace kvcast::bench {

struct Curve {
  std::string name;
  std::string color;                              // as SVG says it
  std::vector<std::pair<double, double>> points;  // x, y; both > 0, by x
};

struct ChartPanel {
  std::string title;
  std::vector<Curve> curves;
};

// A whole SVG document: panels side by side, each with axes of its own, by powers of 10. Names must
// be free of what SVG reads as markup.
std::string LineChartSvg(const std::vector<ChartPanel>& panels);

}  // namespace kvcast::bench
