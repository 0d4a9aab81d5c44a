// SPDX-License-Identifier: Apache-2.0
#include "router/service/query.h"

#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "router/service/json_fields.h"
#include "router/service/json_writer.h"
#include "router/service/number_array.h"

namespace kvcast::router {
namespace {

// An object, its arrays and their elements: nothing deeper has a meaning here.
constexpr int kQueryDepth = 3;

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

// Whether token ids are in the range of one is left to the reading of the whole.
bool FillPrompt(const NumberArray& array, bool by_tokens, Query& query) {
  query.by_tokens = by_tokens;
  if (!by_tokens) {
    query.hashes.reserve(array.numbers.size());
    for (const uint64_t number : array.numbers) query.hashes.emplace_back(number);
    return true;
  }
  const auto most = static_cast<uint64_t>(INT64_MAX);
  for (const uint64_t number : array.numbers) {
    if (number > most) return false;
  }
  query.tokens.assign(array.numbers.begin(), array.numbers.end());
  query.prompt_tokens = std::ssize(query.tokens);
  return true;
}

void WriteScheme(const SchemeVerdict& verdict, JsonWriter& json) {
  json.BeginObject();
  if (verdict.scheme) {
    json.Member("algorithm", HashAlgorithmName(verdict.scheme->algorithm));
    json.Member("hash_block_size", verdict.scheme->hash_block_size);
  }
  json.Member("reason", verdict.reason);
  if (verdict.scheme && !verdict.scheme->none_hash.empty()) {
    json.Member("seed", verdict.scheme->seed);
  }
  json.Member("state", SchemeStateName(verdict.state));
  json.EndObject();
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

Prompt TakePrompt(std::string_view body, const PromptMembers& members) {
  Prompt prompt;
  std::vector<std::string_view> names;
  for (const std::string_view name : {members.tokens, members.hashes}) {
    if (!name.empty()) names.push_back(name);
  }
  auto array = TakeNumberArray(body, names);
  if (!array || !FillPrompt(*array, array->member == members.tokens, prompt.query)) return {};
  prompt.rest = std::move(array->rest);
  return prompt;
}

Result<Query> ParseQuery(std::string_view body, QueryForm form) {
  Prompt prompt = TakePrompt(body, {"tokens", "hashes"});
  const Result<Json> json = ParseObject(prompt.taken() ? prompt.rest : body, kQueryDepth);
  if (!json.ok()) return json.status();
  if (Status status = CheckCombination(*json); !status.ok()) return status;
  Query query = std::move(prompt.query);
  for (const auto& [name, value] : json->items()) {
    if (prompt.taken() && (name == "tokens" || name == "hashes")) continue;
    if (Status status = ReadMember(name, value, form, query); !status.ok()) return status;
  }
  return query;
}

void WriteAnswer(const QueryAnswer& answer, JsonWriter& json,
                 const std::function<void(JsonWriter&)>& more) {
  const WorkerMatch& match = answer.match;
  json.BeginObject();
  json.Member("certain", match.certain);
  json.Member("event_age_seconds", answer.event_age_seconds);
  json.Member("exact", answer.exact);
  json.Member("hash_block_size", answer.hash_block_size);
  json.Member("hit", HitName(match.hit));
  json.Member("limiting_group", match.limiting_group);
  json.Member("mode", answer.token_mode ? "token" : "engine_hash");
  json.Member("model", answer.model);
  json.Member("name", answer.name);
  json.Member("next_seq", answer.next_seq);
  json.Member("per_group_tokens", std::span<const int64_t>(match.per_group_tokens));
  json.Member("reason", answer.reason);
  json.Member("recompute_tokens", match.recompute_tokens);
  json.Member("reusable_tokens", match.gpu_tokens);
  json.Member("reusable_with_cpu_tokens", match.with_cpu_tokens);
  json.Member("reusable_with_storage_tokens", match.with_storage_tokens);
  json.Key("scheme");
  WriteScheme(answer.scheme, json);
  json.Member("state", SourceStateName(answer.state));
  json.Member("weight", answer.weight);
  if (more) more(json);
  json.EndObject();
}

Json AnswerToJson(const QueryAnswer& answer) {
  JsonWriter json;
  WriteAnswer(answer, json);
  return Json::parse(json.Take());
}

std::string RenderAnswers(const std::vector<QueryAnswer>& answers) {
  JsonWriter json;
  json.BeginObject();
  json.Key("workers");
  json.BeginArray();
  for (const QueryAnswer& answer : answers) WriteAnswer(answer, json);
  json.EndArray();
  json.EndObject();
  return json.Take();
}

}  // namespace kvcast::router
