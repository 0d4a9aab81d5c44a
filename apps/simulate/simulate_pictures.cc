// The pictures of a simulation, as SVG, and the page that shows them.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "apps/simulate/simulate_report.h"
#include "apps/support/svg.h"

namespace kvcast::simulate {
namespace {

constexpr double kWidth = 760;
constexpr double kHeight = 380;
constexpr double kLeft = 70;
constexpr double kRight = 230;
constexpr double kTop = 36;
constexpr double kBottom = 48;
constexpr double kNameHeight = 14;
constexpr std::array kColors = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e",
                                "#8c564b", "#17becf", "#e377c2", "#7f7f7f", "#bcbd22"};

// One line of a picture: points with x and y from 0 to 1.
struct PictureLine {
  std::string name;
  std::vector<std::pair<double, double>> points;
};

struct Axes {
  std::string title;
  std::string x;
  std::string y;
  std::vector<std::pair<double, std::string>> x_ticks;  // position from 0 to 1
  std::vector<std::pair<double, std::string>> y_ticks;
};

double X(double share) { return kLeft + share * (kWidth - kLeft - kRight); }
double Y(double share) { return kHeight - kBottom - share * (kHeight - kTop - kBottom); }

std::string Draw(const Axes& axes, const std::vector<PictureLine>& lines) {
  // The list of names may be longer than the picture.
  const double list = kTop + kNameHeight * static_cast<double>(lines.size()) + 8;
  std::string out = svg::Begin(kWidth, std::max(kHeight, list));
  out += svg::Text(X(0.5), 20, "middle", axes.title);
  out += svg::Text(X(0.5), kHeight - 10, "middle", axes.x);
  out += svg::Text(6, kTop - 8, "start", axes.y);
  for (const auto& [at, text] : axes.x_ticks) {
    out += svg::Line(X(at), Y(0), X(at), Y(1), "stroke=\"#ddd\"");
    out += svg::Text(X(at), Y(0) + 16, "middle", text);
  }
  for (const auto& [at, text] : axes.y_ticks) {
    out += svg::Line(X(0), Y(at), X(1), Y(at), "stroke=\"#ddd\"");
    out += svg::Text(X(0) - 6, Y(at) + 4, "end", text);
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string stroke =
        std::string("stroke-width=\"1.6\" stroke=\"") + kColors[i % kColors.size()] + "\"";
    const auto& points = lines[i].points;
    for (size_t k = 1; k < points.size(); ++k) {
      out += svg::Line(X(points[k - 1].first), Y(points[k - 1].second), X(points[k].first),
                       Y(points[k].second), stroke);
    }
    const double y = kTop + kNameHeight * static_cast<double>(i) + 8;
    out += svg::Line(kWidth - kRight + 12, y - 4, kWidth - kRight + 32, y - 4, stroke);
    out += svg::Text(kWidth - kRight + 38, y, "start", lines[i].name);
  }
  return out + svg::kEnd;
}

std::string Percent(double share) { return std::to_string(std::llround(share * 100)) + " %"; }

std::vector<std::pair<double, std::string>> PercentTicks() {
  std::vector<std::pair<double, std::string>> ticks;
  for (const double at : {0.0, 0.25, 0.5, 0.75, 1.0}) ticks.emplace_back(at, Percent(at));
  return ticks;
}

using Arm = std::pair<std::string, std::vector<const RunResult*>>;

// The share of requests with a time to the first token of at most x, over a logarithmic axis from
// 10 ms to 100 s.
std::string DrawDistribution(const std::string& workload, const std::vector<Arm>& arms) {
  constexpr double kLow = -2;
  constexpr double kHigh = 2;
  Axes axes{
      workload + ": time to the first token", "seconds", "share of requests", {}, PercentTicks()};
  for (const auto& [power, text] : std::vector<std::pair<double, std::string>>{
           {-2, "0.01"}, {-1, "0.1"}, {0, "1"}, {1, "10"}, {2, "100"}}) {
    axes.x_ticks.emplace_back((power - kLow) / (kHigh - kLow), text);
  }
  std::vector<PictureLine> lines;
  for (const auto& [name, results] : arms) {
    std::vector<double> times;
    for (const RunResult* result : results) {
      times.insert(times.end(), result->first_token_s.begin(), result->first_token_s.end());
    }
    std::ranges::sort(times);
    PictureLine line{name, {}};
    constexpr int kPoints = 120;
    for (int p = 0; p <= kPoints; ++p) {
      const double share = static_cast<double>(p) / kPoints;
      const double limit = std::pow(10, kLow + share * (kHigh - kLow));
      const auto upto = std::ranges::upper_bound(times, limit) - times.begin();
      line.points.emplace_back(share, static_cast<double>(upto) /
                                          static_cast<double>(std::max<size_t>(times.size(), 1)));
    }
    lines.push_back(std::move(line));
  }
  return Draw(axes, lines);
}

std::string DrawReuse(const std::string& workload, const std::vector<Arm>& arms) {
  const Axes axes{workload + ": reused or loaded share of the prompt tokens",
                  "share of the admissions", "reused", PercentTicks(), PercentTicks()};
  std::vector<PictureLine> lines;
  for (const auto& [name, results] : arms) {
    PictureLine line{name, {}};
    const size_t tenths = results.front()->reuse_over_time.size();
    for (size_t t = 0; t < tenths; ++t) {
      double sum = 0;
      for (const RunResult* result : results) sum += result->reuse_over_time[t];
      line.points.emplace_back((static_cast<double>(t) + 0.5) / static_cast<double>(tenths),
                               sum / static_cast<double>(results.size()));
    }
    lines.push_back(std::move(line));
  }
  return Draw(axes, lines);
}

// The engines of each run are ordered by their number of requests.
std::string DrawLoad(const std::string& workload, const std::vector<Arm>& arms) {
  double most = 0;
  std::vector<PictureLine> lines;
  for (const auto& [name, results] : arms) {
    std::vector<double> sums(results.front()->by_engine.size());
    for (const RunResult* result : results) {
      std::vector<int64_t> sorted = result->by_engine;
      std::ranges::sort(sorted, std::greater<>());
      for (size_t e = 0; e < sums.size(); ++e) {
        sums[e] += static_cast<double>(sorted[e]) / static_cast<double>(results.size());
      }
    }
    PictureLine line{name, {}};
    for (size_t e = 0; e < sums.size(); ++e) {
      most = std::max(most, sums[e]);
      line.points.emplace_back(
          sums.size() == 1 ? 0.5 : static_cast<double>(e) / static_cast<double>(sums.size() - 1),
          sums[e]);
    }
    lines.push_back(std::move(line));
  }
  Axes axes{workload + ": requests per engine", "engines, from the busiest", "requests", {}, {}};
  for (const double at : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    axes.y_ticks.emplace_back(at, std::to_string(std::llround(at * most)));
  }
  for (PictureLine& line : lines) {
    for (auto& [x, y] : line.points) y = most == 0 ? 0 : y / most;
  }
  return Draw(axes, lines);
}

Status Write(const std::filesystem::path& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
  file.close();
  if (file) return {};
  return {StatusCode::kUnavailable,
          "--report: cannot write " + path.string() + ": " + std::strerror(errno)};
}

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

Status CreateReportFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return {};
  return {StatusCode::kUnavailable, "--report: cannot create " + folder + ": " + error.message()};
}

Status WriteReport(const std::string& folder, const Matrix& matrix) {
  if (const Status created = CreateReportFolder(folder); !created.ok()) return created;
  std::vector<std::pair<std::string, std::vector<Arm>>> workloads;
  for (const MatrixRun& run : matrix.runs) {
    if (workloads.empty() || workloads.back().first != run.workload) {
      workloads.push_back({run.workload, {}});
    }
    std::vector<Arm>& arms = workloads.back().second;
    auto arm = std::ranges::find(arms, run.arm(), &Arm::first);
    if (arm == arms.end()) {
      arms.push_back({run.arm(), {}});
      arm = arms.end() - 1;
    }
    arm->second.push_back(&run.result);
  }
  std::string page =
      "<!doctype html><meta charset=\"utf-8\"><title>kvcast simulate</title>"
      "<style>body{font:14px sans-serif;margin:2em}pre{font-size:12px}</style>"
      "<h1>kvcast simulate</h1>\n<pre>" +
      Escaped(RenderTable(matrix)) + "</pre>\n";
  const std::filesystem::path root(folder);
  int number = 0;
  for (const auto& [workload, arms] : workloads) {
    page += "<h2>" + Escaped(workload) + "</h2>\n";
    for (const auto& [kind, picture] : {std::pair{"ttft", DrawDistribution(workload, arms)},
                                        std::pair{"reuse", DrawReuse(workload, arms)},
                                        std::pair{"load", DrawLoad(workload, arms)}}) {
      // The name of a workload may be a path, so the name of the picture has a number instead.
      const std::string name = std::to_string(number) + "-" + kind + ".svg";
      if (const Status written = Write(root / name, picture); !written.ok()) return written;
      page += "<img src=\"" + name + "\" alt=\"" + kind + "\">\n";
    }
    ++number;
  }
  return Write(root / "report.html", page);
}

}  // namespace kvcast::simulate
