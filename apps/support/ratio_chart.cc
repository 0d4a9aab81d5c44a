// SPDX-License-Identifier: Apache-2.0
#include "apps/support/ratio_chart.h"

#include <algorithm>
#include <cmath>

#include "apps/support/byte_size.h"
#include "apps/support/svg.h"

namespace kvcast::tools {
namespace {

using svg::Line;
using svg::Number;
using svg::Text;

constexpr double kPanelWidth = 420;
constexpr double kPanelHeight = 300;
constexpr double kLeft = 50;
constexpr double kTop = 60;
constexpr double kPanelGap = 80;
constexpr double kMaxRatio = 1.1;
constexpr double kLegendLine = 18;

std::string StrokeOf(const RatioLine& line) {
  return "stroke=\"" + line.color + "\" stroke-width=\"2\" fill=\"none\"" +
         (line.dashed ? " stroke-dasharray=\"5 4\"" : "");
}

class PanelWriter {
 public:
  PanelWriter(const RatioPanel& panel, double left) : panel_(panel), left_(left) {
    for (const RatioLine& line : panel.lines) {
      for (const auto& [bytes, ratio] : line.points) {
        const double at = std::log2(static_cast<double>(std::max<size_t>(bytes, 1)));
        first_ = any_ ? std::min(first_, at) : at;
        last_ = any_ ? std::max(last_, at) : at;
        any_ = true;
      }
    }
    if (last_ - first_ < 1) last_ = first_ + 1;
  }

  std::string Write() const {
    std::string svg = Text(left_ + kPanelWidth / 2, kTop - 12, "middle", panel_.title);
    for (int tenth = 0; tenth <= 10; tenth += 2) {
      const double y = Y(tenth / 10.0);
      svg += Line(left_, y, left_ + kPanelWidth, y, "stroke=\"#ddd\"");
      svg += Text(left_ - 6, y + 4, "end", Number(tenth / 10.0));
    }
    for (int power = static_cast<int>(std::ceil(first_)); power <= last_; power += 2) {
      svg += Text(X(power), kTop + kPanelHeight + 16, "middle", ByteSizeName(size_t{1} << power));
    }
    double legend = kTop + kPanelHeight + 40;
    for (const RatioLine& line : panel_.lines) {
      svg += "<polyline points=\"";
      for (const auto& [bytes, ratio] : line.points) {
        svg += Number(X(std::log2(static_cast<double>(bytes)))) + "," + Number(Y(ratio)) + " ";
      }
      svg += "\" " + StrokeOf(line) + "/>\n";
      svg += Line(left_, legend - 4, left_ + 24, legend - 4, StrokeOf(line));
      svg += Text(left_ + 30, legend, "start", line.name);
      legend += kLegendLine;
    }
    return svg;
  }

 private:
  double X(double power) const { return left_ + (power - first_) / (last_ - first_) * kPanelWidth; }
  static double Y(double ratio) {
    return kTop + kPanelHeight * (1 - std::clamp(ratio, 0.0, kMaxRatio) / kMaxRatio);
  }

  const RatioPanel& panel_;
  const double left_;
  bool any_ = false;
  double first_ = 0;
  double last_ = 0;
};

}  // namespace

std::string RatioChartSvg(const std::string& title, const std::vector<RatioPanel>& panels) {
  size_t lines = 0;
  for (const RatioPanel& panel : panels) lines = std::max(lines, panel.lines.size());
  const double width = kLeft + static_cast<double>(panels.size()) * (kPanelWidth + kPanelGap);
  const double height = kTop + kPanelHeight + 40 + kLegendLine * static_cast<double>(lines);
  std::string svg = svg::Begin(width, height);
  svg += Text(width / 2, 24, "middle", title);
  for (size_t i = 0; i < panels.size(); ++i) {
    svg +=
        PanelWriter(panels[i], kLeft + static_cast<double>(i) * (kPanelWidth + kPanelGap)).Write();
  }
  return svg + svg::kEnd;
}

}  // namespace kvcast::tools
