// SPDX-License-Identifier: Apache-2.0
#include "router/service/json/json_fields.h"
#include "router/service/json/json_writer.h"
#include "router/service/route/query.h"

namespace kvcast::router {
namespace {

// False: the subscriber has not joined the stream yet (kConnecting), or earlier data is missing
// (kCleared).
bool HasWholeState(SourceState state) {
  return state != SourceState::kConnecting && state != SourceState::kCleared;
}

void WriteScheme(const SchemeVerdict& verdict, JsonWriter& json) {
  json.BeginObject();
  if (verdict.scheme) {
    json.Member("algorithm", HashAlgorithmName(verdict.scheme->algorithm));
    json.Member("hash_block_size", verdict.scheme->hash_block_size);
  }
  json.Member("reason", verdict.reason);
  if (verdict.scheme && !verdict.scheme->none_hash.empty()) {
    json.Member("seed", ShownHashSeed(verdict.scheme->seed));
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

std::string_view NamedByName(NamedBy by) {
  switch (by) {
    case NamedBy::kContent:
      return "content";
    case NamedBy::kScheme:
      return "scheme";
    case NamedBy::kHashes:
      break;
  }
  return "hashes";
}

void WriteAnswer(const QueryAnswer& answer, JsonWriter& json,
                 const std::function<void(JsonWriter&)>& more) {
  const WorkerMatch& match = answer.match;
  json.BeginObject();
  json.Member("certain", match.certain && HasWholeState(answer.state));
  json.Member("event_age_seconds", answer.event_age_seconds);
  json.Member("exact", answer.exact);
  json.Member("exact_with_cpu", answer.exact_with_cpu);
  json.Member("hash_block_size", answer.hash_block_size);
  json.Member("hit", HitName(match.hit));
  json.Member("limiting_group", match.limiting_group);
  json.Member("model", answer.model);
  json.Member("name", answer.name);
  json.Member("named_by", NamedByName(answer.named_by));
  json.Member("next_seq", answer.next_seq);
  json.Member("per_group_tokens", std::span<const int64_t>(match.per_group_tokens));
  json.Member("reason", answer.reason);
  json.Member("reason_with_cpu", answer.reason_with_cpu);
  json.Member("recompute_tokens", match.recompute_tokens);
  json.Member("replay_tokens", match.replay_tokens);
  json.Member("reusable_tokens", match.gpu_tokens);
  json.Member("reusable_with_cpu_tokens", match.with_cpu_tokens);
  json.Member("reusable_with_storage_tokens", match.with_storage_tokens);
  json.Key("scheme");
  WriteScheme(answer.scheme ? *answer.scheme : SchemeVerdict(), json);
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
