// SPDX-License-Identifier: Apache-2.0
#include "router/service/metrics/metric_tables.h"

#include <array>

namespace kvcast::router {
namespace {

constexpr auto kCounter = prometheus::MetricType::Counter;
constexpr auto kGauge = prometheus::MetricType::Gauge;
using W = const WorkerMetrics&;

constexpr std::array kStreamMetrics = {
    WorkerMetric{"kvcast_source_batches_total",
                 "Batches that the router processed in the order of their sequence numbers, since "
                 "the worker was registered.",
                 kCounter, [](W w) { return w.stream.batches; }},
    WorkerMetric{
        "kvcast_source_apply_seconds_total",
        "Time in seconds to decode and apply the worker's batches, since the worker was "
        "registered. The other workers of the same ingestion thread wait during this time, unless "
        "another thread applies the batch. Another thread applies large batches and the batches of "
        "slow sources.",
        kCounter, [](W w) { return static_cast<uint64_t>(w.wire.apply_ns); }, 1e-9},
    WorkerMetric{
        "kvcast_source_oversized_total",
        "Times that the router dropped all blocks of the worker because of a limit, since the "
        "worker was registered. There are three limits: the max_residencies of the worker, the "
        "number of block copies of the worker, and the "
        "max_residencies of the router for all workers together. If all workers together exceed "
        "the limit of the router, each worker may hold at most the limit divided by the number of "
        "workers. The router drops the blocks of a worker above this share when it applies the "
        "next batch of the worker.",
        kCounter, [](W w) { return w.wire.oversized; }},
    WorkerMetric{"kvcast_source_gaps_total",
                 "Gaps in the sequence numbers of live batches, since the worker was registered. "
                 "A gap shows that batches were lost in transit, or that the publisher could not "
                 "encode a batch. A batch received over HTTP counts as a gap if it shows that "
                 "events are missing.",
                 kCounter, [](W w) { return w.stream.gaps; }},
    WorkerMetric{"kvcast_source_replays_total",
                 "Requests sent to the publisher's replay endpoint (replays, snapshots, repairs, "
                 "status requests and challenges), since the worker was registered.",
                 kCounter, [](W w) { return w.stream.replays; }},
    WorkerMetric{"kvcast_source_replayed_batches_total",
                 "Batches received by replay, since the worker was registered. Batches that the "
                 "router had already processed do not count.",
                 kCounter, [](W w) { return w.stream.replayed; }},
    WorkerMetric{"kvcast_source_duplicate_batches_total",
                 "Live batches whose sequence numbers the router had already passed, since the "
                 "worker was registered. The router had received these batches, had applied a "
                 "snapshot that contains them, or had counted them as lost.",
                 kCounter, [](W w) { return w.stream.duplicates; }},
    WorkerMetric{
        "kvcast_source_resets_total",
        "Times that the router dropped the state of the worker and continued without a snapshot, "
        "since the worker was registered. Two cases do not count: a payload received over HTTP "
        "could not be decoded, or the decoder of the format trtllm dropped the blocks.",
        kCounter, [](W w) { return w.stream.resets; }},
    WorkerMetric{"kvcast_source_lost_batches_total",
                 "Batches that the router skipped because it received them neither live nor by "
                 "replay, since the worker was registered. Batches before the first applied batch "
                 "after a join or a reset do not count.",
                 kCounter, [](W w) { return w.stream.lost; }},
    WorkerMetric{
        "kvcast_source_epochs_total",
        "Restarts of the engine that the router detected or had to assume, since the worker was "
        "registered.",
        kCounter, [](W w) { return w.wire.restarts; }},
    WorkerMetric{"kvcast_source_losses_total",
                 "Times that the router reset the worker for another reason than a restart of the "
                 "engine, since the worker was registered. Such reasons are lost batches or "
                 "events, blocks that may be wrong, and too many blocks.",
                 kCounter, [](W w) { return w.wire.losses; }},
    WorkerMetric{"kvcast_source_replay_timeouts_total",
                 "Requests to the publisher's replay endpoint that the router cancelled, since the "
                 "worker was registered. The causes are: no frame of the reply arrived in time, "
                 "the connection ended, or the request used its replay slot for too long.",
                 kCounter, [](W w) { return w.stream.replay_timeouts; }},
    WorkerMetric{"kvcast_source_snapshots_total",
                 "Snapshots of the publisher that the router applied to the index, since the "
                 "worker was registered.",
                 kCounter, [](W w) { return w.stream.snapshots; }},
    WorkerMetric{"kvcast_source_snapshot_failures_total",
                 "Snapshots of the publisher that could not be received or applied, since the "
                 "worker was registered.",
                 kCounter, [](W w) { return w.stream.snapshot_failures; }},
    WorkerMetric{
        "kvcast_source_digest_checks_total",
        "Comparisons of the worker's blocks in the index with the publisher's digests, since the "
        "worker was registered. Comparisons without a result count too. There is no result in "
        "three cases: the router has no digests of its own for the sequence number of the "
        "publisher's digests, the router did not apply some events, or several ranks share the "
        "endpoint.",
        kCounter, [](W w) { return w.stream.digest_checks; }},
    WorkerMetric{"kvcast_source_digest_mismatches_total",
                 "Comparisons in which the worker's blocks in the index differed from the "
                 "publisher's digests, since the worker was registered.",
                 kCounter, [](W w) { return w.stream.digest_mismatches; }},
    WorkerMetric{"kvcast_source_repairs_total",
                 "Repairs of the worker's blocks in the index that replaced only the digest "
                 "buckets that differed, since the worker was registered.",
                 kCounter, [](W w) { return w.stream.repairs; }},
    WorkerMetric{"kvcast_source_repair_failures_total",
                 "Failed repairs of digest buckets of the worker's blocks in the index, since the "
                 "worker was registered.",
                 kCounter, [](W w) { return w.stream.repair_failures; }},
    WorkerMetric{"kvcast_source_quarantines_total",
                 "Times that the router quarantined the worker, since the worker was registered. "
                 "The causes are several snapshot failures, several detections of wrong blocks, or "
                 "too many blocks (kvcast_source_oversized_total).",
                 kCounter, [](W w) { return w.stream.quarantines; }},
    WorkerMetric{"kvcast_source_reconnects_total",
                 "Reconnections to the publisher, since the worker was registered.", kCounter,
                 [](W w) { return w.stream.reconnects; }},
    WorkerMetric{"kvcast_source_failed_handshakes_total",
                 "Connections to the publisher that ended before they were established, since the "
                 "worker was registered. The peer has a wrong key or no key, does not accept the "
                 "router's key, or is not a publisher.",
                 kCounter, [](W w) { return w.stream.failed_handshakes; }},
    WorkerMetric{"kvcast_source_insecure",
                 "1 if the source is registered as insecure (its events are neither encrypted nor "
                 "authenticated), otherwise 0.",
                 kGauge, [](W w) { return uint64_t{w.insecure}; }},
    WorkerMetric{
        "kvcast_source_bad_messages_total",
        "Invalid messages of the publisher, since the worker was registered. Such a "
        "message has invalid frames, does not end, is an invalid status reply, is a batch "
        "in the reply to a status request, or is the second batch in the answer to a challenge.",
        kCounter, [](W w) { return w.stream.bad_messages; }},
    WorkerMetric{"kvcast_source_other_rank_batches_total",
                 "Batches of other ranks and empty batches without a rank, received on an endpoint "
                 "that several ranks share, since the worker was registered.",
                 kCounter, [](W w) { return w.wire.other_rank_batches; }},
    WorkerMetric{"kvcast_source_untagged_batches_total",
                 "Batches with events but without a rank, received on an endpoint that several "
                 "ranks share, since the worker was registered.",
                 kCounter, [](W w) { return w.wire.untagged_batches; }},
    WorkerMetric{
        "kvcast_feed_answers_total",
        "Polls of events over HTTP that were answered with status 200, and pushes of events that "
        "the router received, since the worker was registered.",
        kCounter, [](W w) { return w.feed.answers; }},
    WorkerMetric{"kvcast_feed_failures_total",
                 "Polls of events over HTTP that got no connection or a status other than 200, "
                 "since the worker was registered.",
                 kCounter, [](W w) { return w.feed.failures; }},
    WorkerMetric{"kvcast_feed_cut_answers_total",
                 "Polls of events over HTTP that got a connection but no complete answer, since "
                 "the worker was registered.",
                 kCounter, [](W w) { return w.feed.cuts; }},
    WorkerMetric{"kvcast_source_replay_waits_total",
                 "Requests to the publisher's replay endpoint that had to wait until requests "
                 "for other workers ended, since the worker was registered.",
                 kCounter, [](W w) { return w.stream.replay_waits; }},
    WorkerMetric{"kvcast_source_lag_batches",
                 "Current number of batches that are known to exist and that the router has not "
                 "processed.",
                 kGauge, [](W w) { return w.stream.lag; }},
    WorkerMetric{"kvcast_source_next_sequence",
                 "Sequence number of the next batch that the router will process.", kGauge,
                 [](W w) { return w.stream.next_seq; }},
};

constexpr std::array kEventMetrics = {
    WorkerMetric{"kvcast_wire_events_total", "Events decoded, since the worker was registered.",
                 kCounter, [](W w) { return w.wire.decode.decoded; }},
    WorkerMetric{"kvcast_wire_unknown_fields_total",
                 "Unknown event fields that the decoder skipped, since the worker was registered.",
                 kCounter, [](W w) { return w.wire.decode.unknown_fields; }},
    WorkerMetric{
        "kvcast_wire_component_fields_total",
        "Event fields of SGLang that the decoder skipped, since the worker was registered. "
        "Such a field lists the components of the block (full, swa, mamba).",
        kCounter, [](W w) { return w.wire.decode.component_fields; }},
    WorkerMetric{"kvcast_wire_undecodable_batches_total",
                 "Payloads that could not be decoded as a batch, since the worker was registered.",
                 kCounter, [](W w) { return w.wire.undecodable_batches; }},
    WorkerMetric{"kvcast_source_scheme_stores_total",
                 "Store events given to the hash-scheme detector, since the worker was registered.",
                 kCounter, [](W w) { return w.scheme.stores; }},
    WorkerMetric{"kvcast_source_scheme_testable_stores_total",
                 "Store events whose block hashes the hash-scheme detector can recompute, since "
                 "the worker was registered.",
                 kCounter, [](W w) { return w.scheme.testable; }},
    WorkerMetric{
        "kvcast_source_scheme_matched_stores_total",
        "Tested store events whose block hashes match the detected hash scheme, since the worker "
        "was registered. The hash-scheme detector tests a sample of the testable store events.",
        kCounter, [](W w) { return w.scheme.matched; }},
    WorkerMetric{"kvcast_source_scheme_mismatched_stores_total",
                 "Tested store events whose block hashes match no known hash scheme, or another "
                 "scheme than the registered or detected one, since the worker was registered.",
                 kCounter, [](W w) { return w.scheme.mismatched; }},
    WorkerMetric{"kvcast_source_scheme_inconclusive_stores_total",
                 "Tested store events that neither confirm nor contradict a hash scheme, since the "
                 "worker was registered.",
                 kCounter, [](W w) { return w.scheme.inconclusive; }},
    WorkerMetric{
        "kvcast_source_scheme_changes_total",
        "Changes of the detected hash scheme to another scheme, since the worker was registered.",
        kCounter, [](W w) { return w.scheme.changes; }},
    WorkerMetric{"kvcast_source_scheme_hashes_total",
                 "Hashes that the hash-scheme detector computed, since the worker was registered.",
                 kCounter, [](W w) { return w.scheme.hashes; }},
    WorkerMetric{"kvcast_index_stored_blocks_total",
                 "Block hashes in the store events that the index applied, since the worker was "
                 "registered. A hash that the worker already holds counts again.",
                 kCounter, [](W w) { return w.index.stored_blocks; }},
    WorkerMetric{
        "kvcast_index_removed_blocks_total",
        "Block copies that remove events deleted from the index, since the worker was registered.",
        kCounter, [](W w) { return w.index.removed_blocks; }},
    WorkerMetric{"kvcast_index_clears_total",
                 "AllBlocksCleared events that the index applied, since the worker was registered.",
                 kCounter, [](W w) { return w.index.clears; }},
    WorkerMetric{"kvcast_index_unknown_removes_total",
                 "Block hashes in remove events for blocks that the worker did not hold, since the "
                 "worker was registered.",
                 kCounter, [](W w) { return w.index.unknown_removes; }},
    WorkerMetric{"kvcast_index_bad_events_total",
                 "Events ignored because their group or block size is invalid or contradicts the "
                 "known KV-cache groups, since the worker was registered.",
                 kCounter, [](W w) { return w.index.bad_events; }},
    WorkerMetric{"kvcast_index_unknown_kinds_total",
                 "Events not indexed because the router has no rule for the kind of their KV-cache "
                 "group, or because the group is registered without prefix caching, since the "
                 "worker was registered.",
                 kCounter, [](W w) { return w.index.unknown_kinds; }},
    WorkerMetric{"kvcast_index_assumed_kinds_total",
                 "Store events of the GPU tier, for KV-cache groups whose kind is neither "
                 "registered nor named by an event so far, since the worker was registered. The "
                 "router treats such a group as full attention.",
                 kCounter, [](W w) { return w.index.assumed_kinds; }},
    WorkerMetric{"kvcast_index_reannounced_blocks_total",
                 "Block hashes not indexed again because their store events only report a prefix "
                 "cache hit, since the worker was registered.",
                 kCounter, [](W w) { return w.index.reannounced_blocks; }},
    WorkerMetric{"kvcast_index_residencies",
                 "Current number of index entries (tier, group, block hash) of the worker.", kGauge,
                 [](W w) { return w.index.residencies; }},
};

constexpr std::array kLoadMetrics = {
    WorkerMetric{"kvcast_route_active_prefill_tokens",
                 "Current number of prompt tokens that the worker must compute, according to the "
                 "router's predictions. It is the sum over the worker's routed requests without a "
                 "reported first token. Requests with book=false do not count.",
                 kGauge, [](W w) { return static_cast<uint64_t>(w.load.active_prefill_tokens); }},
    WorkerMetric{"kvcast_route_decode_blocks",
                 "Current number of prompt blocks of the routed requests in the decode phase on "
                 "the worker. A block has hash_block_size tokens, or 16 tokens if hash_block_size "
                 "is smaller. Requests with book=false do not count.",
                 kGauge, [](W w) { return static_cast<uint64_t>(w.load.decode_blocks); }},
    WorkerMetric{
        "kvcast_route_queued_requests",
        "Current number of requests in the worker's queue, according to the latest feedback.",
        kGauge, [](W w) { return static_cast<uint64_t>(w.load.queued_requests); }},
};

constexpr std::array kNamingMetrics = {
    WorkerMetric{"kvcast_unnamed_blocks",
                 "Current number of the worker's index entries (tier, group, block hash) with "
                 "unknown block content.",
                 kGauge, [](W w) { return w.index.unnamed; }},
    WorkerMetric{"kvcast_named_late_blocks_total",
                 "Stored blocks whose content became known only after their store event, since the "
                 "worker was registered.",
                 kCounter, [](W w) { return w.index.named_late; }},
    WorkerMetric{"kvcast_ambiguous_names_total",
                 "Times that a block content was marked as ambiguous, because events gave one hash "
                 "two contents or one content two hashes, since the worker was registered.",
                 kCounter, [](W w) { return w.index.ambiguous; }},
    WorkerMetric{"kvcast_bad_stores_total",
                 "Store events whose tokens, block hashes or sizes contradict each other, since "
                 "the worker was registered.",
                 kCounter, [](W w) { return w.index.bad_stores; }},
    WorkerMetric{"kvcast_dropped_stores_total",
                 "Store events that the index dropped because too many events or too many tokens "
                 "waited for the content of their parent block, since the worker was registered.",
                 kCounter, [](W w) { return w.index.dropped_stores; }},
    WorkerMetric{
        "kvcast_sparse_rules_refuted_total",
        "Store events that contradicted the configured sparse rule (the rule that states "
        "which blocks of a window group the engine caches), since the worker was registered. "
        "After such an event, the router does not use the rule until the engine restarts.",
        kCounter, [](W w) { return w.index.rules_refuted; }},
    WorkerMetric{
        "kvcast_forgotten_names_total",
        "Names (hash and content) of evicted blocks that the router replaced by newer names, since "
        "the worker was registered. If the worker stores such a block again without its tokens, "
        "the content of the block may be unknown.",
        kCounter, [](W w) { return w.index.forgotten_names; }},
    WorkerMetric{"kvcast_dropped_names_total",
                 "Queries whose computed block contents the router dropped because the worker's "
                 "queue of block contents was full, since the worker was registered. The router "
                 "uses these contents to name blocks whose content is not known.",
                 kCounter, [](W w) { return w.wire.dropped_names; }},
    WorkerMetric{"kvcast_source_challenges_total",
                 "Challenges sent to the publisher, since the worker was registered. The answer to "
                 "a challenge shows the hash scheme of the engine.",
                 kCounter, [](W w) { return w.wire.challenges.sent; }},
    WorkerMetric{"kvcast_source_challenge_rejects_total",
                 "Answers to challenges that the router rejected because they are malformed or "
                 "belong to another challenge, since the worker was registered.",
                 kCounter, [](W w) { return w.wire.challenges.rejected; }},
    WorkerMetric{"kvcast_source_scheme_contradictions_total",
                 "Store events that contradict the hash scheme of the worker, since the worker was "
                 "registered. Earlier store events proved this scheme for blocks with the same "
                 "kind of extra keys.",
                 kCounter, [](W w) { return w.scheme.contradictions; }},
};

using M = const ServiceMetrics&;

constexpr double Number(uint64_t count) { return static_cast<double>(count); }

constexpr std::array kServiceMetrics = {
    ServiceMetric{"kvcast_queries_total",
                  "Queries answered without an error, including the queries of routing decisions, "
                  "since the router started.",
                  kCounter, [](M m) { return Number(m.queries); }},
    ServiceMetric{"kvcast_bad_queries_total",
                  "Queries and routing requests refused with an error, since the router started.",
                  kCounter, [](M m) { return Number(m.bad_queries); }},
    ServiceMetric{"kvcast_routes_total",
                  "Requests routed to a worker, since the router started. Requests with book=false "
                  "do not count.",
                  kCounter, [](M m) { return Number(m.routing.decisions); }},
    ServiceMetric{"kvcast_route_speculative_choices_total",
                  "Routed requests whose speculative prefix on the chosen worker was longer than "
                  "the GPU prefix in the index, since the router started. A speculative prefix is "
                  "a prefix that the worker is expected to store soon. Requests with book=false do "
                  "not count.",
                  kCounter, [](M m) { return Number(m.routing.speculative_choices); }},
    ServiceMetric{"kvcast_route_bookings",
                  "Current number of routed requests that have neither finished nor expired. "
                  "Requests with book=false do not count.",
                  kGauge, [](M m) { return Number(m.routing.bookings); }},
    ServiceMetric{"kvcast_route_expired_bookings_total",
                  "Routed requests that expired, since the router started. A request expires if no "
                  "feedback reports its end in time, or if too many requests are unfinished.",
                  kCounter, [](M m) { return Number(m.routing.expired_bookings); }},
    ServiceMetric{"kvcast_route_speculative_hashes",
                  "Current number of prefixes of routed prompts that workers are expected to store "
                  "soon (a sample of the prefixes of each prompt). An entry expires if no store "
                  "event confirms it in time.",
                  kGauge, [](M m) { return Number(m.routing.speculative_hashes); }},
    ServiceMetric{
        "kvcast_reuse_compared_total",
        "Routed requests whose reused tokens were reported by feedback, since the router started.",
        kCounter, [](M m) { return Number(m.routing.compared); }},
    ServiceMetric{"kvcast_reuse_equal_total",
                  "Routed requests that reused exactly the predicted number of tokens, according "
                  "to feedback, since the router started.",
                  kCounter, [](M m) { return Number(m.routing.equal); }},
    ServiceMetric{"kvcast_reuse_predicted_tokens_total",
                  "Tokens that the router predicted to be reused, summed over the routed requests "
                  "with feedback, since the router started.",
                  kCounter, [](M m) { return Number(m.routing.predicted_tokens); }},
    ServiceMetric{"kvcast_reuse_real_tokens_total",
                  "Tokens that the engines reused, summed over the routed requests with feedback, "
                  "since the router started.",
                  kCounter, [](M m) { return Number(m.routing.reused_tokens); }},
    ServiceMetric{"kvcast_reuse_over_tokens_total",
                  "Tokens that the router predicted to be reused but the engine did not reuse, "
                  "summed over the routed requests with feedback, since the router started.",
                  kCounter, [](M m) { return Number(m.routing.over_tokens); }},
    ServiceMetric{"kvcast_reuse_under_tokens_total",
                  "Tokens that the engine reused in addition to the predicted tokens, summed over "
                  "the routed requests with feedback, since the router started.",
                  kCounter, [](M m) { return Number(m.routing.under_tokens); }},
    ServiceMetric{"kvcast_route_first_tokens_total",
                  "Routed requests whose first token was reported by feedback, since the router "
                  "started.",
                  kCounter, [](M m) { return Number(m.routing.first_tokens); }},
    ServiceMetric{"kvcast_route_predicted_first_token_seconds_total",
                  "Predicted seconds from the routing decision to the first token, summed over the "
                  "routed requests with a reported first token, since the router started.",
                  kCounter, [](M m) { return m.routing.predicted_first_token_s; }},
    ServiceMetric{"kvcast_route_real_first_token_seconds_total",
                  "Seconds from the routing decision to the report of the first token, summed over "
                  "the routed requests with a reported first token, since the router started.",
                  kCounter, [](M m) { return m.routing.first_token_s; }},
    ServiceMetric{"kvcast_route_first_token_error_seconds_total",
                  "Absolute difference between the predicted and the reported time to first token, "
                  "in seconds, summed over the routed requests with a reported first token, since "
                  "the router started.",
                  kCounter, [](M m) { return m.routing.first_token_error_s; }},
    ServiceMetric{"kvcast_relay_batches_total",
                  "Batches that the relay published completely, since the router started.",
                  kCounter, [](M m) { return Number(m.relay.batches); }},
    ServiceMetric{"kvcast_relay_messages_total",
                  "Messages that the relay published, since the router started.", kCounter,
                  [](M m) { return Number(m.relay.messages); }},
    ServiceMetric{"kvcast_relay_unsent_bytes",
                  "Current number of bytes of relay messages that wait to be sent to a subscriber.",
                  kGauge, [](M m) { return Number(m.relay.unsent_bytes); }},
    ServiceMetric{
        "kvcast_relay_dropped_batches_total",
        "Batches that the relay dropped or published only in part, since the router started.",
        kCounter, [](M m) { return Number(m.relay.dropped); }},
    ServiceMetric{"kvcast_relay_refused_without_key_total",
                  "Connections to the relay that were refused because the peer does not use CURVE, "
                  "since the router started.",
                  kCounter, [](M m) { return Number(m.relay.refused.no_key); }},
    ServiceMetric{"kvcast_relay_refused_wrong_server_key_total",
                  "Connections to the relay that were refused because the peer uses a wrong public "
                  "key for the router, since the router started.",
                  kCounter, [](M m) { return Number(m.relay.refused.wrong_server_key); }},
    ServiceMetric{"kvcast_relay_refused_not_allowed_total",
                  "Connections to the relay that were refused because the list of clients does not "
                  "give the required role to the peer's key, since the router started.",
                  kCounter, [](M m) { return Number(m.relay.refused.not_allowed); }},
    ServiceMetric{
        "kvcast_relay_broken_handshakes_total",
        "Connections to the relay that ended before the relay had read a key, or whose peer does "
        "not use the ZeroMQ protocol, since the router started.",
        kCounter, [](M m) { return Number(m.relay.refused.broken); }},
    ServiceMetric{"kvcast_relay_flooding_peers_total",
                  "Connections to the relay that the router closed because the peer sent more than "
                  "64 KiB of subscriptions (64 bytes per second do not count), or more than 64 KiB "
                  "of a message that did not end, "
                  "since the router started.",
                  kCounter, [](M m) { return Number(m.relay.flooding_peers); }},
    ServiceMetric{"kvcast_relay_access_list_failures_total",
                  "Failed reloads of the file with the relay's client list (the file is missing or "
                  "invalid), since the router started.",
                  kCounter, [](M m) { return Number(m.relay.access_list_failures); }},
    ServiceMetric{"kvcast_log_lines_total", "Lines written to the log, since the router started.",
                  kCounter, [](M m) { return Number(m.log.lines); }},
    ServiceMetric{
        "kvcast_log_suppressed_lines_total",
        "Lines left out of the log because one event or source had too many lines, since the "
        "router started.",
        kCounter, [](M m) { return Number(m.log.suppressed); }},
    ServiceMetric{"kvcast_log_lost_lines_total",
                  "Log lines that were not written because the queue was full or the output "
                  "failed, since the router started.",
                  kCounter, [](M m) { return Number(m.log.lost); }},
    ServiceMetric{"kvcast_http_connections", "Current number of open HTTP connections.", kGauge,
                  [](M m) { return Number(m.http.counters.connections); }},
    ServiceMetric{"kvcast_http_connections_accepted_total",
                  "Accepted HTTP connections, since the router started.", kCounter,
                  [](M m) { return Number(m.http.counters.accepted); }},
    ServiceMetric{"kvcast_http_connections_evicted_total",
                  "HTTP connections that the router closed because too many connections were open "
                  "or no file descriptor was free, since the router started.",
                  kCounter, [](M m) { return Number(m.http.counters.evicted); }},
    ServiceMetric{
        "kvcast_http_timeouts_total",
        "HTTP requests and replies that exceeded their time limit, since the router started.",
        kCounter, [](M m) { return Number(m.http.counters.timed_out); }},
    ServiceMetric{"kvcast_http_refused_for_room_total",
                  "HTTP requests refused and HTTP replies ended because the memory limit for "
                  "requests or for replies was reached, since the router started.",
                  kCounter, [](M m) { return Number(m.http.counters.refused_bytes); }},
    ServiceMetric{"kvcast_http_abandoned_total",
                  "HTTP requests that the router dropped after at least one second of waiting, "
                  "because the client had closed the connection or its sending side, since the "
                  "router started.",
                  kCounter, [](M m) { return Number(m.http.counters.abandoned); }},
    ServiceMetric{"kvcast_http_held_bytes",
                  "Current number of bytes of HTTP requests and replies in memory.", kGauge,
                  [](M m) { return Number(m.http.counters.held_bytes); }},
};

}  // namespace

std::span<const ServiceMetric> ServiceMetricTable() { return kServiceMetrics; }
std::span<const WorkerMetric> StreamMetricTable() { return kStreamMetrics; }
std::span<const WorkerMetric> EventMetricTable() { return kEventMetrics; }
std::span<const WorkerMetric> NamingMetricTable() { return kNamingMetrics; }
std::span<const WorkerMetric> LoadMetricTable() { return kLoadMetrics; }

}  // namespace kvcast::router
