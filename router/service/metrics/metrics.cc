// SPDX-License-Identifier: Apache-2.0
#include "router/service/metrics/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <cmath>
#include <sstream>
#include <utility>

#include "router/service/metrics/load_metrics.h"
#include "router/service/metrics/log_metrics.h"
#include "router/service/metrics/metric_tables.h"
#include "router/service/metrics/process_metrics.h"
#include "router/service/metrics/reuse_metrics.h"
#include "router/service/metrics/samples.h"
#include "router/service/metrics/state_metrics.h"

namespace kvcast::router {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

ClientMetric Sample(MetricType type, Labels labels, uint64_t value) {
  return NumberSample(type, std::move(labels), static_cast<double>(value));
}

MetricFamily HitFamily(const RoutingCounters& routing) {
  MetricFamily family{"kvcast_route_hits_total",
                      "Routed requests, by the hit of the chosen worker (full, partial or miss), "
                      "since the router started. Requests with book=false do not count.",
                      MetricType::Counter,
                      {}};
  for (const HitKind hit : {HitKind::kFull, HitKind::kPartial, HitKind::kMiss}) {
    family.metric.push_back(Sample(MetricType::Counter, {{"hit", std::string(HitName(hit))}},
                                   routing.hits[static_cast<size_t>(hit)]));
  }
  return family;
}

MetricFamily LatencyFamily(const char* name, const char* help, const LatencyHistogram& latency) {
  ClientMetric metric;
  uint64_t count = 0;
  for (size_t i = 0; i <= kLatencyBounds.size(); ++i) {
    count += latency.count(i);
    const double bound = i < kLatencyBounds.size() ? kLatencyBounds[i] : INFINITY;
    metric.histogram.bucket.push_back({count, bound});
  }
  metric.histogram.sample_count = count;
  metric.histogram.sample_sum = latency.sum_seconds();
  return {name, help, MetricType::Histogram, {std::move(metric)}};
}

MetricFamily WeightFamily(const std::vector<WorkerMetrics>& workers) {
  MetricFamily family{"kvcast_source_weight",
                      "Confidence in the answers for the worker, from 0 to 1. It follows from the "
                      "state of the event stream and from the time since the stream was last "
                      "synced or cleared.",
                      MetricType::Gauge,
                      {}};
  for (const WorkerMetrics& worker : workers) {
    family.metric.push_back(
        NumberSample(MetricType::Gauge, {{"worker", worker.name}}, worker.stream.weight));
  }
  return family;
}

MetricFamily AgeFamily(const std::vector<WorkerMetrics>& workers) {
  MetricFamily family{"kvcast_source_event_age_seconds",
                      "Seconds since the time stamp of the worker's latest applied batch.",
                      MetricType::Gauge,
                      {}};
  for (const WorkerMetrics& worker : workers) {
    if (!worker.event_age_seconds) continue;
    ClientMetric metric = Sample(MetricType::Gauge, {{"worker", worker.name}}, 0);
    metric.gauge.value = *worker.event_age_seconds;
    family.metric.push_back(std::move(metric));
  }
  return family;
}

// One sample for each worker, tier and group that ever had blocks.
MetricFamily BlockFamily(const char* name, const char* help, MetricType type,
                         uint64_t (*read)(const GroupTally::InTier&),
                         const std::vector<WorkerMetrics>& workers) {
  MetricFamily family{name, help, type, {}};
  for (const WorkerMetrics& worker : workers) {
    for (size_t group = 0; group < worker.tallies.size(); ++group) {
      const SpecKind kind =
          group < worker.groups.size() ? worker.groups[group].kind : SpecKind::kUnknown;
      for (int tier = 0; tier < kTiers; ++tier) {
        const GroupTally::InTier& tally = worker.tallies[group].tiers[static_cast<size_t>(tier)];
        if (tally.stored == 0 && tally.removed == 0) continue;
        Labels labels = {{"worker", worker.name},
                         {"tier", TierName(static_cast<Tier>(tier))},
                         {"group", std::to_string(group)},
                         {"kind", std::string(SpecKindName(kind))}};
        family.metric.push_back(Sample(type, std::move(labels), read(tally)));
      }
    }
  }
  return family;
}

void AddBlockFamilies(const std::vector<WorkerMetrics>& workers,
                      std::vector<MetricFamily>& families) {
  using InTier = const GroupTally::InTier&;
  families.push_back(BlockFamily(
      "kvcast_blocks",
      "Current number of block copies that the worker announced as stored and has not removed, "
      "according to its events. A clear sets the counts of its tier to 0, and a reset sets all "
      "counts of the worker to 0. An applied snapshot sets the counts to the numbers of copies in "
      "the snapshot.",
      MetricType::Gauge, [](InTier t) { return static_cast<uint64_t>(t.held); }, workers));
  families.push_back(BlockFamily(
      "kvcast_blocks_stored_total",
      "Block copies that the worker announced as stored, since the worker was registered. If an "
      "applied snapshot contains more copies than this total, the total rises to the number of "
      "copies in the snapshot.",
      MetricType::Counter, [](InTier t) { return t.stored; }, workers));
  families.push_back(BlockFamily(
      "kvcast_blocks_removed_total",
      "Block copies in the remove events that the router applied, since the worker was registered. "
      "For the formats trtllm and mooncake, the count includes removes that the router derived "
      "from other events.",
      MetricType::Counter, [](InTier t) { return t.removed; }, workers));
}

MetricFamily ListFamily(const std::string& name, const std::string& help, const char* label,
                        size_t SourceListReport::*value,
                        const std::vector<SourceListReport>& lists) {
  MetricFamily family{name, help, MetricType::Gauge, {}};
  for (const SourceListReport& list : lists) {
    family.metric.push_back(Sample(MetricType::Gauge, {{label, list.list}}, list.*value));
  }
  return family;
}

void AddListFamilies(const ServiceMetrics& metrics, std::vector<MetricFamily>& families) {
  families.push_back(ListFamily(
      "kvcast_source_file_errors",
      "Current number of sources in the file that the router cannot follow. At least 1 if the file "
      "cannot be read or is invalid; the router then keeps the sources of the latest valid "
      "content.",
      "file", &SourceListReport::errors, metrics.source_files));
  families.push_back(ListFamily("kvcast_source_file_sources",
                                "Current number of sources in the file that the router follows.",
                                "file", &SourceListReport::followed, metrics.source_files));
  families.push_back(
      ListFamily("kvcast_dns_source_errors",
                 "Current number of targets that the router cannot follow, by looked-up name. At "
                 "least 1 if the latest lookup failed; the router then keeps the sources of the "
                 "latest valid answer.",
                 "lookup", &SourceListReport::errors, metrics.dns_sources));
  families.push_back(
      ListFamily("kvcast_dns_source_targets",
                 "Current number of targets that the router follows, by looked-up name.", "lookup",
                 &SourceListReport::followed, metrics.dns_sources));
  families.push_back(ListFamily(
      "kvcast_kubernetes_source_errors",
      "Current number of endpoints that the router cannot follow, by list of EndpointSlices. At "
      "least 1 if the API server does not answer or its answer is invalid; the router then keeps "
      "the "
      "sources of the latest valid answer.",
      "list", &SourceListReport::errors, metrics.kubernetes_sources));
  families.push_back(
      ListFamily("kvcast_kubernetes_source_endpoints",
                 "Current number of endpoints that the router follows, by list of EndpointSlices.",
                 "list", &SourceListReport::followed, metrics.kubernetes_sources));
}

MetricFamily FamilyOf(const WorkerMetric& entry, const std::vector<WorkerMetrics>& workers) {
  MetricFamily family{entry.name, entry.help, entry.type, {}};
  for (const WorkerMetrics& worker : workers) {
    const double value = static_cast<double>(entry.read(worker)) * entry.unit;
    family.metric.push_back(NumberSample(entry.type, {{"worker", worker.name}}, value));
  }
  return family;
}

MetricFamily StateFamily(const std::vector<WorkerMetrics>& workers) {
  MetricFamily family{
      "kvcast_source_state",
      "1 for the current state of the worker's event stream, 0 for all other states.",
      MetricType::Gauge,
      {}};
  for (const WorkerMetrics& worker : workers) {
    AddStates(kSourceStates, worker.state, &SourceStateName, {{"worker", worker.name}}, family);
  }
  return family;
}

MetricFamily SchemeStateFamily(const std::vector<WorkerMetrics>& workers) {
  MetricFamily family{
      "kvcast_source_scheme_state",
      "1 for the current state of the hash-scheme detection, 0 for all other states.",
      MetricType::Gauge,
      {}};
  for (const WorkerMetrics& worker : workers) {
    AddStates(kSchemeStates, worker.verdict.state, &SchemeStateName, {{"worker", worker.name}},
              family);
  }
  return family;
}

MetricFamily SchemeInfoFamily(const std::vector<WorkerMetrics>& workers) {
  MetricFamily family{
      "kvcast_source_scheme_info",
      "Always 1; the labels give the detected hash scheme of the worker's store events.",
      MetricType::Gauge,
      {}};
  for (const WorkerMetrics& worker : workers) {
    if (!worker.verdict.scheme) continue;
    const ChainScheme& scheme = *worker.verdict.scheme;
    Labels labels = {{"worker", worker.name},
                     {"algorithm", std::string(HashAlgorithmName(scheme.algorithm))},
                     {"seed", std::string(ShownHashSeed(scheme.seed))},
                     {"hash_block_size", std::to_string(scheme.hash_block_size)}};
    family.metric.push_back(Sample(MetricType::Gauge, std::move(labels), 1));
  }
  return family;
}

MetricFamily SchemeSkipFamily(const std::vector<WorkerMetrics>& workers) {
  MetricFamily family{"kvcast_source_scheme_skipped_stores_total",
                      "Store events whose block hashes the hash-scheme detector cannot recompute, "
                      "by reason, since the worker was registered.",
                      MetricType::Counter,
                      {}};
  for (const WorkerMetrics& worker : workers) {
    for (size_t i = 0; i < kSchemeSkips; ++i) {
      const std::string_view reason = SchemeSkipName(static_cast<SchemeSkip>(i));
      Labels labels = {{"worker", worker.name}, {"reason", std::string(reason)}};
      family.metric.push_back(
          Sample(MetricType::Counter, std::move(labels), worker.scheme.skipped[i]));
    }
  }
  return family;
}

MetricFamily UnnamedFamily(const std::vector<WorkerMetrics>& workers) {
  MetricFamily family{"kvcast_unnamed_stored_blocks_total",
                      "Stored blocks whose content was unknown at the store event, by reason, "
                      "since the worker was registered.",
                      MetricType::Counter,
                      {}};
  for (const WorkerMetrics& worker : workers) {
    for (size_t i = 0; i < kUnnamedReasons; ++i) {
      const std::string_view reason = UnnamedReasonName(static_cast<UnnamedReason>(i));
      Labels labels = {{"worker", worker.name}, {"reason", std::string(reason)}};
      family.metric.push_back(
          Sample(MetricType::Counter, std::move(labels), worker.index.unnamed_blocks[i]));
    }
  }
  return family;
}

MetricFamily RejectFamily(const std::vector<WorkerMetrics>& workers) {
  MetricFamily family{
      "kvcast_wire_rejected_events_total",
      "Events that could not be decoded, by reason, since the worker was registered.",
      MetricType::Counter,
      {}};
  for (const WorkerMetrics& worker : workers) {
    for (size_t i = 0; i < kRejectReasons; ++i) {
      const std::string_view reason = RejectName(static_cast<Reject>(i));
      Labels labels = {{"worker", worker.name}, {"reason", std::string(reason)}};
      family.metric.push_back(
          Sample(MetricType::Counter, std::move(labels), worker.wire.decode.rejected[i]));
    }
  }
  return family;
}

// One sample for each group that ever had a rejected event.
MetricFamily GroupRejectFamily(const std::vector<WorkerMetrics>& workers) {
  MetricFamily family{"kvcast_index_rejected_events_total",
                      "Events that the index did not apply (bad_events and unknown_kinds), by "
                      "KV-cache group, since the worker was registered.",
                      MetricType::Counter,
                      {}};
  const auto add = [&family](const WorkerMetrics& worker, std::string group, uint64_t count) {
    if (count == 0) return;
    Labels labels = {{"worker", worker.name}, {"group", std::move(group)}};
    family.metric.push_back(Sample(MetricType::Counter, std::move(labels), count));
  };
  for (const WorkerMetrics& worker : workers) {
    for (size_t i = 0; i < worker.rejects.size(); ++i) {
      add(worker, i < static_cast<size_t>(kMaxGroups) ? std::to_string(i) : "out_of_range",
          worker.rejects[i]);
    }
  }
  return family;
}

// Counts, for each format, the events that the index cannot use.
MetricFamily LeftOutFamily(const std::vector<WorkerMetrics>& workers) {
  MetricFamily family{
      "kvcast_format_left_out_total",
      "Events that were not indexed, by format and reason, since the worker was registered. For "
      "format trtllm, the reasons partial_block and no_room count blocks. For format mooncake, "
      "the reason no_hashes also counts events without a tier.",
      MetricType::Counter,
      {}};
  const auto add = [&family](const WorkerMetrics& worker, const char* format, const char* reason,
                             uint64_t count) {
    Labels labels = {{"worker", worker.name}, {"format", format}, {"reason", reason}};
    family.metric.push_back(Sample(MetricType::Counter, std::move(labels), count));
  };
  for (const WorkerMetrics& worker : workers) {
    if (const auto& counts = worker.wire.mooncake) {
      add(worker, "mooncake", "bad_event", counts->bad_events);
      add(worker, "mooncake", "unknown_type", counts->unknown_types);
      add(worker, "mooncake", "other_tenant_or_backend", counts->others);
      add(worker, "mooncake", "no_hashes", counts->opaque);
      add(worker, "mooncake", "no_room", counts->refused);
    }
    if (const auto& counts = worker.wire.trtllm) {
      add(worker, "trtllm", "bad_event", counts->bad_events);
      add(worker, "trtllm", "unknown_type", counts->unknown_types);
      add(worker, "trtllm", "other_rank", counts->other_ranks);
      add(worker, "trtllm", "partial_block", counts->partial_blocks);
      add(worker, "trtllm", "no_room", counts->refused_hashes);
    }
  }
  return family;
}

MetricFamily RequestFamily(const HttpRequestCounts& requests) {
  MetricFamily family{
      "kvcast_http_requests_total",
      "Answered HTTP requests, by route (the path) and status code, since the router started. The "
      "route \"other\" counts all other paths and requests that are not HTTP.",
      MetricType::Counter,
      {}};
  for (const auto& [route, by_code] : requests) {
    for (const auto& [code, count] : by_code) {
      Labels labels = {{"route", route}, {"code", std::to_string(code)}};
      family.metric.push_back(Sample(MetricType::Counter, std::move(labels), count));
    }
  }
  return family;
}

}  // namespace

void HttpTotals::Add(const HttpCounters& more, const HttpRequestCounts& more_requests) {
  counters.connections += more.connections;
  counters.accepted += more.accepted;
  counters.evicted += more.evicted;
  counters.timed_out += more.timed_out;
  counters.refused_bytes += more.refused_bytes;
  counters.held_bytes += more.held_bytes;
  counters.abandoned += more.abandoned;
  for (const auto& [route, by_code] : more_requests) {
    for (const auto& [code, count] : by_code) requests[route][code] += count;
  }
}

std::string RenderMetrics(const ServiceMetrics& metrics) {
  std::vector<MetricFamily> families;
  AddProcessFamilies(families);
  for (const ServiceMetric& entry : ServiceMetricTable()) {
    families.push_back(
        {entry.name, entry.help, entry.type, {NumberSample(entry.type, {}, entry.read(metrics))}});
  }
  families.push_back(RequestFamily(metrics.http.requests));
  families.push_back(HitFamily(metrics.routing));
  if (metrics.latency != nullptr) {
    families.push_back(LatencyFamily(
        "kvcast_query_duration_seconds",
        "Seconds per query, with the queries of routing decisions, without the time to "
        "read the request and to write the reply, since the router started.",
        *metrics.latency));
  }
  if (metrics.decision_latency != nullptr) {
    families.push_back(
        LatencyFamily("kvcast_decision_duration_seconds",
                      "Seconds per routing decision, including its query, without the time "
                      "to read the request and to write the reply, since the router "
                      "started.",
                      *metrics.decision_latency));
  }
  for (const auto& table :
       {StreamMetricTable(), EventMetricTable(), NamingMetricTable(), LoadMetricTable()}) {
    for (const WorkerMetric& entry : table) families.push_back(FamilyOf(entry, metrics.workers));
  }
  AddBlockFamilies(metrics.workers, families);
  AddListFamilies(metrics, families);
  if (metrics.state) AddStateFamilies(*metrics.state, families);
  AddPeerJoinFamilies(metrics.join, families);
  if (metrics.peer_load) AddPeerLoadFamilies(*metrics.peer_load, families);
  families.push_back(WeightFamily(metrics.workers));
  families.push_back(AgeFamily(metrics.workers));
  families.push_back(StateFamily(metrics.workers));
  families.push_back(RejectFamily(metrics.workers));
  families.push_back(GroupRejectFamily(metrics.workers));
  families.push_back(LeftOutFamily(metrics.workers));
  families.push_back(SchemeStateFamily(metrics.workers));
  families.push_back(SchemeInfoFamily(metrics.workers));
  families.push_back(SchemeSkipFamily(metrics.workers));
  families.push_back(UnnamedFamily(metrics.workers));
  AddReuseFamilies(metrics.workers, families);
  AddLogFamilies(metrics.workers, families);
  AddLoadRateFamilies(metrics.workers, families);
  std::ostringstream page;
  prometheus::TextSerializer().Serialize(page, families);
  return page.str();
}

}  // namespace kvcast::router
