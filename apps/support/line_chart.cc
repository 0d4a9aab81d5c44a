// SPDX-License-Identifier: Apache-2.0
#include "apps/support/line_chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace kvcast::bench {
namespace {

constexpr double kWidth = 300;
constexpr double kHeight = 240;
constexpr double kLeft = 60;
constexpr double kTop = 40;
constexpr double kGap = 70;
constexpr double kLegendLine = 18;

template <typename... Args>
std::string Format(const char* format, Args... args) {
  char text[256];
  std::snprintf(text, sizeof(text), format, args...);
  return text;
}

std::string Text(double x, double y, const char* anchor, const std::string& text) {
  return Format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor) + text +
         "</text>\n";
}

// An axis from power of 10 to power of 10 around the values.
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
    svg += Format("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", left,
                  at, left + kWidth, at);
    svg += Text(left - 6, at + 4, "end", Format("%g", std::pow(10, power)));
  }
  for (double power = x.first; power <= x.last; ++power) {
    svg += Text(place_x(std::pow(10, power)), kTop + kHeight + 16, "middle",
                Format("%g", std::pow(10, power)));
  }
  double legend = kTop + kHeight + 40;
  for (const Curve& curve : panel.curves) {
    const std::string stroke =
        " stroke=\"" + curve.color + "\" stroke-width=\"2\" fill=\"none\"/>\n";
    svg += "<polyline points=\"";
    for (const auto& [at, value] : curve.points) {
      svg += Format("%.1f,%.1f ", place_x(at), place_y(value));
    }
    svg += "\"" + stroke;
    svg += Format("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"", left, legend - 4,
                  left + 24, legend - 4) +
           stroke;
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
  std::string svg = Format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n",
      width, height);
  svg += "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  for (size_t i = 0; i < panels.size(); ++i) {
    svg += PanelSvg(panels[i], kLeft + static_cast<double>(i) * (kWidth + kGap));
  }
  return svg + "</svg>\n";
}

}  // namespace kvcast::bench
