// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "apps/bench/service/bench_freshness.h"
#include "apps/dev/curve_rate.h"
#include "apps/dev/dev_commands.h"
#include "apps/dev/quantiles_json.h"

namespace kvcast::tools {
namespace {

using nlohmann::json;

constexpr double kVisibleP99 = 2e-3;
constexpr double kVisibleP999 = 10e-3;
constexpr double kPublishP99 = 5e-6;
constexpr double kBacklog = 2;
constexpr double kQueryP50 = 3e-6;
constexpr double kQueryP99 = 15e-6;
constexpr double kBusyRatio = 2;

void Print(const char* name, const Quantiles& quantiles, double unit, const char* unit_name) {
  std::printf("%-15s p50 %8.1f  p99 %8.1f  p99.9 %8.1f  max %8.1f %s\n", name, quantiles.p50 / unit,
              quantiles.p99 / unit, quantiles.p999 / unit, quantiles.max / unit, unit_name);
}

json JsonOf(const QueryFigures& figures) {
  return {{"asked", figures.asked},
          {"hits", figures.hits},
          {"short_s", JsonOf(figures.short_prompts)},
          {"any_s", JsonOf(figures.any_prompts)}};
}

// The ratio of a query's duration with load to its duration without load; 0 if no query was
// measured without load.
double Ratio(double busy, double idle) { return idle > 0 ? busy / idle : 0; }

void PrintFigures(const FreshnessConfig& config, const FreshnessResult& result) {
  std::printf(
      "# %d sources, %d batches/s each, %d s, TCP on loopback, publishers in one process, nice "
      "%d\n",
      config.sources, config.batches_per_s, config.seconds, config.publishers_nice);
  std::printf(
      "published %llu batches, %.0f per second%s; applied %llu, lost %llu, gaps %llu; %llu of %llu "
      "queries during the load hit\n",
      static_cast<unsigned long long>(result.published), result.rate,
      config.burst > 1 ? " in the burst" : "", static_cast<unsigned long long>(result.applied),
      static_cast<unsigned long long>(result.published - result.applied),
      static_cast<unsigned long long>(result.gaps),
      static_cast<unsigned long long>(result.busy.hits),
      static_cast<unsigned long long>(result.busy.asked));
  Print("visible", result.visible, 1e-6, "us");
  Print("  at full speed", result.visible_full_speed, 1e-6, "us");
  std::printf("slow machine    %.1f %% of the time\n", result.slow_share * 100);
  Print("publish()", result.publish, 1e-6, "us");
  Print("64 blocks, idle", result.idle.short_prompts, 1e-6, "us");
  Print("64 blocks, busy", result.busy.short_prompts, 1e-6, "us");
  Print("1..14000, idle", result.idle.any_prompts, 1e-6, "us");
  Print("1..14000, busy", result.busy.any_prompts, 1e-6, "us");
}

struct Target {
  const char* name;
  double figure;
  double target;
  const char* unit;
};

// The targets of a run without a burst.
std::vector<Target> SteadyTargets(const FreshnessResult& result) {
  const QueryFigures& busy = result.busy;
  const QueryFigures& idle = result.idle;
  return {
      {"visible p99", result.visible_full_speed.p99, kVisibleP99, "s"},
      {"visible p99.9", result.visible_full_speed.p999, kVisibleP999, "s"},
      {"publish() p99", result.publish.p99, kPublishP99, "s"},
      {"64 blocks p50", busy.short_prompts.p50, kQueryP50, "s"},
      {"64 blocks p99", busy.short_prompts.p99, kQueryP99, "s"},
      {"64 blocks p99 / idle", Ratio(busy.short_prompts.p99, idle.short_prompts.p99), kBusyRatio,
       ""},
      {"any prompt p99 / idle", Ratio(busy.any_prompts.p99, idle.any_prompts.p99), kBusyRatio, ""},
  };
}

int RunCurveRates(bool as_json) {
  const auto rates = MeasureCurveRates();
  if (!rates.ok()) return Fail(rates.status());
  nlohmann::json list = nlohmann::json::array();
  for (const CurveRate& rate : *rates) {
    const double ratio = rate.curve_per_s / rate.plain_per_s;
    std::printf("%5zu bytes: %8.0f batches/s plain, %8.0f batches/s with CURVE, ratio %.2f\n",
                rate.payload_bytes, rate.plain_per_s, rate.curve_per_s, ratio);
    list.push_back({{"payload_bytes", rate.payload_bytes},
                    {"plain_per_s", rate.plain_per_s},
                    {"curve_per_s", rate.curve_per_s},
                    {"ratio", ratio}});
  }
  if (as_json) std::printf("%s\n", nlohmann::json{{"rates", list}}.dump().c_str());
  return 0;
}

}  // namespace

int RunFreshnessBenchCommand(const FreshnessBenchOptions& options) {
  if (options.curve) return RunCurveRates(options.json);
  const FreshnessConfig config{.sources = static_cast<int>(options.sources),
                               .batches_per_s = static_cast<int>(options.rate),
                               .seconds = static_cast<int>(options.seconds),
                               .publishers_nice = static_cast<int>(options.publishers_nice),
                               .burst = static_cast<int>(options.burst)};
  const auto result = RunFreshnessBench(config);
  if (!result.ok()) return Fail(result.status());
  PrintFigures(config, *result);
  json targets = json::array();
  const bool lossless = result->published == result->applied;
  const auto add = [&](const char* name, double figure, double target, const char* unit) {
    const bool met = figure <= target;
    std::printf("%-22s %10.3g %-3s target %8.3g  %s\n", name, figure, unit, target,
                met ? "met" : "NOT MET");
    targets.push_back(
        {{"name", name}, {"figure", figure}, {"target", target}, {"unit", unit}, {"met", met}});
  };
  add("lost batches", static_cast<double>(result->published - result->applied), 0, "");
  if (config.burst > 1) {
    add("backlog of the burst", result->backlog, kBacklog, "s");
  } else {
    for (const Target& target : SteadyTargets(*result)) {
      add(target.name, target.figure, target.target, target.unit);
    }
  }
  if (options.json) {
    const json report = {{"name", "freshness"},
                         {"sources", config.sources},
                         {"batches_per_s", config.batches_per_s},
                         {"seconds", config.seconds},
                         {"publishers_nice", config.publishers_nice},
                         {"published", result->published},
                         {"applied", result->applied},
                         {"gaps", result->gaps},
                         {"rate", result->rate},
                         {"burst", config.burst},
                         {"backlog_s", result->backlog},
                         {"queries_idle", JsonOf(result->idle)},
                         {"queries_busy", JsonOf(result->busy)},
                         {"visible_s", JsonOf(result->visible)},
                         {"visible_full_speed_s", JsonOf(result->visible_full_speed)},
                         {"slow_share", result->slow_share},
                         {"publish_s", JsonOf(result->publish)},
                         {"targets", targets}};
    std::printf("%s\n", report.dump().c_str());
  }
  return lossless ? 0 : 1;
}

}  // namespace kvcast::tools
