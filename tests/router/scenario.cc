// SPDX-License-Identifier: Apache-2.0
#include "tests/router/scenario.h"

#include <zlib.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

namespace kvcast::testing {
namespace {

using Json = nlohmann::json;
using TokensByRequest = std::map<std::string, std::vector<TokenId>>;

Result<std::vector<std::string>> ReadLines(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return Status(StatusCode::kNotFound, path);
  std::string text;
  std::vector<char> buffer(1 << 16);
  for (int n; (n = gzread(file, buffer.data(), static_cast<unsigned>(buffer.size()))) > 0;) {
    text.append(buffer.data(), static_cast<size_t>(n));
  }
  gzclose(file);
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::vector<uint8_t> FromHex(const std::string& hex) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

BlockHash HashOf(const Json& json) {
  if (json.is_string()) return BlockHash::FromBytes(FromHex(json.get<std::string>()));
  if (json.is_number_unsigned()) return BlockHash::FromUnsigned(json.get<uint64_t>());
  return BlockHash::FromSigned(json.get<int64_t>());
}

template <typename T>
std::optional<T> Optional(const Json& event, const char* key) {
  const auto it = event.find(key);
  return it == event.end() || it->is_null() ? std::nullopt : std::optional<T>(it->get<T>());
}

std::vector<BlockHash> HashesOf(const Json& event) {
  std::vector<BlockHash> hashes;
  for (const Json& hash : event.at("block_hashes")) hashes.push_back(HashOf(hash));
  return hashes;
}

BlockStored StoredOf(const Json& json) {
  BlockStored event;
  event.block_hashes = HashesOf(json);
  event.block_size = json.at("block_size").get<int64_t>();
  event.medium = Optional<std::string>(json, "medium");
  event.group_idx = Optional<int64_t>(json, "group_idx");
  event.kv_cache_spec_kind = Optional<std::string>(json, "kv_cache_spec_kind");
  event.kv_cache_spec_sliding_window = Optional<int64_t>(json, "kv_cache_spec_sliding_window");
  return event;
}

BlockRemoved RemovedOf(const Json& json) {
  BlockRemoved event;
  event.block_hashes = HashesOf(json);
  event.medium = Optional<std::string>(json, "medium");
  event.group_idx = Optional<int64_t>(json, "group_idx");
  return event;
}

Event EventOf(const Json& json) {
  const std::string type = json.at("type");
  if (type == "BlockStored") return StoredOf(json);
  if (type == "BlockRemoved") return RemovedOf(json);
  return AllBlocksCleared{};
}

GroupSpec GroupOf(const Json& json) {
  GroupSpec spec;
  spec.block_size = json.at("block_size");
  spec.eagle = Optional<bool>(json, "eagle").value_or(false);
  const std::string kind = json.at("kind");
  if (kind == "swa") {
    spec.kind = SpecKind::kSlidingWindow;
    spec.sliding_window = json.at("window");
  } else if (kind == "chunked") {
    spec.kind = SpecKind::kChunkedLocalAttention;
    spec.chunk_size = json.at("chunk");
  } else if (kind == "mamba") {
    spec.kind = SpecKind::kMamba;
    spec.mamba_mode = json.at("mode") == "all" ? MambaMode::kAll : MambaMode::kAlign;
  }
  return spec;
}

void ReadConfig(const Json& config, Scenario& scenario) {
  scenario.name = config.at("name");
  for (const Json& group : config.at("groups")) scenario.worker.groups.push_back(GroupOf(group));
  scenario.worker.name = scenario.name;
  scenario.worker.hash_block_size = config.at("hash_block_size");
  const bool partial = Optional<bool>(config, "enable_partial_hash_hits").value_or(false);
  scenario.worker.alignment = config.at(partial ? "hash_block_size" : "scheduler_block_size");
  scenario.algorithm = ParseHashAlgorithm(config.at("hash_algo").get<std::string>()).value();
  scenario.none_hash = FromHex(config.at("none_hash"));
  const bool bytes = config.at("event_hashes") == "bytes";
  scenario.hash_form = bytes ? EventHashForm::kBytes : EventHashForm::kInt64;
}

// `tokens`, or the first `take` tokens of an earlier request and then `then`.
std::vector<TokenId> PromptOf(const Json& json, const TokensByRequest& requests) {
  if (json.contains("tokens")) return json.at("tokens").get<std::vector<TokenId>>();
  std::vector<TokenId> tokens = requests.at(json.at("from"));
  tokens.resize(json.at("take").get<size_t>());
  for (const Json& token : json.at("then")) tokens.push_back(token);
  return tokens;
}

Probe ProbeOf(const Json& json, const TokensByRequest& requests) {
  Probe probe;
  probe.tokens = PromptOf(json, requests);
  probe.inputs.lora_name = Optional<std::string>(json, "lora").value_or("");
  probe.inputs.cache_salt = Optional<std::string>(json, "salt").value_or("");
  for (const Json& item : json.value("mm", Json::array())) {
    probe.inputs.mm_items.push_back({item.at("identifier"), item.at("offset"), item.at("length")});
  }
  probe.hit = json.at("hit");
  if (json.contains("per_group")) json.at("per_group").get_to(probe.per_group);
  return probe;
}

ScenarioStep StepOf(const Json& json, TokensByRequest& requests) {
  for (const Json& op : json.at("ops")) {
    if (op.at("op") == "add") requests[op.at("req")] = PromptOf(op, requests);
    if (op.at("op") != "output") continue;
    for (const auto& [request, token] : op.at("tokens").items()) {
      requests[request].push_back(token);
    }
  }
  ScenarioStep step;
  for (const Json& event : json.at("events")) step.batch.events.push_back(EventOf(event));
  for (const Json& probe : json.value("probes", Json::array())) {
    step.probes.push_back(ProbeOf(probe, requests));
  }
  return step;
}

void ReadRecord(const Json& json, Scenario& scenario, TokensByRequest& requests) {
  const std::string record = json.value("record", "step");
  if (record == "config") return ReadConfig(json, scenario);
  if (record == "step") return scenario.steps.push_back(StepOf(json, requests));
  for (const auto& [group, hashes] : json.at("cached").items()) {
    scenario.cached_entries += hashes.size();
  }
}

}  // namespace

Result<Scenario> ReadScenario(const std::string& path) {
  Result<std::vector<std::string>> lines = ReadLines(path);
  if (!lines.ok()) return lines.status();
  Scenario scenario;
  TokensByRequest requests;
  try {
    for (const std::string& line : *lines) ReadRecord(Json::parse(line), scenario, requests);
  } catch (const std::exception& error) {
    return Status(StatusCode::kMalformed, path + ": " + error.what());
  }
  return scenario;
}

std::vector<BlockHash> ChainOf(const Scenario& scenario, const Probe& probe) {
  std::vector<BlockHash> chain;
  Result<BlockHasher> hasher = BlockHasher::FromNoneHash(scenario.algorithm, scenario.none_hash);
  if (!hasher.ok()) return chain;
  std::vector<Digest> digests;
  hasher->ExtendChain(probe.tokens, scenario.worker.hash_block_size, probe.inputs, digests);
  for (const Digest& digest : digests) chain.push_back(ToEventHash(digest, scenario.hash_form));
  return chain;
}

}  // namespace kvcast::testing
