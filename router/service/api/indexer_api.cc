// SPDX-License-Identifier: Apache-2.0
#include "router/service/api/indexer_api.h"

#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "router/service/api/index_dump.h"
#include "router/service/api/indexer_requests.h"
#include "router/service/api/source_change.h"
#include "router/service/json/json_fields.h"

namespace kvcast::router {
namespace {

std::string RenderScores(const FleetList& fleet, const std::vector<QueryAnswer>& answers) {
  Json scores = Json::object();
  Json instances = Json::object();
  absl::flat_hash_map<std::string_view, const FleetWorker*> by_name;
  for (const auto& worker : fleet.workers) by_name[worker->config.worker.name] = worker.get();
  for (const QueryAnswer& answer : answers) {
    const auto found = by_name.find(answer.name);
    if (found == by_name.end()) continue;
    const FleetWorker* const worker = found->second;
    const std::string& instance = InstanceOf(worker->config);
    const std::string rank = std::to_string(worker->config.data_parallel_rank);
    const WorkerMatch& match = answer.match;
    scores[instance][rank] = match.gpu_tokens;
    Json& entry = instances.emplace(instance, Json::object()).first.value();
    const auto raise = [&entry](const char* member, int64_t tokens) {
      entry[member] = std::max(entry.value(member, int64_t{0}), tokens);
    };
    raise("longest_matched", match.with_storage_tokens);
    raise("gpu", match.gpu_tokens);
    raise("cpu", match.with_cpu_tokens);
    raise("disk", match.with_storage_tokens);
    entry["dp"][rank] = match.gpu_tokens;
    entry["detail"][rank] = AnswerToJson(answer);
  }
  return Dump({{"scores", std::move(scores)},
               {"frequencies", Json::array()},
               {"instances", std::move(instances)}});
}

Json ListenerJson(const ServiceCore& core, const FleetWorker& worker) {
  const SourceState state = core.fleet->State(worker);
  Json last_error = nullptr;
  const bool pending = state == SourceState::kConnecting || state == SourceState::kBootstrap;
  if (!pending && state != SourceState::kSynced) {
    last_error = std::string(SourceStateName(state)) + ": " +
                 std::string(SourceReasonName(core.fleet->stream(worker.id).reason));
  }
  return {{"endpoint", worker.config.endpoint},
          {"status", pending ? "pending" : "active"},
          {"last_error", std::move(last_error)}};
}

HttpReply AnswerWorkers(const ServiceCore& core, const HttpRequest& request) {
  std::map<std::tuple<std::string, std::string, std::string>, Json> instances;
  for (const FleetView view = core.fleet->view(); const auto& worker : view->workers) {
    const WorkerRegistration& config = worker->config;
    if (!IsWanted(request, config)) continue;
    Json& entry = instances[{config.model, config.routing_group, InstanceOf(config)}];
    Json listener = ListenerJson(core, *worker);
    if (entry.is_null()) {
      entry["instance_id"] = InstanceJson(config);
      entry["model_name"] = config.model;
      entry["routing_group"] = config.routing_group;
      entry["source"] = "zmq";
      entry["status"] = "active";
      entry["block_size"] = BlockSizeOf(core, *worker);
    }
    if (listener["status"] == "pending") entry["status"] = "pending";
    const std::string rank = std::to_string(config.data_parallel_rank);
    entry["endpoints"][rank] = config.endpoint;
    entry["listeners"][rank] = std::move(listener);
  }
  Json list = Json::array();
  for (auto& [key, entry] : instances) list.push_back(std::move(entry));
  return JsonReply(Dump(list));
}

HttpReply Register(ServiceCore& core, const HttpRequest& request) {
  const auto source = ParseRegistration(request.body);
  if (!source.ok()) return RefuseSource(core, request, "", source.status());
  if (const auto refusal = AddForClient(core, request, *source)) return *refusal;
  return JsonReply(Dump({{"status", "ok"}, {"worker", source->worker.name}}), 201);
}

HttpReply Unregister(ServiceCore& core, const HttpRequest& request) {
  const auto selection = ParseWorkerSelection(request.body);
  if (!selection.ok()) return ErrorReply(selection.status());
  int removed = 0;
  for (const FleetView view = core.fleet->view(); const auto& worker : view->workers) {
    const WorkerRegistration& config = worker->config;
    if (InstanceOf(config) != selection->instance || config.model != selection->model ||
        config.routing_group != selection->routing_group ||
        (selection->rank && *selection->rank != config.data_parallel_rank)) {
      continue;
    }
    removed += RemoveForClient(core, request, config.worker.name).ok();
  }
  if (removed == 0) return HttpError(404, "instance_id: no such worker");
  return JsonReply(Dump({{"status", "ok"}, {"removed", removed}}));
}

HttpReply AnswerFieldQuery(ServiceCore& core, const HttpRequest& request, bool by_hash) {
  const auto query = ParseIndexerQuery(request.body, by_hash);
  if (!query.ok()) {
    ++core.refused;
    return ErrorReply(query.status());
  }
  const FleetView view = core.fleet->view();
  const auto answers = core.Ask(*query, view);
  if (!answers.ok()) return ErrorReply(answers.status());
  return JsonReply(RenderScores(*view, *answers));
}

}  // namespace

std::vector<HttpRoute> IndexerRoutes(ServiceCore& core) {
  using R = const HttpRequest&;
  using enum HttpRoute::Method;
  using enum HttpRoute::Lane;
  constexpr size_t kSmall = HttpRoute::kSmallBody;
  constexpr auto kQueries = AccessRole::kQuery;
  constexpr auto kReads = AccessRole::kObserve;
  constexpr auto kChanges = AccessRole::kAdmin;
  return {
      {kPost, "/register", [&core](R r) { return Register(core, r); }, kChange, kSmall, kChanges},
      {kPost, "/unregister", [&core](R r) { return Unregister(core, r); }, kChange, kSmall,
       kChanges},
      {kGet, "/workers", [&core](R r) { return AnswerWorkers(core, r); }, kObserver, kSmall,
       kReads},
      {kPost, "/query", [&core](R r) { return AnswerFieldQuery(core, r, false); }, kQuery,
       kMaxQueryBytes, kQueries, true},
      {kPost, "/query_by_hash", [&core](R r) { return AnswerFieldQuery(core, r, true); }, kQuery,
       kMaxQueryBytes, kQueries, true},
      {kGet, "/dump", [&core](R r) { return DumpIndex(core, r); }, kObserver, kSmall, kChanges},
      {kGet, "/health",
       [](R) {
         return JsonReply(Dump({{"status", "ok"}}));
       },
       kHealth, kSmall, std::nullopt},
  };
}

}  // namespace kvcast::router
