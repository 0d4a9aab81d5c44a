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
    WorkerMetric{"kvcast_source_batches_total", "Batches applied.", kCounter,
                 [](W w) { return w.stream.batches; }},
    WorkerMetric{"kvcast_source_gaps_total",
                 "Gaps in the sequence numbers: batches that were dropped, or that the publisher "
                 "could not encode.",
                 kCounter, [](W w) { return w.stream.gaps; }},
    WorkerMetric{"kvcast_source_replays_total", "Replay requests sent.", kCounter,
                 [](W w) { return w.stream.replays; }},
    WorkerMetric{"kvcast_source_replayed_batches_total", "Batches that came by replay.", kCounter,
                 [](W w) { return w.stream.replayed; }},
    WorkerMetric{"kvcast_source_duplicate_batches_total", "Batches that came twice.", kCounter,
                 [](W w) { return w.stream.duplicates; }},
    WorkerMetric{"kvcast_source_resets_total", "Times the learned state was dropped.", kCounter,
                 [](W w) { return w.stream.resets; }},
    WorkerMetric{"kvcast_source_lost_batches_total",
                 "Sequence numbers that never came, by replay neither.", kCounter,
                 [](W w) { return w.stream.lost; }},
    WorkerMetric{"kvcast_source_epochs_total", "Lives of the engine that ended.", kCounter,
                 [](W w) { return w.wire.restarts; }},
    WorkerMetric{"kvcast_source_losses_total", "Resets because batches were lost for good.",
                 kCounter, [](W w) { return w.wire.losses; }},
    WorkerMetric{"kvcast_source_replay_timeouts_total", "Replay requests not answered in time.",
                 kCounter, [](W w) { return w.stream.replay_timeouts; }},
    WorkerMetric{"kvcast_source_snapshots_total", "States taken over whole.", kCounter,
                 [](W w) { return w.stream.snapshots; }},
    WorkerMetric{"kvcast_source_snapshot_failures_total", "Snapshots that could not be had.",
                 kCounter, [](W w) { return w.stream.snapshot_failures; }},
    WorkerMetric{"kvcast_source_digest_checks_total", "States compared with the publisher's.",
                 kCounter, [](W w) { return w.stream.digest_checks; }},
    WorkerMetric{"kvcast_source_digest_mismatches_total",
                 "States that differed: each one is a bug.", kCounter,
                 [](W w) { return w.stream.digest_mismatches; }},
    WorkerMetric{"kvcast_source_repairs_total", "States mended by the buckets that differed.",
                 kCounter, [](W w) { return w.stream.repairs; }},
    WorkerMetric{"kvcast_source_repair_failures_total", "States that could not be mended so.",
                 kCounter, [](W w) { return w.stream.repair_failures; }},
    WorkerMetric{"kvcast_source_quarantines_total", "Times a state was wrong again and again.",
                 kCounter, [](W w) { return w.stream.quarantines; }},
    WorkerMetric{"kvcast_source_reconnects_total", "Connections that were made again.", kCounter,
                 [](W w) { return w.stream.reconnects; }},
    WorkerMetric{"kvcast_source_bad_messages_total", "Messages with broken frames.", kCounter,
                 [](W w) { return w.stream.bad_messages; }},
    WorkerMetric{"kvcast_source_other_rank_batches_total",
                 "Batches of other ranks on an endpoint that several share.", kCounter,
                 [](W w) { return w.wire.other_rank_batches; }},
    WorkerMetric{"kvcast_source_untagged_batches_total",
                 "Batches with events and without a rank on such an endpoint.", kCounter,
                 [](W w) { return w.wire.untagged_batches; }},
    WorkerMetric{"kvcast_feed_answers_total", "Polls answered, and pushes taken.", kCounter,
                 [](W w) { return w.feed.answers; }},
    WorkerMetric{"kvcast_feed_failures_total",
                 "Polls without a connection, or with a status other than 200.", kCounter,
                 [](W w) { return w.feed.failures; }},
    WorkerMetric{"kvcast_feed_cut_answers_total", "Polls whose answer was lost on its way.",
                 kCounter, [](W w) { return w.feed.cuts; }},
    WorkerMetric{"kvcast_source_next_sequence", "First sequence number not applied yet.", kGauge,
                 [](W w) { return w.stream.next_seq; }},
};

constexpr std::array kWorkerMetrics = {
    WorkerMetric{"kvcast_wire_events_total", "Events decoded.", kCounter,
                 [](W w) { return w.wire.decode.decoded; }},
    WorkerMetric{"kvcast_wire_unknown_fields_total", "Fields skipped.", kCounter,
                 [](W w) { return w.wire.decode.unknown_fields; }},
    WorkerMetric{"kvcast_wire_component_fields_total",
                 "Skipped fields that name the components of a block.", kCounter,
                 [](W w) { return w.wire.decode.component_fields; }},
    WorkerMetric{"kvcast_wire_undecodable_batches_total", "Payloads that are no batch.", kCounter,
                 [](W w) { return w.wire.undecodable_batches; }},
    WorkerMetric{"kvcast_source_scheme_stores_total", "Stores seen by the scheme check.", kCounter,
                 [](W w) { return w.scheme.stores; }},
    WorkerMetric{"kvcast_source_scheme_testable_stores_total", "Stores that can be hashed again.",
                 kCounter, [](W w) { return w.scheme.testable; }},
    WorkerMetric{"kvcast_source_scheme_matched_stores_total", "Tested stores that fit the scheme.",
                 kCounter, [](W w) { return w.scheme.matched; }},
    WorkerMetric{"kvcast_source_scheme_mismatched_stores_total", "Tested stores that do not.",
                 kCounter, [](W w) { return w.scheme.mismatched; }},
    WorkerMetric{"kvcast_source_scheme_inconclusive_stores_total",
                 "Tested stores that prove nothing.", kCounter,
                 [](W w) { return w.scheme.inconclusive; }},
    WorkerMetric{"kvcast_source_scheme_changes_total", "Times another scheme was found.", kCounter,
                 [](W w) { return w.scheme.changes; }},
    WorkerMetric{"kvcast_source_scheme_hashes_total", "Hashes computed by the scheme check.",
                 kCounter, [](W w) { return w.scheme.hashes; }},
    WorkerMetric{"kvcast_index_stored_blocks_total", "Block copies stored.", kCounter,
                 [](W w) { return w.index.stored_blocks; }},
    WorkerMetric{"kvcast_index_removed_blocks_total", "Block copies removed.", kCounter,
                 [](W w) { return w.index.removed_blocks; }},
    WorkerMetric{"kvcast_index_clears_total", "AllBlocksCleared events.", kCounter,
                 [](W w) { return w.index.clears; }},
    WorkerMetric{"kvcast_index_unknown_removes_total", "Removes of blocks not held.", kCounter,
                 [](W w) { return w.index.unknown_removes; }},
    WorkerMetric{"kvcast_index_bad_events_total", "Events against the known groups.", kCounter,
                 [](W w) { return w.index.bad_events; }},
    WorkerMetric{"kvcast_index_unknown_kinds_total", "Events of groups without a reuse rule.",
                 kCounter, [](W w) { return w.index.unknown_kinds; }},
    WorkerMetric{"kvcast_index_assumed_kinds_total", "Stores taken for full attention.", kCounter,
                 [](W w) { return w.index.assumed_kinds; }},
    WorkerMetric{"kvcast_index_reannounced_blocks_total", "Stored hashes that repeat a hit.",
                 kCounter, [](W w) { return w.index.reannounced_blocks; }},
    WorkerMetric{"kvcast_index_residencies", "Places (tier, group, hash) held.", kGauge,
                 [](W w) { return w.index.residencies; }},
};

constexpr std::array kLoadMetrics = {
    WorkerMetric{"kvcast_route_active_prefill_tokens", "Tokens routed and not computed yet.",
                 kGauge, [](W w) { return static_cast<uint64_t>(w.load.active_prefill_tokens); }},
    WorkerMetric{"kvcast_route_decode_blocks", "Blocks of routed requests that decode.", kGauge,
                 [](W w) { return static_cast<uint64_t>(w.load.decode_blocks); }},
    WorkerMetric{"kvcast_route_queued_requests", "Requests that wait, as reported.", kGauge,
                 [](W w) { return static_cast<uint64_t>(w.load.queued_requests); }},
};

// Of the service as a whole.
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
    ServiceMetric{"kvcast_bad_queries_total", "Queries refused.", kCounter,
                  [](M m) { return m.bad_queries; }},
    ServiceMetric{"kvcast_routes_total", "Requests routed.", kCounter,
                  [](M m) { return m.routing.decisions; }},
    ServiceMetric{"kvcast_route_speculative_choices_total",
                  "Requests routed to where more was expected than was there.", kCounter,
                  [](M m) { return m.routing.speculative_choices; }},
    ServiceMetric{"kvcast_route_bookings", "Routed requests that are not finished.", kGauge,
                  [](M m) { return m.routing.bookings; }},
    ServiceMetric{"kvcast_route_expired_bookings_total", "Bookings that no feedback ended.",
                  kCounter, [](M m) { return m.routing.expired_bookings; }},
    ServiceMetric{"kvcast_route_speculative_hashes", "Hashes that are expected soon.", kGauge,
                  [](M m) { return m.routing.speculative_hashes; }},
    ServiceMetric{"kvcast_reuse_compared_total", "Requests whose real reuse was fed back.",
                  kCounter, [](M m) { return m.routing.compared; }},
    ServiceMetric{"kvcast_reuse_equal_total", "Of them, those that reused what was predicted.",
                  kCounter, [](M m) { return m.routing.equal; }},
    ServiceMetric{"kvcast_reuse_predicted_tokens_total", "Tokens that were predicted for them.",
                  kCounter, [](M m) { return m.routing.predicted_tokens; }},
    ServiceMetric{"kvcast_reuse_real_tokens_total", "Tokens that they reused.", kCounter,
                  [](M m) { return m.routing.reused_tokens; }},
    ServiceMetric{"kvcast_reuse_over_tokens_total", "Tokens predicted and not reused.", kCounter,
                  [](M m) { return m.routing.over_tokens; }},
    ServiceMetric{"kvcast_reuse_under_tokens_total", "Tokens reused and not predicted.", kCounter,
                  [](M m) { return m.routing.under_tokens; }},
    ServiceMetric{"kvcast_relay_batches_total", "Batches published again.", kCounter,
                  [](M m) { return m.relay.batches; }},
    ServiceMetric{"kvcast_relay_messages_total", "Messages that they became.", kCounter,
                  [](M m) { return m.relay.messages; }},
    ServiceMetric{"kvcast_relay_unsent_bytes", "Of messages that some subscriber was not sent yet.",
                  kGauge, [](M m) { return m.relay.unsent_bytes; }},
    ServiceMetric{"kvcast_relay_dropped_batches_total", "Batches that the relay had no time for.",
                  kCounter, [](M m) { return m.relay.dropped; }},
    ServiceMetric{"kvcast_http_connections", "Open connections.", kGauge,
                  [](M m) { return m.http.connections; }},
    ServiceMetric{"kvcast_http_connections_accepted_total", "Connections accepted.", kCounter,
                  [](M m) { return m.http.accepted; }},
    ServiceMetric{"kvcast_http_connections_evicted_total", "Connections closed to make room.",
                  kCounter, [](M m) { return m.http.evicted; }},
    ServiceMetric{"kvcast_http_timeouts_total", "Requests and replies that took too long.",
                  kCounter, [](M m) { return m.http.timed_out; }},
    ServiceMetric{"kvcast_http_refused_for_room_total", "Requests refused for want of memory.",
                  kCounter, [](M m) { return m.http.refused_bytes; }},
    ServiceMetric{"kvcast_http_held_bytes", "Bytes of requests and replies that are held.", kGauge,
                  [](M m) { return m.http.held_bytes; }},
};

constexpr std::array kNamingMetrics = {
    WorkerMetric{"kvcast_unnamed_blocks", "Places held whose content is not known.", kGauge,
                 [](W w) { return w.index.unnamed; }},
    WorkerMetric{"kvcast_named_late_blocks_total",
                 "Blocks whose content became known after their store.", kCounter,
                 [](W w) { return w.index.named_late; }},
    WorkerMetric{"kvcast_ambiguous_names_total",
                 "Hashes with two contents, and contents with two hashes.", kCounter,
                 [](W w) { return w.index.ambiguous; }},
    WorkerMetric{"kvcast_bad_stores_total", "Stores whose fields do not fit together.", kCounter,
                 [](W w) { return w.index.bad_stores; }},
    WorkerMetric{"kvcast_dropped_stores_total",
                 "Stores that waited for the block before them and had to make room.", kCounter,
                 [](W w) { return w.index.dropped_stores; }},
    WorkerMetric{"kvcast_sparse_rules_refuted_total", "Sparse rules that a store contradicted.",
                 kCounter, [](W w) { return w.index.rules_refuted; }},
    WorkerMetric{"kvcast_forgotten_names_total", "Names of evicted blocks that had to make room.",
                 kCounter, [](W w) { return w.index.forgotten_names; }},
    WorkerMetric{"kvcast_dropped_names_total",
                 "Prompts whose names, found by queries, did not fit until the next batch.",
                 kCounter, [](W w) { return w.wire.dropped_names; }},
    WorkerMetric{"kvcast_source_scheme_contradictions_total",
                 "Stores whose hash does not fit the proven scheme.", kCounter,
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
                      "Requests by how much of what they could hit the chosen worker had.",
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
                      "Time since the worker's clock stamped its last applied batch.",
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

// One sample for each worker, tier and group that had blocks.
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
  MetricFamily family{"kvcast_source_state", "1 for the state the source is in.", kGauge, {}};
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
  MetricFamily family{
      "kvcast_source_scheme_state", "1 for what is known of the hash scheme.", kGauge, {}};
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
  MetricFamily family{
      "kvcast_source_scheme_info", "The hash scheme that the stores have.", kGauge, {}};
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
                      "Stores that cannot be hashed again.",
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
  MetricFamily family{
      "kvcast_unnamed_stored_blocks_total", "Stored blocks that stayed unnamed.", kCounter, {}};
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
  MetricFamily family{"kvcast_wire_rejected_events_total", "Events not decoded.", kCounter, {}};
  for (const WorkerMetrics& worker : workers) {
    for (size_t i = 0; i < kRejectReasons; ++i) {
      const std::string_view reason = RejectName(static_cast<Reject>(i));
      Labels labels = {{"worker", worker.name}, {"reason", std::string(reason)}};
      family.metric.push_back(Sample(kCounter, std::move(labels), worker.wire.decode.rejected[i]));
    }
  }
  return family;
}

// Events that a format brings and the index cannot use.
MetricFamily LeftOutFamily(const std::vector<WorkerMetrics>& workers) {
  MetricFamily family{"kvcast_format_left_out_total",
                      "Events, blocks or objects of a format that were left out.",
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
                                     "Time to answer a query, without HTTP.", *metrics.latency));
  }
  if (metrics.decision_latency != nullptr) {
    families.push_back(LatencyFamily("kvcast_decision_duration_seconds",
                                     "Time to choose a worker, its query included, without HTTP.",
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
      "kvcast_blocks", "Block copies announced and not removed.", kGauge,
      [](InTier t) { return static_cast<uint64_t>(t.held); }, metrics.workers));
  families.push_back(BlockFamily(
      "kvcast_blocks_stored_total", "Block copies announced.", kCounter,
      [](InTier t) { return t.stored; }, metrics.workers));
  families.push_back(BlockFamily(
      "kvcast_blocks_removed_total", "Block copies removed.", kCounter,
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
