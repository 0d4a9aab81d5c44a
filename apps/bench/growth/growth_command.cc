// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "apps/bench/growth/growth_bench.h"
#include "apps/bench/growth/growth_curve.h"
#include "apps/bench/growth/power_law.h"
#include "apps/bench/index/report.h"
#include "apps/support/fail.h"
#include "apps/support/file.h"
#include "apps/support/line_chart.h"

namespace kvcast::bench {
namespace {

constexpr char kGrowthMethod[] =
    "One index grows from 10^6 residencies to --residencies and is measured at each doubling.\n"
    "A residency is a (worker, block) pair. A prompt has 625 blocks: a system prompt of 64 blocks\n"
    "that all workers hold, a text of 256 blocks that two workers hold for four conversations,\n"
    "and five turns of 61 blocks. The events are generated and not stored.\n"
    "grow_ns: mean time of Apply per stored block, since the previous point. apply_ns: time of\n"
    "Apply per stored or removed block, while the oldest prompts are replaced (median of waves).\n"
    "query: Match over all workers. Three of four prompts are the next turn of a random held\n"
    "conversation, the others begin a conversation of a held text. Each answer is checked.\n"
    "bytes: resident bytes per residency after Reclaim; grown_bytes: before. batch_ms: the\n"
    "longest Apply of a batch of up to 317 blocks since the previous point; batch_cpu_ms: the\n"
    "largest CPU time of such a batch; batch_faults: the page faults in that batch. page_ms: the\n"
    "time of the first write to a huge page (2 MiB), the lower bound for a fault of such a page.\n"
    "reclaim_wait_ms: the longest Apply of a batch of one block while another thread runs\n"
    "Reclaim, after the removal of a worker. reclaim_s: the time of Reclaim. others_pct: the\n"
    "share of the CPU that other processes and the hypervisor used since the previous point.\n"
    "exponent: the least squares fit of log(figure) over log(residencies).";

using Figure = double GrowthPoint::*;

struct Column {
  const char* name;
  Figure figure;
};
constexpr Column kColumns[] = {
    {"residencies", &GrowthPoint::residencies},
    {"held", &GrowthPoint::held},
    {"grow_ns", &GrowthPoint::grow_ns},
    {"apply_ns", &GrowthPoint::apply_ns},
    {"query_p50_us", &GrowthPoint::query_p50_us},
    {"query_p99_us", &GrowthPoint::query_p99_us},
    {"bytes", &GrowthPoint::bytes},
    {"grown_bytes", &GrowthPoint::grown_bytes},
    {"batch_ms", &GrowthPoint::batch_ms},
    {"batch_cpu_ms", &GrowthPoint::batch_cpu_ms},
    {"batch_faults", &GrowthPoint::batch_faults},
    {"page_ms", &GrowthPoint::page_ms},
    {"reclaim_wait_ms", &GrowthPoint::reclaim_wait_ms},
    {"reclaim_s", &GrowthPoint::reclaim_s},
    {"others_pct", &GrowthPoint::others_pct},
};

struct Fit {
  const char* name;
  const char* words;
  Figure figure;
};
constexpr Fit kFits[] = {
    {"query_p50", "query p50", &GrowthPoint::query_p50_us},
    {"query_p99", "query p99", &GrowthPoint::query_p99_us},
    {"apply", "apply", &GrowthPoint::apply_ns},
    {"batch", "the longest batch", &GrowthPoint::batch_ms},
    {"batch_cpu", "the largest CPU time of a batch", &GrowthPoint::batch_cpu_ms},
    {"reclaim_wait", "the longest wait for Reclaim", &GrowthPoint::reclaim_wait_ms},
};

using Points = std::vector<GrowthPoint>;

std::vector<std::pair<double, double>> PairsOf(const Points& points, Figure figure) {
  std::vector<std::pair<double, double>> pairs;
  for (const GrowthPoint& point : points) {
    if (point.*figure > 0) pairs.emplace_back(point.residencies, point.*figure);
  }
  return pairs;
}

void BeginTable(Report& report) {
  std::vector<std::string> names;
  for (const Column& column : kColumns) names.emplace_back(column.name);
  report.BeginTable("points", std::move(names));
}

void AddRow(Report& report, const GrowthPoint& point) {
  std::vector<double> values;
  for (const Column& column : kColumns) values.push_back(point.*column.figure);
  report.Row(values);
}

void PrintFits(Report& report, const Points& points) {
  for (const Fit& fit : kFits) {
    const auto law = FitPowerLaw(PairsOf(points, fit.figure));
    if (!law) continue;
    char text[160];
    std::snprintf(text, sizeof(text), "%s grows as n^%.2f (standard error %.2f)", fit.words,
                  law->exponent, law->error);
    report.Note(text);
    report.Figure(std::string("growth.") + fit.name + "_exponent", law->exponent, "");
  }
}

std::string Svg(const Points& points) {
  const auto curve = [&](const char* name, const char* color, Figure figure) {
    return Curve{.name = name, .color = color, .points = PairsOf(points, figure)};
  };
  return LineChartSvg({
      {"query, us",
       {curve("p50", "#1f77b4", &GrowthPoint::query_p50_us),
        curve("p99", "#d62728", &GrowthPoint::query_p99_us)}},
      {"apply, ns a block",
       {curve("replacing old blocks", "#1f77b4", &GrowthPoint::apply_ns),
        curve("growing", "#aec7e8", &GrowthPoint::grow_ns)}},
      {"longest pause, ms",
       {curve("a batch", "#1f77b4", &GrowthPoint::batch_ms),
        curve("waiting for Reclaim", "#d62728", &GrowthPoint::reclaim_wait_ms)}},
      {"bytes a residency",
       {curve("after Reclaim", "#1f77b4", &GrowthPoint::bytes),
        curve("before", "#aec7e8", &GrowthPoint::grown_bytes)}},
  });
}

// Measures the sizes until the memory is full. Returns true if the memory is full.
Result<bool> MeasureSizes(GrowthCurve& curve, const std::vector<int64_t>& sizes, Report& report,
                          Points& points) {
  BeginTable(report);
  for (const int64_t size : sizes) {
    if (static_cast<uint64_t>(size) <= curve.held()) continue;
    if (curve.is_full()) return true;
    const auto point = curve.Measure(size);
    if (!point.ok()) return point.status();
    points.push_back(*point);
    AddRow(report, *point);
    if (point->full) return true;
  }
  return false;
}

void NoteFull(Report& report, uint64_t held, double memory_gb) {
  char text[160];
  std::snprintf(text, sizeof(text), "stopped at %llu residencies: more would exceed --memory-gb %g",
                static_cast<unsigned long long>(held), memory_gb);
  report.Note(text);
}

}  // namespace

int RunGrowthBench(const GrowthBenchOptions& options) {
  Report report("growth", kGrowthMethod, options.json);
  GrowthCurve curve(
      static_cast<uint64_t>(options.workers),
      {.queries = options.queries, .memory = static_cast<int64_t>(options.memory_gb * 1e9)});
  if (Status status = curve.Begin(); !status.ok()) return tools::Fail(status);
  Points points;
  const auto full = MeasureSizes(curve, GrowthSizes(options.residencies), report, points);
  if (!full.ok()) return tools::Fail(full.status());
  if (points.empty()) return tools::Fail("--memory-gb: too little for the first point");
  if (*full) NoteFull(report, curve.held(), options.memory_gb);
  report.Figure("growth.stopped_by_memory", *full ? 1 : 0, "");
  PrintFits(report, points);
  uint64_t wrong = 0;
  for (const GrowthPoint& point : points) wrong += point.wrong;
  report.Target("growth.wrong_answers", static_cast<double>(wrong), "", 0);
  if (!options.svg.empty()) {
    if (Status status = tools::WriteFile(options.svg, Svg(points)); !status.ok()) {
      return tools::Fail(status);
    }
  }
  const int exit_code = report.Finish();
  return wrong == 0 ? exit_code : 1;
}

}  // namespace kvcast::bench
