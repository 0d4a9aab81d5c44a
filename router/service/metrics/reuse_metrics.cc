// SPDX-License-Identifier: Apache-2.0
#include "router/service/metrics/reuse_metrics.h"

#include <string>
#include <utility>

#include "router/service/metrics/samples.h"

namespace kvcast::router {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Workers = const std::vector<WorkerMetrics>&;

ClientMetric Gauge(Labels labels, double value) {
  return NumberSample(MetricType::Gauge, std::move(labels), value);
}

std::string KindOf(const WorkerMetrics& worker, size_t group) {
  return std::string(
      SpecKindName(group < worker.groups.size() ? worker.groups[group].kind : SpecKind::kUnknown));
}

MetricFamily BlockFamily(const char* name, const char* help,
                         int64_t ReuseDiagnosis::GroupUse::*blocks, Workers workers) {
  MetricFamily family{name, help, MetricType::Gauge, {}};
  for (const WorkerMetrics& worker : workers) {
    for (size_t group = 0; group < worker.diagnosis.groups.size(); ++group) {
      Labels labels = {{"worker", worker.name},
                       {"group", std::to_string(group)},
                       {"kind", KindOf(worker, group)}};
      const auto count = static_cast<double>(worker.diagnosis.groups[group].*blocks);
      family.metric.push_back(Gauge(std::move(labels), count));
    }
  }
  return family;
}

MetricFamily TestedFamily(Workers workers) {
  MetricFamily family{"kvcast_reuse_tested_prompts",
                      "Number of sampled prompts that the latest diagnosis tested. These are "
                      "the prompts of which the worker holds at least one block. A "
                      "prompt is not tested if its later blocks are not in the sample and no later "
                      "request has used a prefix of it.",
                      MetricType::Gauge,
                      {}};
  for (const WorkerMetrics& worker : workers) {
    family.metric.push_back(
        Gauge({{"worker", worker.name}}, static_cast<double>(worker.diagnosis.tested)));
  }
  return family;
}

MetricFamily LostFamily(Workers workers) {
  MetricFamily family{
      "kvcast_reuse_lost_prompts",
      "Current number of sampled prompts that the worker cannot reuse although it "
      "holds blocks of these prompts, by cause. Prompts without a known cause do not count. The "
      "cause key_differs also counts prompts that the worker can reuse in part or "
      "completely.",
      MetricType::Gauge,
      {}};
  for (const WorkerMetrics& worker : workers) {
    for (size_t i = 0; i < kReuseCauses; ++i) {
      Labels labels = {{"worker", worker.name},
                       {"cause", std::string(ReuseCauseName(static_cast<ReuseCause>(i)))}};
      const auto lost = static_cast<double>(worker.diagnosis.lost_by_cause[i]);
      family.metric.push_back(Gauge(std::move(labels), lost));
    }
  }
  return family;
}

MetricFamily CauseFamily(Workers workers) {
  MetricFamily family{
      "kvcast_reuse_cause_info",
      "Always 1; the labels give the cause of missing reuse and the limiting group (the KV-cache "
      "group that prevents the reuse).",
      MetricType::Gauge,
      {}};
  for (const WorkerMetrics& worker : workers) {
    const std::optional<int64_t>& group = worker.diagnosis.group;
    Labels labels = {{"worker", worker.name},
                     {"cause", std::string(DiagnosisName(worker.diagnosis))},
                     {"group", group ? std::to_string(*group) : "none"},
                     {"kind", group ? KindOf(worker, static_cast<size_t>(*group)) : "none"}};
    family.metric.push_back(Gauge(std::move(labels), 1));
  }
  return family;
}

MetricFamily TotalFamily(const char* name, const char* help, uint64_t ReuseTotals::*total,
                         Workers workers) {
  MetricFamily family{name, help, MetricType::Counter, {}};
  for (const WorkerMetrics& worker : workers) {
    for (const auto& [key, reuse] : worker.reuse) {
      ClientMetric metric;
      metric.label = {{"worker", worker.name}, {"kind", key.first}, {"cause", key.second}};
      metric.counter.value = static_cast<double>(reuse.*total);
      family.metric.push_back(std::move(metric));
    }
  }
  return family;
}

}  // namespace

void AddReuseFamilies(Workers workers, std::vector<MetricFamily>& families) {
  families.push_back(BlockFamily(
      "kvcast_reuse_sampled_blocks",
      "Current number of GPU blocks that the worker holds of its sampled prompts. The router "
      "samples the prompts that the worker stores.",
      &ReuseDiagnosis::GroupUse::held, workers));
  families.push_back(BlockFamily("kvcast_reuse_usable_blocks",
                                 "Current number of blocks of kvcast_reuse_sampled_blocks that "
                                 "belong to a prefix that all groups can reuse.",
                                 &ReuseDiagnosis::GroupUse::usable, workers));
  families.push_back(TestedFamily(workers));
  families.push_back(LostFamily(workers));
  families.push_back(CauseFamily(workers));
  families.push_back(
      TotalFamily("kvcast_worker_compared_requests_total",
                  "Requests whose reused tokens were reported by feedback, by kind of the limiting "
                  "group and by cause of missing reuse, since the worker was registered.",
                  &ReuseTotals::requests, workers));
  families.push_back(TotalFamily("kvcast_worker_predicted_tokens_total",
                                 "Tokens that the router predicted to be reused, summed over the "
                                 "requests with feedback, since the worker was registered.",
                                 &ReuseTotals::predicted_tokens, workers));
  families.push_back(TotalFamily("kvcast_worker_reused_tokens_total",
                                 "Tokens that the worker reused, summed over the requests with "
                                 "feedback, since the worker was registered.",
                                 &ReuseTotals::reused_tokens, workers));
}

}  // namespace kvcast::router
