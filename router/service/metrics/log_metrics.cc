// SPDX-License-Identifier: Apache-2.0
#include "router/service/metrics/log_metrics.h"

#include <algorithm>

#include "router/service/metrics/samples.h"

namespace kvcast::router {
namespace {

using event_log::BridgeStatus;
using prometheus::MetricFamily;
using prometheus::MetricType;

struct LogCounter {
  const char* name;
  const char* help;
  uint64_t (*read)(const BridgeStatus&);
};

constexpr LogCounter kLogCounters[] = {
    {"kvcast_event_log_snapshots_total",
     "Snapshots of the log that replaced the router's copy of the log's state, since the worker "
     "was "
     "registered.",
     [](const BridgeStatus& log) { return log.replica.snapshots; }},
    {"kvcast_event_log_adoptions_total",
     "Epochs of the log that began with the state that the router had already, since the worker "
     "was registered. An epoch begins when the relay restarts.",
     [](const BridgeStatus& log) { return log.replica.adoptions; }},
    {"kvcast_event_log_gaps_total",
     "Times that a batch was missing in the log, since the worker was registered. The router then "
     "reads the log again from its first message. If the batch is missing again, the router waits "
     "for the next snapshot of the log.",
     [](const BridgeStatus& log) { return log.replica.gaps; }},
    {"kvcast_event_log_bad_records_total",
     "Messages of the log that are not records of a relay, and snapshots that cannot be used, "
     "since the worker was registered.",
     [](const BridgeStatus& log) { return log.replica.bad_records; }},
    {"kvcast_event_log_rewinds_total",
     "Times that the router read the log again from its first message, since the worker was "
     "registered.",
     [](const BridgeStatus& log) { return log.rewinds; }},
    {"kvcast_event_log_mismatches_total",
     "Announcements of the relay with digests that differ from those of the router's copy of the "
     "log's state, since the worker was registered.",
     [](const BridgeStatus& log) { return log.mismatches; }},
};

MetricFamily LogStateFamily(const std::vector<WorkerMetrics>& workers) {
  MetricFamily family{
      "kvcast_event_log_state",
      "1 for the current state of the reading of the worker's log, 0 for all other states. "
      "unreachable: the log cannot be read. reading: no complete snapshot was read yet, or its "
      "state cannot be used. silent: no announcement of the relay was confirmed for two seconds.",
      MetricType::Gauge,
      {}};
  for (const WorkerMetrics& worker : workers) {
    if (!worker.log) continue;
    AddStates(event_log::kBridgeStates, worker.log->state, &event_log::BridgeStateName,
              {{"worker", worker.name}}, family);
  }
  return family;
}

MetricFamily LogCounterFamily(const LogCounter& counter,
                              const std::vector<WorkerMetrics>& workers) {
  MetricFamily family{counter.name, counter.help, MetricType::Counter, {}};
  for (const WorkerMetrics& worker : workers) {
    if (!worker.log) continue;
    const auto value = static_cast<double>(counter.read(*worker.log));
    family.metric.push_back(NumberSample(MetricType::Counter, {{"worker", worker.name}}, value));
  }
  return family;
}

}  // namespace

void AddLogFamilies(const std::vector<WorkerMetrics>& workers,
                    std::vector<MetricFamily>& families) {
  const auto has_log = [](const WorkerMetrics& worker) { return worker.log.has_value(); };
  if (std::ranges::none_of(workers, has_log)) return;
  families.push_back(LogStateFamily(workers));
  for (const LogCounter& counter : kLogCounters)
    families.push_back(LogCounterFamily(counter, workers));
}

}  // namespace kvcast::router
