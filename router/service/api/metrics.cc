// SPDX-License-Identifier: Apache-2.0
#include "router/service/api/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <cmath>
#include <sstream>
#include <utility>

#include "router/service/api/load_metrics.h"
#include "router/service/api/reuse_metrics.h"
#include "router/service/api/state_json.h"

namespace kvcast::router {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

struct WorkerMetric {
  const char* name;
  const char* help;
  MetricType type;
  uint64_t (*read)(const WorkerMetrics&);
};

constexpr MetricType kCounter = MetricType::Counter;
constexpr MetricType kGauge = MetricType::Gauge;
using W = const WorkerMetrics&;

constexpr std::array kStreamMetrics = {
    WorkerMetric{"kvcast_source_batches_total", "Batches applied to the index.", kCounter,
                 [](W w) { return w.stream.batches; }},
    WorkerMetric{
        "kvcast_source_gaps_total",
        "Gaps in the sequence numbers, from batches that were dropped or could not be encoded.",
        kCounter, [](W w) { return w.stream.gaps; }},
    WorkerMetric{"kvcast_source_replays_total", "Replay requests sent.", kCounter,
                 [](W w) { return w.stream.replays; }},
    WorkerMetric{"kvcast_source_replayed_batches_total", "Batches received by replay.", kCounter,
                 [](W w) { return w.stream.replayed; }},
    WorkerMetric{"kvcast_source_duplicate_batches_total", "Batches received more than once.",
                 kCounter, [](W w) { return w.stream.duplicates; }},
    WorkerMetric{"kvcast_source_resets_total", "Times the worker's learned state was dropped.",
                 kCounter, [](W w) { return w.stream.resets; }},
    WorkerMetric{"kvcast_source_lost_batches_total", "Batches received neither live nor by replay.",
                 kCounter, [](W w) { return w.stream.lost; }},
    WorkerMetric{"kvcast_source_epochs_total", "Restarts of the engine.", kCounter,
                 [](W w) { return w.wire.restarts; }},
    WorkerMetric{"kvcast_source_losses_total",
                 "Resets of the state because lost batches could not be replayed.", kCounter,
                 [](W w) { return w.wire.losses; }},
    WorkerMetric{"kvcast_source_replay_timeouts_total",
                 "Replay requests without a complete reply in time.", kCounter,
                 [](W w) { return w.stream.replay_timeouts; }},
    WorkerMetric{"kvcast_source_snapshots_total", "Snapshots applied.", kCounter,
                 [](W w) { return w.stream.snapshots; }},
    WorkerMetric{"kvcast_source_snapshot_failures_total",
                 "Snapshots that could not be received or applied.", kCounter,
                 [](W w) { return w.stream.snapshot_failures; }},
    WorkerMetric{"kvcast_source_digest_checks_total",
                 "Comparisons of the state with the publisher's digest.", kCounter,
                 [](W w) { return w.stream.digest_checks; }},
    WorkerMetric{"kvcast_source_digest_mismatches_total",
                 "Comparisons of the state that found a difference; each one is a bug.", kCounter,
                 [](W w) { return w.stream.digest_mismatches; }},
    WorkerMetric{"kvcast_source_repairs_total",
                 "Repairs of the state that replaced only the buckets that differed.", kCounter,
                 [](W w) { return w.stream.repairs; }},
    WorkerMetric{"kvcast_source_repair_failures_total", "Repairs of the state that failed.",
                 kCounter, [](W w) { return w.stream.repair_failures; }},
    WorkerMetric{"kvcast_source_quarantines_total",
                 "Times the source was quarantined because its state was wrong repeatedly.",
                 kCounter, [](W w) { return w.stream.quarantines; }},
    WorkerMetric{"kvcast_source_reconnects_total", "Reconnections to the publisher.", kCounter,
                 [](W w) { return w.stream.reconnects; }},
    WorkerMetric{"kvcast_source_bad_messages_total", "Messages with invalid frames.", kCounter,
                 [](W w) { return w.stream.bad_messages; }},
    WorkerMetric{"kvcast_source_other_rank_batches_total",
                 "Batches of other ranks on an endpoint that several ranks share.", kCounter,
                 [](W w) { return w.wire.other_rank_batches; }},
    WorkerMetric{"kvcast_source_untagged_batches_total",
                 "Batches with events but without a rank on an endpoint that several ranks share.",
                 kCounter, [](W w) { return w.wire.untagged_batches; }},
    WorkerMetric{"kvcast_feed_answers_total", "Answered polls and accepted pushes.", kCounter,
                 [](W w) { return w.feed.answers; }},
    WorkerMetric{"kvcast_feed_failures_total",
                 "Polls that got no connection or a status other than 200.", kCounter,
                 [](W w) { return w.feed.failures; }},
    WorkerMetric{"kvcast_feed_cut_answers_total", "Polls whose answer was lost in transit.",
                 kCounter, [](W w) { return w.feed.cuts; }},
    WorkerMetric{"kvcast_source_next_sequence", "Sequence number of the next batch to apply.",
                 kGauge, [](W w) { return w.stream.next_seq; }},
};

constexpr std::array kWorkerMetrics = {
    WorkerMetric{"kvcast_wire_events_total", "Events decoded.", kCounter,
                 [](W w) { return w.wire.decode.decoded; }},
    WorkerMetric{"kvcast_wire_unknown_fields_total", "Unknown fields of events that were skipped.",
                 kCounter, [](W w) { return w.wire.decode.unknown_fields; }},
    WorkerMetric{"kvcast_wire_component_fields_total",
                 "Skipped fields that name the components of a block.", kCounter,
                 [](W w) { return w.wire.decode.component_fields; }},
    WorkerMetric{"kvcast_wire_undecodable_batches_total",
                 "Payloads that could not be decoded as a batch.", kCounter,
                 [](W w) { return w.wire.undecodable_batches; }},
    WorkerMetric{"kvcast_source_scheme_stores_total",
                 "Store events examined by the hash-scheme detector.", kCounter,
                 [](W w) { return w.scheme.stores; }},
    WorkerMetric{"kvcast_source_scheme_testable_stores_total",
                 "Store events whose hashes can be recomputed.", kCounter,
                 [](W w) { return w.scheme.testable; }},
    WorkerMetric{"kvcast_source_scheme_matched_stores_total",
                 "Tested store events whose hashes match the scheme.", kCounter,
                 [](W w) { return w.scheme.matched; }},
    WorkerMetric{"kvcast_source_scheme_mismatched_stores_total",
                 "Tested store events whose hashes do not match the scheme.", kCounter,
                 [](W w) { return w.scheme.mismatched; }},
    WorkerMetric{"kvcast_source_scheme_inconclusive_stores_total",
                 "Tested store events that prove nothing about the scheme.", kCounter,
                 [](W w) { return w.scheme.inconclusive; }},
    WorkerMetric{"kvcast_source_scheme_changes_total", "Changes of the detected hash scheme.",
                 kCounter, [](W w) { return w.scheme.changes; }},
    WorkerMetric{"kvcast_source_scheme_hashes_total",
                 "Hashes computed by the hash-scheme detector.", kCounter,
                 [](W w) { return w.scheme.hashes; }},
    WorkerMetric{"kvcast_index_stored_blocks_total", "Block copies stored in the index.", kCounter,
                 [](W w) { return w.index.stored_blocks; }},
    WorkerMetric{"kvcast_index_removed_blocks_total", "Block copies removed from the index.",
                 kCounter, [](W w) { return w.index.removed_blocks; }},
    WorkerMetric{"kvcast_index_clears_total", "AllBlocksCleared events applied.", kCounter,
                 [](W w) { return w.index.clears; }},
    WorkerMetric{"kvcast_index_unknown_removes_total",
                 "Removes of block hashes that the worker did not hold.", kCounter,
                 [](W w) { return w.index.unknown_removes; }},
    WorkerMetric{"kvcast_index_bad_events_total",
                 "Events that contradict the known KV-cache groups.", kCounter,
                 [](W w) { return w.index.bad_events; }},
    WorkerMetric{"kvcast_index_unknown_kinds_total",
                 "Events of groups whose kind has no reuse rule.", kCounter,
                 [](W w) { return w.index.unknown_kinds; }},
    WorkerMetric{"kvcast_index_assumed_kinds_total",
                 "Store events without a kind, treated as full attention.", kCounter,
                 [](W w) { return w.index.assumed_kinds; }},
    WorkerMetric{"kvcast_index_reannounced_blocks_total",
                 "Stored block hashes that only announce a prefix cache hit again.", kCounter,
                 [](W w) { return w.index.reannounced_blocks; }},
    WorkerMetric{"kvcast_index_residencies", "Residencies held: (tier, group, block hash) entries.",
                 kGauge, [](W w) { return w.index.residencies; }},
};

constexpr std::array kLoadMetrics = {
    WorkerMetric{"kvcast_route_active_prefill_tokens",
                 "Prompt tokens of routed requests that are not computed yet.", kGauge,
                 [](W w) { return static_cast<uint64_t>(w.load.active_prefill_tokens); }},
    WorkerMetric{"kvcast_route_decode_blocks", "Blocks of routed requests that are decoding.",
                 kGauge, [](W w) { return static_cast<uint64_t>(w.load.decode_blocks); }},
    WorkerMetric{"kvcast_route_queued_requests",
                 "Requests in the worker's queue, as reported by feedback.", kGauge,
                 [](W w) { return static_cast<uint64_t>(w.load.queued_requests); }},
};

// A metric of the service as a whole.
struct ServiceMetric {
  const char* name;
  const char* help;
  MetricType type;
  uint64_t (*read)(const ServiceMetrics&);
};
using M = const ServiceMetrics&;

constexpr std::array kServiceMetrics = {
    ServiceMetric{"kvcast_queries_total", "Queries answered.", kCounter,
                  [](M m) { return m.queries; }},
    ServiceMetric{"kvcast_bad_queries_total", "Queries refused with an error.", kCounter,
                  [](M m) { return m.bad_queries; }},
    ServiceMetric{"kvcast_routes_total", "Requests routed.", kCounter,
                  [](M m) { return m.routing.decisions; }},
    ServiceMetric{"kvcast_route_speculative_choices_total",
                  "Requests routed to a worker that was expected to hold more blocks than it held.",
                  kCounter, [](M m) { return m.routing.speculative_choices; }},
    ServiceMetric{"kvcast_route_bookings", "Routed requests that have not finished.", kGauge,
                  [](M m) { return m.routing.bookings; }},
    ServiceMetric{"kvcast_route_expired_bookings_total",
                  "Bookings of routed requests that expired without feedback.", kCounter,
                  [](M m) { return m.routing.expired_bookings; }},
    ServiceMetric{"kvcast_route_speculative_hashes",
                  "Block hashes that routed requests are expected to store soon.", kGauge,
                  [](M m) { return m.routing.speculative_hashes; }},
    ServiceMetric{"kvcast_reuse_compared_total", "Requests whose reuse was reported by feedback.",
                  kCounter, [](M m) { return m.routing.compared; }},
    ServiceMetric{"kvcast_reuse_equal_total",
                  "Reported requests that reused exactly the predicted tokens.", kCounter,
                  [](M m) { return m.routing.equal; }},
    ServiceMetric{"kvcast_reuse_predicted_tokens_total",
                  "Tokens that the reported requests were predicted to reuse.", kCounter,
                  [](M m) { return m.routing.predicted_tokens; }},
    ServiceMetric{"kvcast_reuse_real_tokens_total", "Tokens that the reported requests reused.",
                  kCounter, [](M m) { return m.routing.reused_tokens; }},
    ServiceMetric{"kvcast_reuse_over_tokens_total",
                  "Tokens predicted but not reused by the reported requests.", kCounter,
                  [](M m) { return m.routing.over_tokens; }},
    ServiceMetric{"kvcast_reuse_under_tokens_total",
                  "Tokens reused but not predicted by the reported requests.", kCounter,
                  [](M m) { return m.routing.under_tokens; }},
    ServiceMetric{"kvcast_relay_batches_total", "Batches published by the relay.", kCounter,
                  [](M m) { return m.relay.batches; }},
    ServiceMetric{"kvcast_relay_messages_total", "Messages published by the relay.", kCounter,
                  [](M m) { return m.relay.messages; }},
    ServiceMetric{"kvcast_relay_unsent_bytes",
                  "Bytes of relay messages that at least one subscriber has not been sent.", kGauge,
                  [](M m) { return m.relay.unsent_bytes; }},
    ServiceMetric{"kvcast_relay_dropped_batches_total",
                  "Batches that the relay dropped or sent only in part.", kCounter,
                  [](M m) { return m.relay.dropped; }},
    ServiceMetric{"kvcast_http_connections", "Open HTTP connections.", kGauge,
                  [](M m) { return m.http.connections; }},
    ServiceMetric{"kvcast_http_connections_accepted_total", "HTTP connections accepted.", kCounter,
                  [](M m) { return m.http.accepted; }},
    ServiceMetric{"kvcast_http_connections_evicted_total",
                  "HTTP connections closed to make room for others.", kCounter,
                  [](M m) { return m.http.evicted; }},
    ServiceMetric{"kvcast_http_timeouts_total",
                  "HTTP requests and replies that exceeded their time limit.", kCounter,
                  [](M m) { return m.http.timed_out; }},
    ServiceMetric{"kvcast_http_refused_for_room_total",
                  "HTTP requests refused because of the memory limit.", kCounter,
                  [](M m) { return m.http.refused_bytes; }},
    ServiceMetric{"kvcast_http_held_bytes", "Bytes of HTTP requests and replies in memory.", kGauge,
                  [](M m) { return m.http.held_bytes; }},
};

constexpr std::array kNamingMetrics = {
    WorkerMetric{"kvcast_unnamed_blocks", "Residencies held whose block content is not known.",
                 kGauge, [](W w) { return w.index.unnamed; }},
    WorkerMetric{"kvcast_named_late_blocks_total",
                 "Blocks whose content became known after their store.", kCounter,
                 [](W w) { return w.index.named_late; }},
    WorkerMetric{"kvcast_ambiguous_names_total",
                 "Block hashes with two contents, and contents with two block hashes.", kCounter,
                 [](W w) { return w.index.ambiguous; }},
    WorkerMetric{"kvcast_bad_stores_total", "Store events whose fields contradict each other.",
                 kCounter, [](W w) { return w.index.bad_stores; }},
    WorkerMetric{
        "kvcast_dropped_stores_total",
        "Store events dropped while they waited for their parent block, because of the limit.",
        kCounter, [](W w) { return w.index.dropped_stores; }},
    WorkerMetric{"kvcast_sparse_rules_refuted_total",
                 "Sparse rules that a store event contradicted.", kCounter,
                 [](W w) { return w.index.rules_refuted; }},
    WorkerMetric{"kvcast_forgotten_names_total",
                 "Names of evicted blocks that were dropped because of the limit.", kCounter,
                 [](W w) { return w.index.forgotten_names; }},
    WorkerMetric{
        "kvcast_dropped_names_total",
        "Prompts whose block names, found by queries, were dropped because the queue was full.",
        kCounter, [](W w) { return w.wire.dropped_names; }},
    WorkerMetric{"kvcast_source_scheme_contradictions_total",
                 "Store events whose hash contradicts the proven scheme.", kCounter,
                 [](W w) { return w.scheme.contradictions; }},
};

ClientMetric Sample(MetricType type, Labels labels, uint64_t value) {
  ClientMetric metric;
  metric.label = std::move(labels);
  const auto number = static_cast<double>(value);
  if (type == MetricType::Counter) {
    metric.counter.value = number;
  } else {
    metric.gauge.value = number;
  }
  return metric;
}

MetricFamily HitFamily(const RoutingCounters& routing) {
  MetricFamily family{"kvcast_route_hits_total",
                      "Routed requests by the hit of the chosen worker: full, partial or miss.",
                      kCounter,
                      {}};
  for (const HitKind hit : {HitKind::kFull, HitKind::kPartial, HitKind::kMiss}) {
    family.metric.push_back(Sample(kCounter, {{"hit", std::string(HitName(hit))}},
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

MetricFamily AgeFamily(const std::vector<WorkerMetrics>& workers) {
  MetricFamily family{"kvcast_source_event_age_seconds",
                      "Seconds since the time stamp of the worker's last applied batch.",
                      kGauge,
                      {}};
  for (const WorkerMetrics& worker : workers) {
    if (!worker.event_age_seconds) continue;
    ClientMetric metric = Sample(kGauge, {{"worker", worker.name}}, 0);
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

MetricFamily FamilyOf(const WorkerMetric& entry, const std::vector<WorkerMetrics>& workers) {
  MetricFamily family{entry.name, entry.help, entry.type, {}};
  for (const WorkerMetrics& worker : workers) {
    family.metric.push_back(Sample(entry.type, {{"worker", worker.name}}, entry.read(worker)));
  }
  return family;
}

MetricFamily StateFamily(const std::vector<WorkerMetrics>& workers) {
  MetricFamily family{"kvcast_source_state",
                      "1 for the current state of the source, 0 for all others.",
                      kGauge,
                      {}};
  constexpr std::array kStates = {SourceState::kConnecting, SourceState::kBootstrap,
                                  SourceState::kSynced,     SourceState::kGap,
                                  SourceState::kSuspect,    SourceState::kCleared,
                                  SourceState::kStale,      SourceState::kQuarantined};
  for (const WorkerMetrics& worker : workers) {
    for (const SourceState state : kStates) {
      Labels labels = {{"worker", worker.name}, {"state", std::string(SourceStateName(state))}};
      family.metric.push_back(Sample(kGauge, std::move(labels), worker.state == state));
    }
  }
  return family;
}

MetricFamily SchemeStateFamily(const std::vector<WorkerMetrics>& workers) {
  MetricFamily family{"kvcast_source_scheme_state",
                      "1 for the current state of the hash-scheme detection, 0 for all others.",
                      kGauge,
                      {}};
  for (const WorkerMetrics& worker : workers) {
    for (size_t i = 0; i < kSchemeStates; ++i) {
      const auto state = static_cast<SchemeState>(i);
      Labels labels = {{"worker", worker.name}, {"state", std::string(SchemeStateName(state))}};
      family.metric.push_back(Sample(kGauge, std::move(labels), worker.verdict.state == state));
    }
  }
  return family;
}

MetricFamily SchemeInfoFamily(const std::vector<WorkerMetrics>& workers) {
  MetricFamily family{"kvcast_source_scheme_info",
                      "The hash scheme of the worker's stores, in the labels; the value is 1.",
                      kGauge,
                      {}};
  for (const WorkerMetrics& worker : workers) {
    if (!worker.verdict.scheme) continue;
    const ChainScheme& scheme = *worker.verdict.scheme;
    Labels labels = {{"worker", worker.name},
                     {"algorithm", std::string(HashAlgorithmName(scheme.algorithm))},
                     {"seed", scheme.seed},
                     {"hash_block_size", std::to_string(scheme.hash_block_size)}};
    family.metric.push_back(Sample(kGauge, std::move(labels), 1));
  }
  return family;
}

MetricFamily SchemeSkipFamily(const std::vector<WorkerMetrics>& workers) {
  MetricFamily family{"kvcast_source_scheme_skipped_stores_total",
                      "Store events whose hashes cannot be recomputed, by reason.",
                      kCounter,
                      {}};
  for (const WorkerMetrics& worker : workers) {
    for (size_t i = 0; i < kSchemeSkips; ++i) {
      const std::string_view reason = SchemeSkipName(static_cast<SchemeSkip>(i));
      Labels labels = {{"worker", worker.name}, {"reason", std::string(reason)}};
      family.metric.push_back(Sample(kCounter, std::move(labels), worker.scheme.skipped[i]));
    }
  }
  return family;
}

MetricFamily UnnamedFamily(const std::vector<WorkerMetrics>& workers) {
  MetricFamily family{"kvcast_unnamed_stored_blocks_total",
                      "Stored blocks whose content stayed unknown, by reason.",
                      kCounter,
                      {}};
  for (const WorkerMetrics& worker : workers) {
    for (size_t i = 0; i < kUnnamedReasons; ++i) {
      const std::string_view reason = UnnamedReasonName(static_cast<UnnamedReason>(i));
      Labels labels = {{"worker", worker.name}, {"reason", std::string(reason)}};
      family.metric.push_back(Sample(kCounter, std::move(labels), worker.index.unnamed_blocks[i]));
    }
  }
  return family;
}

MetricFamily RejectFamily(const std::vector<WorkerMetrics>& workers) {
  MetricFamily family{"kvcast_wire_rejected_events_total",
                      "Events that could not be decoded, by reason.",
                      kCounter,
                      {}};
  for (const WorkerMetrics& worker : workers) {
    for (size_t i = 0; i < kRejectReasons; ++i) {
      const std::string_view reason = RejectName(static_cast<Reject>(i));
      Labels labels = {{"worker", worker.name}, {"reason", std::string(reason)}};
      family.metric.push_back(Sample(kCounter, std::move(labels), worker.wire.decode.rejected[i]));
    }
  }
  return family;
}

// Counts the events of a format that the index cannot use.
MetricFamily LeftOutFamily(const std::vector<WorkerMetrics>& workers) {
  MetricFamily family{"kvcast_format_left_out_total",
                      "Events, blocks or objects of a format that were left out, by reason.",
                      kCounter,
                      {}};
  const auto add = [&family](const WorkerMetrics& worker, const char* format, const char* reason,
                             uint64_t count) {
    Labels labels = {{"worker", worker.name}, {"format", format}, {"reason", reason}};
    family.metric.push_back(Sample(kCounter, std::move(labels), count));
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

}  // namespace

std::string RenderMetrics(const ServiceMetrics& metrics) {
  std::vector<MetricFamily> families;
  for (const ServiceMetric& entry : kServiceMetrics) {
    families.push_back(
        {entry.name, entry.help, entry.type, {Sample(entry.type, {}, entry.read(metrics))}});
  }
  families.push_back(HitFamily(metrics.routing));
  if (metrics.latency != nullptr) {
    families.push_back(LatencyFamily("kvcast_query_duration_seconds",
                                     "Seconds to answer a query, without HTTP.", *metrics.latency));
  }
  if (metrics.decision_latency != nullptr) {
    families.push_back(LatencyFamily("kvcast_decision_duration_seconds",
                                     "Seconds to choose a worker, with the query and without HTTP.",
                                     *metrics.decision_latency));
  }
  const std::array<std::span<const WorkerMetric>, 4> by_worker = {kStreamMetrics, kWorkerMetrics,
                                                                  kNamingMetrics, kLoadMetrics};
  for (const std::span<const WorkerMetric> metrics_of_kind : by_worker) {
    for (const WorkerMetric& entry : metrics_of_kind) {
      families.push_back(FamilyOf(entry, metrics.workers));
    }
  }
  using InTier = const GroupTally::InTier&;
  families.push_back(BlockFamily(
      "kvcast_blocks", "Block copies held: announced and not removed.", kGauge,
      [](InTier t) { return static_cast<uint64_t>(t.held); }, metrics.workers));
  families.push_back(BlockFamily(
      "kvcast_blocks_stored_total", "Block copies announced.", kCounter,
      [](InTier t) { return t.stored; }, metrics.workers));
  families.push_back(BlockFamily(
      "kvcast_blocks_removed_total", "Block copies announced as removed.", kCounter,
      [](InTier t) { return t.removed; }, metrics.workers));
  families.push_back(AgeFamily(metrics.workers));
  families.push_back(StateFamily(metrics.workers));
  families.push_back(RejectFamily(metrics.workers));
  families.push_back(LeftOutFamily(metrics.workers));
  families.push_back(SchemeStateFamily(metrics.workers));
  families.push_back(SchemeInfoFamily(metrics.workers));
  families.push_back(SchemeSkipFamily(metrics.workers));
  families.push_back(UnnamedFamily(metrics.workers));
  AddReuseFamilies(metrics.workers, families);
  AddLoadRateFamilies(metrics.workers, families);
  std::ostringstream page;
  prometheus::TextSerializer().Serialize(page, families);
  return page.str();
}

}  // namespace kvcast::router
