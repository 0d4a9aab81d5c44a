// SPDX-License-Identifier: Apache-2.0
#include "router/service/api/state_json.h"

#include <algorithm>

#include "router/service/api/reuse_json.h"
#include "router/service/json/json_fields.h"

namespace kvcast::router {
namespace {

Json GroupsJson(const ServiceCore& core, const FleetWorker& worker) {
  const std::vector<GroupSpec> specs = core.index.Groups(worker.id);
  const std::vector<GroupTally> tallies = worker.source->group_tallies();
  Json groups = Json::array();
  for (size_t i = 0; i < std::max(specs.size(), tallies.size()); ++i) {
    const GroupSpec spec =
        i < specs.size() ? specs[i] : GroupSpec{.kind = SpecKind::kUnknown, .block_size = 0};
    Json tiers = Json::object();
    for (int tier = 0; i < tallies.size() && tier < kTiers; ++tier) {
      const GroupTally::InTier& tally = tallies[i].tiers[static_cast<size_t>(tier)];
      if (tally.stored == 0 && tally.removed == 0) continue;
      tiers[TierName(static_cast<Tier>(tier))] = {
          {"held", tally.held}, {"stored", tally.stored}, {"removed", tally.removed}};
    }
    groups.push_back({{"group", i},
                      {"kind", SpecKindName(spec.kind)},
                      {"block_size", spec.block_size},
                      {"sliding_window", spec.sliding_window},
                      {"tiers", std::move(tiers)}});
  }
  return groups;
}

Json WorkerJson(const ServiceCore& core, const FleetWorker& worker, double now) {
  const SourceStatus stream = core.fleet->stream(worker.id);
  const SourceCounters counters = worker.source->counters();
  const auto verdict = worker.source->verdict();
  const WorkerLoad load = core.request_router->load(worker.id);
  const IndexCounters index = core.index.counters(worker.id);
  Json age = nullptr;
  if (const auto ts = worker.source->last_batch_ts()) age = std::max(0.0, now - *ts);
  Json json = {{"name", worker.config.worker.name},
               {"model", worker.config.model},
               {"instance_id", worker.config.instance},
               {"routing_group", worker.config.routing_group},
               {"data_parallel_rank", worker.config.data_parallel_rank},
               {"endpoint", worker.config.endpoint},
               {"state", SourceStateName(worker.source->State(stream.state))},
               {"hint", SourceHint(stream)},
               {"security", SecurityOf(worker.config)},
               {"failed_handshakes", stream.failed_handshakes},
               {"next_seq", stream.next_seq},
               {"event_age_seconds", std::move(age)},
               {"named_by", core.index.ShapeOf(worker.id).has_named ? "content" : "scheme"},
               {"unnamed_blocks", index.unnamed},
               {"ambiguous", index.ambiguous},
               {"scheme", SchemeStateName(verdict->state)},
               {"scheme_reason", verdict->reason},
               {"gaps", stream.gaps},
               {"lost", stream.lost},
               {"batches", stream.batches},
               {"restarts", counters.restarts},
               {"rejected_events", counters.decode.rejected_total()},
               {"residencies", index.residencies}};
  json["load"] = {{"active_prefill_tokens", load.active_prefill_tokens},
                  {"decode_blocks", load.decode_blocks},
                  {"peer_prefill_tokens", load.peer_prefill_tokens},
                  {"peer_requests", load.peer_requests},
                  {"queued_requests", load.queued_requests}};
  json["load_rates"] = LoadRatesToJson(worker.load_rates->view(core.steady_ms()));
  json["groups"] = GroupsJson(core, worker);
  json["reuse"] = ReuseJson(core.reuse.diagnosis(worker.id), core.index.Groups(worker.id),
                            core.reuse.totals(worker.id));
  return json;
}

Json RoutingJson(const RoutingCounters& counters) {
  return {{"decisions", counters.decisions},
          {"hits",
           {{"full", counters.hits[static_cast<size_t>(HitKind::kFull)]},
            {"partial", counters.hits[static_cast<size_t>(HitKind::kPartial)]},
            {"miss", counters.hits[static_cast<size_t>(HitKind::kMiss)]}}},
          {"bookings", counters.bookings},
          {"compared", counters.compared},
          {"equal", counters.equal},
          {"predicted_tokens", counters.predicted_tokens},
          {"reused_tokens", counters.reused_tokens},
          {"first_tokens", counters.first_tokens},
          {"predicted_first_token_s", counters.predicted_first_token_s},
          {"first_token_s", counters.first_token_s},
          {"first_token_error_s", counters.first_token_error_s}};
}

// The other routers; see LoadSharing.
Json PeersJson(const ServiceCore& core) {
  const auto peers = core.request_router->peers(static_cast<double>(core.steady_ms()));
  Json age = nullptr;
  if (peers && peers->age_ms) age = *peers->age_ms;
  return {{"router", core.load_sharing->config().name},
          {"routers", peers ? peers->routers : 0},
          {"age_ms", std::move(age)}};
}

}  // namespace

Json StateJson(const ServiceCore& core) {
  Json workers = Json::array();
  for (const FleetView view = core.fleet->view(); const auto& worker : view->workers) {
    workers.push_back(WorkerJson(core, *worker, core.now()));
  }
  Json state = {{"workers", std::move(workers)},
                {"routing", RoutingJson(core.request_router->counters())},
                {"queries", core.answered.load()},
                {"bad_queries", core.refused.load()}};
  if (core.load_sharing) state["peers"] = PeersJson(core);
  return state;
}

}  // namespace kvcast::router
