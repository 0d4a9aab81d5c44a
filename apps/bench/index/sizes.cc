// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "apps/bench/index/commands.h"
#include "apps/bench/index/fleet.h"
#include "apps/bench/index/floor_map.h"
#include "apps/bench/index/process_memory.h"
#include "apps/bench/index/report.h"
#include "apps/support/fail.h"
#include "apps/support/file.h"
#include "apps/support/line_chart.h"
#include "apps/support/samples.h"

namespace kvcast::bench {
namespace {

constexpr double kRiseTarget = 2;
constexpr double kFlatTarget = 1.5;
constexpr int64_t kRiseFrom = 1'000'000;

constexpr char kSizesMethod[] =
    "One size changes at a time. The number of held (worker, block) pairs goes from 10^5 to\n"
    "--max. With --base pairs, the number of workers, of blocks per prompt, or of groups\n"
    "changes. apply: the median time of Apply (merged removes), and of the hash map of\n"
    "\"bench apply\", per block operation. lookup: the median time per block of a query for a\n"
    "whole prompt over all workers, and of one prefetched probe of the hash map. memory: the\n"
    "resident bytes of the index per pair. apply_rise, lookup_rise: the growth from 10^6 pairs\n"
    "to --max, divided by the growth of the hash map. memory_rise: the growth of the bytes per\n"
    "pair.";

struct Point {
  double x = 0;
  double apply = 0;  // ns per block operation
  double apply_floor = 0;
  double lookup = 0;  // ns per block of the prompt
  double lookup_floor = 0;
  double bytes = 0;  // bytes per (worker, block)
};

class SizesCase {
 public:
  SizesCase(const ChurnConfig& config, const SizesBenchOptions& options)
      : churn_(config), options_(options), batches_(churn_, Removes::kMerged) {}

  Result<Point> Run(double x) {
    Point point{.x = x};
    if (Status status = AddFleet(churn_.config(), index_); !status.ok()) return status;
    const int64_t before = ReadProcessMemory(true).resident;
    FillIndex(churn_, index_);
    const int64_t after = ReadProcessMemory(true).resident;
    point.bytes = static_cast<double>(after - before) / static_cast<double>(churn_.residencies());
    for (uint64_t turn = 0; turn < churn_.steady_turn(); ++turn) {
      TakeOps(turn);
      map_.Apply(ops_);
    }
    MeasureLookup(point);
    MeasureApply(point);
    if (Status status = CheckFleet(churn_, index_); !status.ok()) return status;
    return point;
  }

 private:
  void TakeOps(uint64_t turn) {
    residency_ops_.clear();
    batches_.AppendOps(churn_.At(turn), residency_ops_);
    FloorMap::Translate(residency_ops_, ops_);
  }
  void MeasureApply(Point& point) {
    Samples index;
    Samples floor;
    for (int64_t i = 0; i < options_.samples; ++i) {
      const uint64_t number = churn_.steady_turn() + static_cast<uint64_t>(i);
      const Churn::Turn turn = churn_.At(number);
      TakeOps(number);
      auto start = Clock::now();
      map_.Apply(ops_);
      floor.Add(NanosecondsSince(start) / static_cast<double>(ops_.size()));
      const auto& made = batches_.Make(turn);
      start = Clock::now();
      for (const EventBatch& batch : made) index_.Apply(turn.worker, batch);
      index.Add(NanosecondsSince(start) / static_cast<double>(ops_.size()));
    }
    point.apply = index.median();
    point.apply_floor = floor.median();
  }
  void MeasureLookup(Point& point) {
    const auto blocks = static_cast<size_t>(churn_.config().blocks);
    const int64_t tokens = churn_.config().blocks * kBlockTokens + 1;
    const Churn::Range held = churn_.FullyHeld(churn_.steady_turn(), 0);
    std::mt19937_64 random(1);
    std::vector<BlockHash> chain(blocks);
    std::vector<uint64_t> keys(blocks);
    Samples query;
    Samples floor;
    for (int64_t i = 0; i < options_.samples; ++i) {
      const uint64_t prompt = held.first + random() % (held.last - held.first + 1);
      const uint32_t worker = churn_.WorkerOf(prompt, 0).value;
      for (size_t k = 0; k < blocks; ++k) {
        chain[k] = BlockHash(churn_.HashOf(prompt, k));
        keys[k] = FloorMap::KeyOf({chain[k].integer(), worker, 0, false});
      }
      auto start = Clock::now();
      (void)index_.Match(chain, kBlockTokens, tokens);
      query.Add(NanosecondsSince(start) / static_cast<double>(blocks));
      start = Clock::now();
      (void)map_.CountPrefetched(keys);
      floor.Add(NanosecondsSince(start) / static_cast<double>(blocks));
    }
    point.lookup = query.median();
    point.lookup_floor = floor.median();
  }

  const Churn churn_;
  const SizesBenchOptions& options_;
  TurnBatches batches_;
  PrefixIndex index_;
  FloorMap map_;
  std::vector<ResidencyOp> residency_ops_;
  std::vector<FloorMap::Op> ops_;
};

struct Axis {
  const char* name;
  int64_t ChurnConfig::*size;
  std::vector<int64_t> values;
  std::vector<Point> points;
};

std::vector<Axis> AxesOf(const SizesBenchOptions& options) {
  Axis residencies{"residencies", &ChurnConfig::residencies, {}, {}};
  for (double n = 1e5; n <= static_cast<double>(options.max_residencies) * 1.01; n *= 10) {
    residencies.values.push_back(std::llround(n));
  }
  return {residencies,
          {"workers", &ChurnConfig::workers, {1, 16, 64, 256, 1024}, {}},
          {"blocks", &ChurnConfig::blocks, {10, 100, 625, 2500, 14'000}, {}},
          {"groups", &ChurnConfig::groups, {1, 2, 4, 8}, {}}};
}

void Print(Report& report, const std::string& name, const Point& point) {
  report.Figure(name + ".apply", point.apply, "ns/op");
  report.Figure(name + ".apply_floor", point.apply_floor, "ns/op");
  report.Figure(name + ".lookup", point.lookup, "ns/block");
  report.Figure(name + ".lookup_floor", point.lookup_floor, "ns/block");
  report.Figure(name + ".memory", point.bytes, "bytes");
}

void PrintRise(Report& report, const std::vector<Point>& points) {
  const auto from = std::find_if(points.begin(), points.end(), [](const Point& point) {
    return point.x >= static_cast<double>(kRiseFrom);
  });
  if (from == points.end() || from + 1 == points.end()) return;
  const Point& last = points.back();
  const auto rise = [&](double Point::*index, double Point::*floor) {
    return (last.*index / (*from).*index) / (last.*floor / (*from).*floor);
  };
  report.Target("sizes.apply_rise", rise(&Point::apply, &Point::apply_floor), "ratio", kRiseTarget);
  report.Target("sizes.lookup_rise", rise(&Point::lookup, &Point::lookup_floor), "ratio",
                kRiseTarget);
  report.Target("sizes.memory_rise", last.bytes / from->bytes, "ratio", kFlatTarget);
}

std::string Csv(const std::vector<Axis>& axes) {
  std::string csv = "axis,value,apply_ns,apply_floor_ns,lookup_ns,lookup_floor_ns,bytes\n";
  for (const Axis& axis : axes) {
    for (const Point& point : axis.points) {
      char line[256];
      std::snprintf(line, sizeof(line), "%s,%.0f,%.2f,%.2f,%.3f,%.3f,%.2f\n", axis.name, point.x,
                    point.apply, point.apply_floor, point.lookup, point.lookup_floor, point.bytes);
      csv += line;
    }
  }
  return csv;
}

std::string Svg(const std::vector<Axis>& axes) {
  std::vector<ChartPanel> panels;
  for (const Axis& axis : axes) {
    ChartPanel panel{.title = std::string("by ") + axis.name, .curves = {}};
    const auto add = [&](const char* name, const char* color, double Point::*value) {
      Curve curve{.name = name, .color = color, .points = {}};
      for (const Point& point : axis.points) {
        if (point.*value > 0) curve.points.emplace_back(point.x, point.*value);
      }
      panel.curves.push_back(std::move(curve));
    };
    add("apply, ns a block", "#1f77b4", &Point::apply);
    add("plain map, ns a block", "#aec7e8", &Point::apply_floor);
    add("lookup, ns a block", "#d62728", &Point::lookup);
    add("plain map's probes, ns a block", "#ff9896", &Point::lookup_floor);
    add("bytes a residency", "#2ca02c", &Point::bytes);
    panels.push_back(std::move(panel));
  }
  return LineChartSvg(panels);
}

}  // namespace

int RunSizesBench(const SizesBenchOptions& options) {
  Report report("sizes", kSizesMethod, options.json);
  std::vector<Axis> axes = AxesOf(options);
  for (Axis& axis : axes) {
    for (const int64_t value : axis.values) {
      ChurnConfig config{.residencies = options.base_residencies};
      config.*axis.size = value;
      const auto fleet = std::make_unique<SizesCase>(config, options);
      const auto point = fleet->Run(static_cast<double>(value));
      if (!point.ok()) return tools::Fail(point.status());
      axis.points.push_back(*point);
      Print(report, std::string("sizes.") + axis.name + "." + std::to_string(value), *point);
    }
  }
  PrintRise(report, axes.front().points);
  for (const auto& [path, text] :
       {std::pair(options.csv, Csv(axes)), std::pair(options.svg, Svg(axes))}) {
    if (path.empty()) continue;
    if (Status status = tools::WriteFile(path, text); !status.ok()) return tools::Fail(status);
  }
  return report.Finish();
}

}  // namespace kvcast::bench
