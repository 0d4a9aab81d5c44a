// SPDX-License-Identifier: Apache-2.0
#include "apps/support/line_chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "apps/support/svg.h"

namespace kvcast::bench {
namespace {

using svg::Line;
using svg::Number;
using svg::Text;

constexpr double kWidth = 300;
constexpr double kHeight = 240;
constexpr double kLeft = 60;
constexpr double kTop = 40;
constexpr double kGap = 70;
constexpr double kLegendLine = 18;

std::string PowerName(double power) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", std::pow(10, power));
  return text;
}

// A logarithmic axis. It begins and ends at the powers of 10 that enclose the values.
struct Axis {
  double first = 0;
  double last = 1;
  bool any = false;

  void Take(double value) {
    const double low = std::floor(std::log10(value));
    const double high = std::ceil(std::log10(value));
    first = any ? std::min(first, low) : low;
    last = any ? std::max(last, high) : high;
    any = true;
  }
  double Part(double value) const {
    return (std::log10(value) - first) / std::max(last - first, 1.0);
  }
};

std::string PanelSvg(const ChartPanel& panel, double left) {
  Axis x;
  Axis y;
  for (const Curve& curve : panel.curves) {
    for (const auto& [at, value] : curve.points) {
      x.Take(at);
      y.Take(value);
    }
  }
  const auto place_x = [&](double value) { return left + x.Part(value) * kWidth; };
  const auto place_y = [&](double value) { return kTop + (1 - y.Part(value)) * kHeight; };
  std::string svg = Text(left + kWidth / 2, kTop - 14, "middle", panel.title);
  for (double power = y.first; power <= y.last; ++power) {
    const double at = place_y(std::pow(10, power));
    svg += Line(left, at, left + kWidth, at, "stroke=\"#ddd\"");
    svg += Text(left - 6, at + 4, "end", PowerName(power));
  }
  for (double power = x.first; power <= x.last; ++power) {
    svg += Text(place_x(std::pow(10, power)), kTop + kHeight + 16, "middle", PowerName(power));
  }
  double legend = kTop + kHeight + 40;
  for (const Curve& curve : panel.curves) {
    const std::string stroke = "stroke=\"" + curve.color + "\" stroke-width=\"2\" fill=\"none\"";
    svg += "<polyline points=\"";
    for (const auto& [at, value] : curve.points) {
      svg += Number(place_x(at)) + "," + Number(place_y(value)) + " ";
    }
    svg += "\" " + stroke + "/>\n";
    svg += Line(left, legend - 4, left + 24, legend - 4, stroke);
    svg += Text(left + 30, legend, "start", curve.name);
    legend += kLegendLine;
  }
  return svg;
}

}  // namespace

std::string LineChartSvg(const std::vector<ChartPanel>& panels) {
  size_t curves = 0;
  for (const ChartPanel& panel : panels) curves = std::max(curves, panel.curves.size());
  const double width = kLeft + static_cast<double>(panels.size()) * (kWidth + kGap);
  const double height = kTop + kHeight + 50 + kLegendLine * static_cast<double>(curves);
  std::string svg = svg::Begin(width, height);
  for (size_t i = 0; i < panels.size(); ++i) {
    svg += PanelSvg(panels[i], kLeft + static_cast<double>(i) * (kWidth + kGap));
  }
  return svg + svg::kEnd;
}

}  // namespace kvcast::bench
