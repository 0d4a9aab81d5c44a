// SPDX-License-Identifier: Apache-2.0
#include "router/service/metrics/load_metrics.h"

#include <array>
#include <string>
#include <utility>

#include "router/service/metrics/samples.h"

namespace kvcast::router {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// Calls `visit` for each tier of each worker, with the labels of that tier.
template <typename Visit>
void ForEachTier(const std::vector<WorkerMetrics>& workers, const Visit& visit) {
  for (const WorkerMetrics& worker : workers) {
    for (const Tier tier : {Tier::kCpu, Tier::kStorage}) {
      const LoadRatesView& rates = worker.load_rates;
      visit(tier == Tier::kCpu ? rates.cpu : rates.storage,
            Labels{{"worker", worker.name}, {"tier", TierName(tier)}});
    }
  }
}

void AddGauge(MetricFamily& family, Labels labels, const std::optional<double>& value) {
  if (!value) return;
  family.metric.push_back(NumberSample(MetricType::Gauge, std::move(labels), *value));
}

}  // namespace

void AddLoadRateFamilies(const std::vector<WorkerMetrics>& workers,
                         std::vector<MetricFamily>& families) {
  MetricFamily rates{
      "kvcast_load_rate_bytes_per_second",
      "Rate of the worker's loads from a lower tier, in bytes per second. The label source is "
      "configured or measured.",
      MetricType::Gauge,
      {}};
  MetricFamily costs{"kvcast_load_token_cost",
                     "Tokens that the worker can compute while it loads one token from a lower "
                     "tier.",
                     MetricType::Gauge,
                     {}};
  MetricFamily reports{
      "kvcast_load_reports_total",
      "Reports about the worker's loads from a lower tier, by result, since the worker was "
      "registered. The result \"taken\" means that the router used the report. Every other result "
      "is the reason why the router ignored the report.",
      MetricType::Counter,
      {}};
  ForEachTier(workers, [&](const TierLoadRate& tier, const Labels& labels) {
    const auto with = [&labels](const char* name, std::string value) {
      Labels more = labels;
      more.push_back({name, std::move(value)});
      return more;
    };
    AddGauge(rates, with("source", "configured"), tier.configured);
    AddGauge(rates, with("source", "measured"), tier.measured);
    AddGauge(costs, labels, tier.cost);
    for (size_t i = 0; i < tier.reports.size(); ++i) {
      ClientMetric metric;
      metric.label = with("result", std::string(LoadReportName(static_cast<LoadReport>(i))));
      metric.counter.value = static_cast<double>(tier.reports[i]);
      reports.metric.push_back(std::move(metric));
    }
  });
  for (MetricFamily* const family : {&rates, &costs, &reports}) {
    families.push_back(std::move(*family));
  }
}

}  // namespace kvcast::router
