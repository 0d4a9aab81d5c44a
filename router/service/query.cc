// SPDX-License-Identifier: Apache-2.0
#include "router/service/query.h"

#include <optional>
#include <utility>

#include "router/service/json_fields.h"

namespace kvcast::router {
namespace {

// An object, its arrays and their elements: nothing deeper has a meaning here.
constexpr int kMaxDepth = 3;

std::string At(const std::string& member, size_t index) {
  return member + "[" + std::to_string(index) + "]";
}

Status ReadRouteMember(const std::string& name, const Json& value, Query& query) {
  if (name == "request_id") return ReadText(value, name, query.request_id);
  if (name == "book") return ReadBool(value, name, query.book);
  if (name == "temperature") {
    return ReadNumber(value, name, 0, kMaxTemperature, query.temperature.emplace());
  }
  return BadField("unknown member: " + name.substr(0, kMaxQueryTextBytes));
}

Status ReadMember(const std::string& name, const Json& value, QueryForm form, Query& query) {
  if (name == "tokens") return ReadQueryTokens(value, name, query);
  if (name == "hashes") return ReadQueryHashes(value, name, query);
  if (name == "lora_name") return ReadText(value, name, query.inputs.lora_name);
  if (name == "cache_salt") return ReadText(value, name, query.inputs.cache_salt);
  if (name == "prompt_tokens") return ReadInteger(value, name, 1, query.prompt_tokens);
  if (name == "hash_block_size") return ReadInteger(value, name, 1, query.hash_block_size);
  if (name == "workers") return ReadTexts(value, name, query.workers);
  if (name == "model") return ReadText(value, name, query.model);
  if (name == "routing_group") return ReadText(value, name, query.routing_group);
  if (form == QueryForm::kRoute) return ReadRouteMember(name, value, query);
  return BadField("unknown member: " + name.substr(0, kMaxQueryTextBytes));
}

// Members that go together.
Status CheckCombination(const Json& body) {
  const bool by_tokens = body.contains("tokens");
  if (by_tokens == body.contains("hashes")) {
    return BadField("exactly one of tokens and hashes is needed");
  }
  if (by_tokens && (body.contains("hash_block_size") || body.contains("prompt_tokens"))) {
    return BadField("hash_block_size and prompt_tokens go with hashes only");
  }
  if (!by_tokens && (body.contains("lora_name") || body.contains("cache_salt"))) {
    return BadField("lora_name and cache_salt are part of the hashes already");
  }
  return Status();
}

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json SchemeJson(const SchemeVerdict& verdict) {
  Json json = {{"state", SchemeStateName(verdict.state)}, {"reason", verdict.reason}};
  if (!verdict.scheme) return json;
  json["algorithm"] = HashAlgorithmName(verdict.scheme->algorithm);
  json["hash_block_size"] = verdict.scheme->hash_block_size;
  if (!verdict.scheme->none_hash.empty()) json["seed"] = verdict.scheme->seed;
  return json;
}

}  // namespace

std::string_view HitName(HitKind hit) {
  switch (hit) {
    case HitKind::kFull:
      return "full";
    case HitKind::kPartial:
      return "partial";
    case HitKind::kMiss:
      break;
  }
  return "miss";
}

Status ReadQueryTokens(const Json& tokens, const std::string& member, Query& query) {
  if (!tokens.is_array() || tokens.empty()) {
    return BadField(member + ": must be a non-empty array");
  }
  query.tokens.reserve(tokens.size());
  for (const Json& token : tokens) {
    const std::optional<int64_t> id = Int64Of(token);
    if (!id || *id < 0) return BadField(At(member, query.tokens.size()) + ": not a token id");
    query.tokens.push_back(*id);
  }
  query.prompt_tokens = std::ssize(query.tokens);
  return Status();
}

Status ReadQueryHashes(const Json& hashes, const std::string& member, Query& query) {
  if (!hashes.is_array()) return BadField(member + ": must be an array");
  query.by_tokens = false;
  query.hashes.reserve(hashes.size());
  for (const Json& json : hashes) {
    const std::optional<BlockHash> hash = HashOf(json);
    if (!hash) {
      return BadField(At(member, query.hashes.size()) + ": neither an integer nor hex digits");
    }
    query.hashes.push_back(*hash);
  }
  return Status();
}

Result<Query> ParseQuery(std::string_view body, QueryForm form) {
  const Result<Json> json = ParseObject(body, kMaxDepth);
  if (!json.ok()) return json.status();
  if (Status status = CheckCombination(*json); !status.ok()) return status;
  Query query;
  for (const auto& [name, value] : json->items()) {
    if (Status status = ReadMember(name, value, form, query); !status.ok()) return status;
  }
  return query;
}

Json AnswerToJson(const QueryAnswer& answer) {
  const WorkerMatch& match = answer.match;
  return {{"name", answer.name},
          {"model", answer.model},
          {"reusable_tokens", match.gpu_tokens},
          {"reusable_with_cpu_tokens", match.with_cpu_tokens},
          {"reusable_with_storage_tokens", match.with_storage_tokens},
          {"recompute_tokens", match.recompute_tokens},
          {"hit", HitName(match.hit)},
          {"limiting_group", OrNull(match.limiting_group)},
          {"per_group_tokens", match.per_group_tokens},
          {"certain", match.certain},
          {"hash_block_size", answer.hash_block_size},
          {"state", SourceStateName(answer.state)},
          {"weight", answer.weight},
          {"next_seq", answer.next_seq},
          {"event_age_seconds", OrNull(answer.event_age_seconds)},
          {"mode", answer.token_mode ? "token" : "engine_hash"},
          {"exact", answer.exact},
          {"reason", answer.reason},
          {"scheme", SchemeJson(answer.scheme)}};
}

std::string RenderAnswers(const std::vector<QueryAnswer>& answers) {
  Json workers = Json::array();
  for (const QueryAnswer& answer : answers) workers.push_back(AnswerToJson(answer));
  return Dump({{"workers", std::move(workers)}});
}

}  // namespace kvcast::router
