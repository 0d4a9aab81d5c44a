// SPDX-License-Identifier: Apache-2.0
#include "router/service/api/indexer_requests.h"

#include <utility>

#include "router/service/api/source_json.h"
#include "router/service/json/json_fields.h"

namespace kvcast::router {
namespace {

constexpr int kFieldDepth = 3;

Status ReadInstance(const Json& json, WorkerSelection& selection) {
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
Status ReadSelection(const std::string& name, const Json& value, WorkerSelection& selection,
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

Status CheckSelection(const WorkerSelection& selection) {
  if (selection.instance.empty()) return BadField("instance_id: required");
  return selection.model.empty() ? BadField("model_name: required") : Status();
}

std::string Unknown(const std::string& name) {
  return "unknown member: " + name.substr(0, kMaxTextBytes);
}

// Escapes slashes, so that different selections have different names. Only the model in a name may
// contain slashes.
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

}  // namespace

Result<WorkerRegistration> ParseRegistration(std::string_view body) {
  const Result<Json> json = ParseObject(body, kFieldDepth);
  if (!json.ok()) return json.status();
  WorkerRegistration source;
  WorkerSelection selection;
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

Result<WorkerSelection> ParseWorkerSelection(std::string_view body) {
  const Result<Json> json = ParseObject(body, kFieldDepth);
  if (!json.ok()) return json.status();
  WorkerSelection selection;
  for (const auto& [name, value] : json->items()) {
    bool taken = false;
    if (Status status = ReadSelection(name, value, selection, taken); !status.ok()) return status;
    if (!taken) return BadField(Unknown(name));
  }
  if (Status status = CheckSelection(selection); !status.ok()) return status;
  return selection;
}

Result<Query> ParseIndexerQuery(std::string_view body, bool by_hash) {
  const char* const prompt_member = by_hash ? "block_hashes" : "token_ids";
  Result<Prompt> read = by_hash ? TakePrompt(body, {.hashes = prompt_member})
                                : TakePrompt(body, {.tokens = prompt_member});
  if (!read.ok()) return read.status();
  Prompt prompt = std::move(read).value();
  const Result<Json> json = ParseObject(prompt.taken() ? prompt.rest : body, kFieldDepth);
  if (!json.ok()) return json.status();
  if (!json->contains(prompt_member)) return BadField(std::string(prompt_member) + ": required");
  Query query = std::move(prompt.query);
  query.routing_group = "default";
  for (const auto& [name, value] : json->items()) {
    Status status;
    int64_t ignored = 0;
    if (name == prompt_member && prompt.taken()) continue;
    if (name == prompt_member) {
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

}  // namespace kvcast::router
