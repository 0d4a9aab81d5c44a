// SPDX-License-Identifier: Apache-2.0
#include "router/service/metrics/state_metrics.h"

#include "router/service/metrics/samples.h"

namespace kvcast::router {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

struct StateMetric {
  const char* name;
  const char* help;
  MetricType type;
  double (*read)(const StateReport&);
};

using R = const StateReport&;

constexpr StateMetric kStateMetrics[] = {
    {"kvcast_state_saves_total",
     "Saves of the state, including failed saves, since the router started.", MetricType::Counter,
     [](R r) { return static_cast<double>(r.save.saves); }},
    {"kvcast_state_save_errors_total",
     "Failed saves, since the router started. A save fails if the file of at least one shard "
     "cannot be written. The file of such a shard keeps the state of an earlier save.",
     MetricType::Counter, [](R r) { return static_cast<double>(r.save.errors); }},
    {"kvcast_state_saved_timestamp_seconds",
     "Time of the latest successful save, in seconds since the Unix epoch. 0: no save has "
     "succeeded since the router started.",
     MetricType::Gauge, [](R r) { return static_cast<double>(r.save.saved_at_ms) / 1000; }},
    {"kvcast_state_save_duration_seconds", "Duration of the latest save, in seconds.",
     MetricType::Gauge, [](R r) { return r.save.seconds; }},
    {"kvcast_state_save_pause_seconds",
     "Longest time during the latest save for which a shard applied no batch, in seconds.",
     MetricType::Gauge, [](R r) { return r.save.pause_seconds; }},
    {"kvcast_state_bytes", "Size in bytes of the files that the latest save wrote.",
     MetricType::Gauge, [](R r) { return static_cast<double>(r.save.bytes); }},
    {"kvcast_state_workers", "Number of workers in the files that the latest save wrote.",
     MetricType::Gauge, [](R r) { return static_cast<double>(r.save.workers); }},
    {"kvcast_state_workers_restored_total",
     "Workers whose saved blocks the router restored, since the router started. A "
     "restored worker has the state bootstrap until the router has a proof that the engine did not "
     "restart.",
     MetricType::Counter, [](R r) { return static_cast<double>(r.restore.workers_restored); }},
    {"kvcast_state_workers_refused_total",
     "Workers whose saved blocks were damaged or did not fit their registration, since the router "
     "started. These workers started without blocks.",
     MetricType::Counter, [](R r) { return static_cast<double>(r.restore.workers_refused); }},
    {"kvcast_state_files_refused_total",
     "Files of saved state that the router refused at its start, because they were damaged, had "
     "another format version, or were written with another secret.",
     MetricType::Counter, [](R r) { return static_cast<double>(r.restore.files_refused); }},
};

}  // namespace

void AddStateFamilies(const StateReport& report, std::vector<MetricFamily>& families) {
  for (const StateMetric& entry : kStateMetrics) {
    AddValue(entry.name, entry.help, entry.type, entry.read(report), families);
  }
}

}  // namespace kvcast::router
