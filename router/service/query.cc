// SPDX-License-Identifier: Apache-2.0
#include "router/service/query.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace kvcast::router {
namespace {

using Json = nlohmann::json;

// An object, its arrays and their elements: nothing deeper has a meaning here.
constexpr int kMaxDepth = 3;

Status Bad(std::string text) { return Status(StatusCode::kInvalidArgument, std::move(text)); }

std::string At(const char* member, size_t index) {
  return std::string(member) + "[" + std::to_string(index) + "]";
}

// Integers of either JSON sign type that fit 64 signed bits.
std::optional<int64_t> Int64Of(const Json& json) {
  if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    return std::nullopt;
  }
  if (!json.is_number_integer()) return std::nullopt;
  return json.get<int64_t>();
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<BlockHash> HashFromHex(const std::string& hex) {
  if (hex.empty() || hex.size() % 2 != 0 || hex.size() > 2 * kMaxQueryHashBytes) {
    return std::nullopt;
  }
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = HexDigit(hex[i]);
    const int low = HexDigit(hex[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes.push_back(static_cast<uint8_t>(high * 16 + low));
  }
  return BlockHash::FromBytes(bytes);
}

std::optional<BlockHash> HashOf(const Json& json) {
  if (json.is_string()) return HashFromHex(json.get_ref<const std::string&>());
  if (json.is_number_unsigned()) return BlockHash::FromUnsigned(json.get<uint64_t>());
  if (json.is_number_integer()) return BlockHash::FromSigned(json.get<int64_t>());
  return std::nullopt;
}

Status ReadTokens(const Json& tokens, Query& query) {
  if (!tokens.is_array() || tokens.empty()) return Bad("tokens: must be a non-empty array");
  query.tokens.reserve(tokens.size());
  for (const Json& token : tokens) {
    const std::optional<int64_t> id = Int64Of(token);
    if (!id || *id < 0) return Bad(At("tokens", query.tokens.size()) + ": not a token id");
    query.tokens.push_back(*id);
  }
  query.prompt_tokens = std::ssize(query.tokens);
  return Status();
}

Status ReadHashes(const Json& hashes, Query& query) {
  if (!hashes.is_array()) return Bad("hashes: must be an array");
  query.by_tokens = false;
  query.hashes.reserve(hashes.size());
  for (const Json& json : hashes) {
    const std::optional<BlockHash> hash = HashOf(json);
    if (!hash) {
      return Bad(At("hashes", query.hashes.size()) + ": neither an integer nor hex digits");
    }
    query.hashes.push_back(*hash);
  }
  return Status();
}

Status ReadText(const Json& json, const char* member, std::string& out) {
  if (!json.is_string()) return Bad(std::string(member) + ": must be a string");
  out = json.get<std::string>();
  if (out.size() > kMaxQueryTextBytes) return Bad(std::string(member) + ": too long");
  return Status();
}

Status ReadPositive(const Json& json, const char* member, int64_t& out) {
  const std::optional<int64_t> value = Int64Of(json);
  if (!value || *value < 1) return Bad(std::string(member) + ": must be a positive integer");
  out = *value;
  return Status();
}

Status ReadWorkers(const Json& workers, Query& query) {
  if (!workers.is_array() || workers.empty()) return Bad("workers: must be a non-empty array");
  for (const Json& worker : workers) {
    std::string name;
    if (Status status = ReadText(worker, "workers", name); !status.ok()) return status;
    query.workers.push_back(std::move(name));
  }
  return Status();
}

Status ReadMember(const std::string& name, const Json& value, Query& query) {
  if (name == "tokens") return ReadTokens(value, query);
  if (name == "hashes") return ReadHashes(value, query);
  if (name == "lora_name") return ReadText(value, "lora_name", query.inputs.lora_name);
  if (name == "cache_salt") return ReadText(value, "cache_salt", query.inputs.cache_salt);
  if (name == "prompt_tokens") return ReadPositive(value, "prompt_tokens", query.prompt_tokens);
  if (name == "hash_block_size") {
    return ReadPositive(value, "hash_block_size", query.hash_block_size);
  }
  if (name == "workers") return ReadWorkers(value, query);
  return Bad("unknown member: " + name.substr(0, kMaxQueryTextBytes));
}

// Members that go together.
Status CheckCombination(const Json& body) {
  const bool by_tokens = body.contains("tokens");
  if (by_tokens == body.contains("hashes"))
    return Bad("exactly one of tokens and hashes is needed");
  if (by_tokens && (body.contains("hash_block_size") || body.contains("prompt_tokens"))) {
    return Bad("hash_block_size and prompt_tokens go with hashes only");
  }
  if (!by_tokens && (body.contains("lora_name") || body.contains("cache_salt"))) {
    return Bad("lora_name and cache_salt are part of the hashes already");
  }
  return Status();
}

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

namespace {

Result<Json> ParseObject(std::string_view body) {
  const Json::parser_callback_t shallow = [](int depth, Json::parse_event_t, Json&) {
    return depth <= kMaxDepth;
  };
  Json json = Json::parse(body, shallow, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Bad("body: not JSON");
  if (!json.is_object()) return Bad("body: must be an object");
  return Result<Json>(std::move(json));
}

}  // namespace

Result<Feedback> ParseFeedback(std::string_view body) {
  const Result<Json> parsed = ParseObject(body);
  if (!parsed.ok()) return parsed.status();
  const Json& json = *parsed;
  if (json.size() != 3 || !json.contains("worker") || !json["worker"].is_string()) {
    return Bad("body: must be worker, promised_tokens and cached_tokens");
  }
  Feedback feedback;
  feedback.worker = json["worker"].get<std::string>();
  const auto read = [&json](const char* name, int64_t& value) {
    const auto number = json.contains(name) ? Int64Of(json[name]) : std::nullopt;
    if (number && *number >= 0) value = *number;
    return number && *number >= 0;
  };
  if (!read("promised_tokens", feedback.promised_tokens)) {
    return Bad("promised_tokens: must be a number of tokens");
  }
  if (!read("cached_tokens", feedback.cached_tokens)) {
    return Bad("cached_tokens: must be a number of tokens");
  }
  return feedback;
}

Result<Query> ParseQuery(std::string_view body) {
  const Result<Json> parsed = ParseObject(body);
  if (!parsed.ok()) return parsed.status();
  const Json& json = *parsed;
  if (Status status = CheckCombination(json); !status.ok()) return status;
  Query query;
  for (const auto& [name, value] : json.items()) {
    if (Status status = ReadMember(name, value, query); !status.ok()) return status;
  }
  return query;
}

std::string RenderAnswers(const std::vector<QueryAnswer>& answers) {
  Json workers = Json::array();
  for (const QueryAnswer& answer : answers) {
    const WorkerMatch& match = answer.match;
    workers.push_back({{"name", answer.name},
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
                       {"scheme", SchemeJson(answer.scheme)}});
  }
  const Json body = {{"workers", std::move(workers)}};
  return body.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace kvcast::router
