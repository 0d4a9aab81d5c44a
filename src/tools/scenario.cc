// SPDX-License-Identifier: Apache-2.0
#include "src/tools/scenario.h"

#include <array>
#include <nlohmann/json.hpp>

#include "src/tools/scenario_event.h"

namespace kvcast::tools {
namespace {

using Json = nlohmann::json;

// Runs `parse` on the line's object; whatever is wrong with it becomes a Status.
template <typename T, typename Parse>
Result<T> Guarded(std::string_view line, Parse parse) {
  try {
    return parse(Json::parse(line));
  } catch (const std::exception& error) {
    return Status(StatusCode::kMalformed, error.what());
  }
}

GroupSpec ParseGroup(const Json& value) {
  GroupSpec group;
  const std::string kind = value.at("kind");
  group.block_size = value.at("block_size");
  group.eagle = value.value("eagle", false);
  if (kind == "swa") {
    group.kind = SpecKind::kSlidingWindow;
    group.sliding_window = value.at("window");
  } else if (kind == "chunked") {
    group.kind = SpecKind::kChunkedLocalAttention;
    group.chunk_size = value.at("chunk");
  } else if (kind == "mamba") {
    group.kind = SpecKind::kMamba;
    const std::string mode = value.at("mode");
    group.mamba_mode = mode == "align" ? MambaMode::kAlign
                       : mode == "all" ? MambaMode::kAll
                                       : MambaMode::kNone;
    group.speculative_blocks = value.value("num_speculative_blocks", 0);
  } else if (kind != "full") {
    throw std::invalid_argument("unknown group kind " + kind);
  }
  return group;
}

CacheConfig ParseCache(const Json& value) {
  CacheConfig cache;
  for (const Json& group : value.at("groups")) cache.groups.push_back(ParseGroup(group));
  cache.num_blocks = value.at("num_blocks");
  cache.max_model_len = value.at("max_model_len");
  cache.max_in_flight_tokens = value.at("max_num_batched_tokens");
  cache.hash_block_size = value.at("hash_block_size");
  cache.scheduler_block_size = value.at("scheduler_block_size");
  cache.watermark = value.value("watermark", 0.0);
  const Json& retention = value.at("prefix_cache_retention_interval");
  if (retention.is_number()) cache.retention_interval = retention.get<int64_t>();
  return cache;
}

ScenarioConfig ParseConfig(const Json& value) {
  ScenarioConfig config;
  config.name = value.at("name");
  config.cache = ParseCache(value);
  const std::string algorithm = value.at("hash_algo");
  const auto known = ParseHashAlgorithm(algorithm);
  if (!known) throw std::invalid_argument("unknown hash_algo " + algorithm);
  config.algorithm = *known;
  config.none_hash = HexToBytes(value.at("none_hash"));
  if (value.at("event_hashes") == "bytes") config.hash_form = EventHashForm::kBytes;
  config.array_events = value.at("event_encoding") == "array";
  if (config.array_events) {
    const bool has_spec_kind = value.at("groups").at(0).contains("spec_kind");
    config.cache.rules = has_spec_kind ? EngineRules::kMain2026May : EngineRules::kV021;
  }
  return config;
}

ScenarioPrompt ParsePrompt(const Json& value) {
  ScenarioPrompt prompt;
  if (value.contains("from")) {
    prompt.from = value.at("from");
    prompt.take = value.at("take");
    prompt.tokens = value.at("then").get<std::vector<TokenId>>();
  } else {
    prompt.tokens = value.at("tokens").get<std::vector<TokenId>>();
  }
  prompt.length = value.at("n");
  if (const auto lora = value.find("lora"); lora != value.end() && !lora->is_null()) {
    prompt.inputs.lora_name = lora->is_object() ? lora->at("name") : *lora;
    if (lora->is_object()) prompt.lora_id = lora->at("id").get<int64_t>();
  }
  if (const auto salt = value.find("salt"); salt != value.end() && !salt->is_null()) {
    prompt.inputs.cache_salt = *salt;
  }
  for (const Json& item : value.value("mm", Json::array())) {
    prompt.inputs.mm_items.push_back({item.at("identifier"), item.at("offset"), item.at("length")});
  }
  prompt.report_hits = value.value("kv_cache_report_mode", "") == "full";
  return prompt;
}

std::vector<BlockId> ParseBlocks(const Json& value) {
  std::vector<BlockId> blocks;
  for (const Json& id : value) blocks.push_back(BlockId(id.get<uint32_t>()));
  return blocks;
}

OpKind ParseOpKind(const std::string& name) {
  constexpr std::array<std::string_view, 11> kNames = {"add",    "abort", "reset",       "schedule",
                                                       "lookup", "alloc", "cow_release", "advance",
                                                       "output", "cache", "free"};
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<OpKind>(i);
  }
  throw std::invalid_argument("unknown op " + name);
}

ScenarioOp ParseOp(const Json& value) {
  ScenarioOp op;
  op.kind = ParseOpKind(value.at("op"));
  op.request = value.value("req", "");
  if (op.kind == OpKind::kAdd) op.prompt = ParsePrompt(value);
  if (op.kind == OpKind::kOutput) {
    for (const auto& [request, token] : value.at("tokens").items()) {
      op.sampled.emplace_back(request, token.get<TokenId>());
    }
  }
  if (const auto range = value.find("ev"); range != value.end()) {
    op.event_range = {range->at(0).get<int64_t>(), range->at(1).get<int64_t>()};
  }
  op.hit = value.value("hit", int64_t{0});
  op.boundary = value.value("boundary", int64_t{0});
  op.computed = value.value("computed", int64_t{0});
  op.new_tokens = value.value("new", int64_t{0});
  op.lookahead = value.value("lookahead", int64_t{0});
  op.in_flight = value.value("in_flight", int64_t{0});
  op.full_fit = value.value("full_fit", false);
  op.ok = value.value("ok", true);
  for (const Json& blocks : value.value("blocks", Json::array())) {
    op.blocks.push_back(ParseBlocks(blocks));
  }
  op.copied = ParseBlocks(value.value("block_ids", Json::array()));
  if (value.contains("free")) op.free_blocks = value.at("free").get<int64_t>();
  return op;
}

ScenarioProbe ParseProbe(const Json& value) {
  ScenarioProbe probe;
  probe.prompt = ParsePrompt(value);
  probe.hit = value.at("hit");
  probe.boundary = value.value("boundary", int64_t{0});
  for (const Json& hit : value.value("per_group", Json::array())) {
    probe.per_group.push_back(hit.get<int64_t>());
  }
  return probe;
}

ScenarioStep ParseStep(const Json& value) {
  ScenarioStep step;
  step.step = value.at("step");
  for (const Json& op : value.at("ops")) step.ops.push_back(ParseOp(op));
  step.published = value.value("published", true);
  for (const Json& event : value.at("events")) step.events.push_back(ScenarioEvent(event));
  step.payload = HexToBytes(value.value("payload_hex", ""));
  for (const Json& probe : value.value("probes", Json::array())) {
    step.probes.push_back(ParseProbe(probe));
  }
  step.free_blocks = value.at("free_blocks");
  return step;
}

ScenarioFinal ParseFinal(const Json& value) {
  ScenarioFinal cached(value.at("cached").size());
  for (const auto& [group, keys] : value.at("cached").items()) {
    for (const Json& key : keys) {
      cached.at(std::stoul(group)).emplace_back(ScenarioHash(key.at(0)), key.at(1).get<int64_t>());
    }
  }
  return cached;
}

}  // namespace

Result<ScenarioConfig> ParseScenarioConfig(std::string_view line) {
  return Guarded<ScenarioConfig>(line, ParseConfig);
}

Result<ScenarioStep> ParseScenarioStep(std::string_view line) {
  return Guarded<ScenarioStep>(line, ParseStep);
}

Result<ScenarioFinal> ParseScenarioFinal(std::string_view line) {
  return Guarded<ScenarioFinal>(line, ParseFinal);
}

bool IsScenarioFinal(std::string_view line) {
  return line.substr(0, 40).find("\"final\"") != std::string_view::npos;
}

}  // namespace kvcast::tools
