// SPDX-License-Identifier: Apache-2.0
#include "router/service/api/indexer_api.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "router/service/api/index_dump.h"
#include "router/service/api/source_json.h"
#include "router/service/json/json_fields.h"
#include "router/service/route/query.h"

namespace kvcast::router {
namespace {

constexpr int kFieldDepth = 3;

// The workers that a request selects.
struct Selection {
  std::string instance;
  bool instance_is_number = false;
  std::string model;
  std::string routing_group = "default";
  std::optional<int64_t> rank;
};

Status ReadInstance(const Json& json, Selection& selection) {
  if (const auto number = Int64Of(json); number && *number >= 0) {
    selection.instance = std::to_string(*number);
    selection.instance_is_number = true;
    return Status();
  }
  if (!json.is_string() || json.get_ref<const std::string&>().empty()) {
    return BadField("instance_id: must be a non-empty string or a non-negative integer");
  }
  return ReadText(json, "instance_id", selection.instance);
}

// Sets `taken` to false if `name` is not a member of a selection.
Status ReadSelection(const std::string& name, const Json& value, Selection& selection,
                     bool& taken) {
  taken = true;
  if (name == "instance_id") return ReadInstance(value, selection);
  if (name == "model_name") return ReadText(value, name, selection.model);
  if (name == "routing_group" || name == "tenant_id") {
    return ReadText(value, name, selection.routing_group);
  }
  if (name == "dp_rank") return ReadInteger(value, name, 0, selection.rank.emplace());
  taken = false;
  return Status();
}

Status CheckSelection(const Selection& selection) {
  if (selection.instance.empty()) return BadField("instance_id: required");
  return selection.model.empty() ? BadField("model_name: required") : Status();
}

std::string Unknown(const std::string& name) {
  return "unknown member: " + name.substr(0, kMaxTextBytes);
}

// Escapes slashes, so that unlike selections have unlike names. The model is the only part with
// slashes.
std::string WithoutSlashes(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '/') {
      escaped += "%2F";
    } else if (c == '%') {
      escaped += "%25";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

Result<WorkerRegistration> ParseRegistration(std::string_view body) {
  const Result<Json> json = ParseObject(body, kFieldDepth);
  if (!json.ok()) return json.status();
  WorkerRegistration source;
  Selection selection;
  for (const auto& [name, value] : json->items()) {
    bool taken = false;
    Status status = ReadSelection(name, value, selection, taken);
    if (name == "endpoint") {
      status = ReadText(value, name, source.endpoint);
    } else if (name == "replay_endpoint") {
      if (!value.is_null()) status = ReadText(value, name, source.replay_endpoint);
    } else if (name == "server_key") {
      status = ReadText(value, name, source.server_key);
    } else if (name == "insecure") {
      status = ReadBool(value, name, source.insecure);
    } else if (name == "block_size") {
      status = ReadInteger(value, name, 1, source.block_size);
    } else if (name == "additional_salt") {
      // Content keys do not include this salt. Without the check, queries of two tenants would
      // match each other's blocks.
      if (!value.is_null() && value != "") status = BadField(name + ": not supported");
    } else if (!taken) {
      status = BadField(Unknown(name));
    }
    if (!status.ok()) return status;
  }
  if (Status status = CheckSelection(selection); !status.ok()) return status;
  if (source.endpoint.empty()) return BadField("endpoint: required");
  if (Status status = CheckFormat(source); !status.ok()) return status;
  if (source.block_size == 0) return BadField("block_size: required");
  source.instance = selection.instance;
  source.instance_is_number = selection.instance_is_number;
  source.model = selection.model;
  source.routing_group = selection.routing_group;
  source.data_parallel_rank = selection.rank.value_or(0);
  source.worker.name = WithoutSlashes(selection.routing_group) + "/" + selection.model + "/" +
                       WithoutSlashes(selection.instance) + "/" +
                       std::to_string(source.data_parallel_rank);
  return source;
}

Result<Selection> ParseSelection(std::string_view body) {
  const Result<Json> json = ParseObject(body, kFieldDepth);
  if (!json.ok()) return json.status();
  Selection selection;
  for (const auto& [name, value] : json->items()) {
    bool taken = false;
    if (Status status = ReadSelection(name, value, selection, taken); !status.ok()) return status;
    if (!taken) return BadField(Unknown(name));
  }
  if (Status status = CheckSelection(selection); !status.ok()) return status;
  return selection;
}

Result<Query> ParseFieldQuery(std::string_view body, bool by_hash) {
  const char* const prompt = by_hash ? "block_hashes" : "token_ids";
  Result<Prompt> read =
      by_hash ? TakePrompt(body, {.hashes = prompt}) : TakePrompt(body, {.tokens = prompt});
  if (!read.ok()) return read.status();
  Prompt taken = std::move(read).value();
  const Result<Json> json = ParseObject(taken.taken() ? taken.rest : body, kFieldDepth);
  if (!json.ok()) return json.status();
  if (!json->contains(prompt)) return BadField(std::string(prompt) + ": required");
  Query query = std::move(taken.query);
  query.routing_group = "default";
  for (const auto& [name, value] : json->items()) {
    Status status;
    int64_t ignored = 0;
    if (name == prompt && taken.taken()) continue;
    if (name == prompt) {
      status = by_hash ? ReadQueryHashes(value, name, query) : ReadQueryTokens(value, name, query);
    } else if (name == "model_name") {
      status = ReadText(value, name, query.model);
    } else if (name == "routing_group" || name == "tenant_id") {
      status = ReadText(value, name, query.routing_group);
    } else if (name == "block_size") {
      status = ReadInteger(value, name, 1, ignored);  // every worker has its own block size
    } else if (!by_hash && name == "lora_name") {
      if (!value.is_null()) status = ReadText(value, name, query.inputs.lora_name);
    } else if (!by_hash && name == "cache_salt") {
      if (!value.is_null()) status = ReadText(value, name, query.inputs.cache_salt);
    } else {
      status = BadField(Unknown(name));
    }
    if (!status.ok()) return status;
  }
  if (query.model.empty()) return BadField("model_name: required");
  return query;
}

std::string RenderScores(const FleetList& fleet, const std::vector<QueryAnswer>& answers) {
  Json scores = Json::object();
  Json instances = Json::object();
  for (const QueryAnswer& answer : answers) {
    const auto worker = fleet.Find(answer.name);
    if (worker == nullptr) continue;
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
  if (!source.ok()) return ErrorReply(source.status());
  const Status checked = CheckSource(*source, core.policy, SourceOrigin::kHttp);
  if (!checked.ok()) return ErrorReply(checked);
  if (Status status = core.fleet->Add(*source, AddedBy::kClient); !status.ok()) {
    return ErrorReply(status);
  }
  return JsonReply(Dump({{"status", "ok"}, {"worker", source->worker.name}}), 201);
}

HttpReply Unregister(ServiceCore& core, const HttpRequest& request) {
  const auto selection = ParseSelection(request.body);
  if (!selection.ok()) return ErrorReply(selection.status());
  int removed = 0;
  for (const FleetView view = core.fleet->view(); const auto& worker : view->workers) {
    const WorkerRegistration& config = worker->config;
    if (InstanceOf(config) != selection->instance || config.model != selection->model ||
        config.routing_group != selection->routing_group ||
        (selection->rank && *selection->rank != config.data_parallel_rank)) {
      continue;
    }
    removed += core.fleet->Remove(config.worker.name).ok();
  }
  if (removed == 0) return HttpError(404, "instance_id: no such worker");
  return JsonReply(Dump({{"status", "ok"}, {"removed", removed}}));
}

HttpReply AnswerFieldQuery(ServiceCore& core, const HttpRequest& request, bool by_hash) {
  const auto query = ParseFieldQuery(request.body, by_hash);
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

std::vector<HttpRoute> FieldRoutes(ServiceCore& core) {
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
       kMaxQueryBytes, kQueries},
      {kPost, "/query_by_hash", [&core](R r) { return AnswerFieldQuery(core, r, true); }, kQuery,
       kMaxQueryBytes, kQueries},
      {kGet, "/dump", [&core](R r) { return DumpIndex(core, r); }, kObserver, kSmall, kChanges},
      {kGet, "/health",
       [](R) {
         return JsonReply(Dump({{"status", "ok"}}));
       },
       kHealth, kSmall, std::nullopt},
  };
}

}  // namespace kvcast::router
