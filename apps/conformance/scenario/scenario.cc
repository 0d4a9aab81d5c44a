// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/scenario/scenario.h"

#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>

#include "apps/conformance/scenario/scenario_event.h"

namespace kvcast::tools {
namespace {

using Json = nlohmann::json;

// Runs `parse` on the object in the line. Every error becomes a Status.
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
  group.prefix_cacheable = value.value("prefix_cacheable", true);
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
    group.prefill_checkpoint_blocks = value.value("prefill_checkpoint_blocks", 0);
    if (const auto grid = value.find("prefill_checkpoint_alignment");
        grid != value.end() && grid->is_number()) {
      group.prefill_checkpoint_alignment = grid->get<int64_t>();
    }
  } else if (kind == "ring") {
    group.kind = SpecKind::kCircularBuffer;
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
  cache.decode_context_parallel = value.value("decode_context_parallel_size", int64_t{1});
  return cache;
}

// The only known rule for embedding rows: two 32-bit floats, the id and its half.
constexpr std::string_view kEmbeddingRows =
    "prompt_embeds row of id x = float32 (x, x/2), little endian; token id 0";

PromptEmbeddings EmbeddingsOf(const Json& ids) {
  PromptEmbeddings embeddings;
  embeddings.row_bytes = 8;
  for (const Json& id : ids) {
    const float value = id.get<float>();
    for (const float part : {value, value / 2}) {
      const auto bits = std::bit_cast<uint32_t>(part);
      for (int shift = 0; shift < 32; shift += 8) {
        embeddings.data.push_back(static_cast<char>(bits >> shift & 0xff));
      }
    }
  }
  return embeddings;
}

ChainForm ParseChainForm(const Json& value) {
  ChainForm form;
  const std::string scheme = value.value("extra_key_scheme", "bare");
  const auto known = ParseExtraKeyScheme(scheme);
  if (!known) throw std::invalid_argument("unknown extra_key_scheme " + scheme);
  form.extra_keys = *known;
  form.lookahead = value.value("hash_lookahead_tokens", int64_t{0});
  if (form.lookahead < 0 || form.lookahead > kMaxHashLookahead) {
    throw std::invalid_argument("hash_lookahead_tokens out of range");
  }
  return form;
}

// Members of single groups that apply to the whole engine.
void ParseGroupRules(const Json& groups, ScenarioConfig& config) {
  for (const Json& group : groups) {
    config.replay_tokens =
        std::max(config.replay_tokens, group.value("prefix_replay_tokens", int64_t{0}));
  }
}

// Fields that older recordings do not have.
void ParseNewFields(const Json& value, ScenarioConfig& config) {
  config.chain_form = ParseChainForm(value);
  config.cache.chain_form = config.chain_form;
  config.cache.mtp_lookahead_tokens = value.value("num_prefill_lookahead", int64_t{0});
  ParseGroupRules(value.at("groups"), config);
  config.cache.replay_tokens = config.replay_tokens;
  config.data_parallel_rank = value.value("data_parallel_rank", int64_t{0});
  config.cache.mamba_shared_prefix_checkpoint =
      value.value("enable_mamba_shared_prefix_checkpoint", false);
  config.has_max_in_flight_tokens = value.contains("max_in_flight_tokens");
  if (config.has_max_in_flight_tokens)
    config.cache.max_in_flight_tokens = value.at("max_in_flight_tokens");
  const std::string rows = value.value("embeds_rows", "");
  if (!rows.empty() && rows != kEmbeddingRows) {
    throw std::invalid_argument("unknown embeds_rows " + rows);
  }
  config.embeddings = !rows.empty();
  if (value.value("event_layout", "") == "vllm_l12") config.cache.rules = EngineRules::kV033;
  // v0.32 has the event layout of earlier releases, so only the field `release` shows its rules.
  if (value.value("release", "") == "v0.32") config.cache.rules = EngineRules::kV032;
}

ScenarioConfig ParseConfig(const Json& value) {
  ScenarioConfig config;
  config.name = value.at("name");
  config.cache = ParseCache(value);
  config.cache.rules = EngineRules::kMain2026August;
  const std::string algorithm = value.at("hash_algo");
  const auto known = ParseHashAlgorithm(algorithm);
  if (!known) throw std::invalid_argument("unknown hash_algo " + algorithm);
  config.algorithm = *known;
  config.none_hash = HexToBytes(value.at("none_hash"));
  if (value.at("event_hashes") == "bytes") config.hash_form = EventHashForm::kBytes;
  config.array_events = value.at("event_encoding") == "array";
  config.max_batched_tokens = value.at("max_num_batched_tokens");
  config.long_prefill_tokens = value.value("long_prefill_token_threshold", int64_t{0});
  config.draft_tokens = value.value("num_speculative_tokens", int64_t{0});
  if (config.array_events) {
    const bool has_spec_kind = value.at("groups").at(0).contains("spec_kind");
    config.cache.rules = has_spec_kind ? EngineRules::kMain2026May : EngineRules::kV021;
  }
  ParseNewFields(value, config);
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
    if (lora->is_object()) {
      prompt.lora_id = lora->at("id").get<int64_t>();
      prompt.inputs.lora_path = lora->value("path", "");
    }
  }
  if (const auto salt = value.find("salt"); salt != value.end() && !salt->is_null()) {
    prompt.inputs.cache_salt = *salt;
  }
  for (const Json& item : value.value("mm", Json::array())) {
    prompt.inputs.mm_items.push_back({item.at("identifier"), item.at("offset"), item.at("length")});
  }
  if (const auto rows = value.find("embeds"); rows != value.end() && !rows->is_null()) {
    prompt.inputs.prompt_embeddings = EmbeddingsOf(*rows);
  }
  if (const auto session = value.find("session"); session != value.end() && session->is_string()) {
    prompt.session = session->get<std::string>();
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
  constexpr std::array<std::string_view, 12> kNames = {
      "add",         "abort",   "reset",  "schedule", "lookup", "alloc",
      "cow_release", "advance", "output", "cache",    "free",   "rollback"};
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<OpKind>(i);
  }
  throw std::invalid_argument("unknown op " + name);
}

// One token, or several tokens if drafts were accepted.
void ParseSampled(const std::string& request, const Json& tokens, ScenarioOp& op) {
  if (!tokens.is_array()) {
    op.sampled.emplace_back(request, tokens.get<TokenId>());
    return;
  }
  for (const Json& token : tokens) op.sampled.emplace_back(request, token.get<TokenId>());
}

ScenarioOp ParseOp(const Json& value) {
  ScenarioOp op;
  op.kind = ParseOpKind(value.at("op"));
  op.request = value.value("req", "");
  if (op.kind == OpKind::kAdd) op.prompt = ParsePrompt(value);
  if (op.kind == OpKind::kOutput) {
    for (const auto& [request, tokens] : value.at("tokens").items()) {
      ParseSampled(request, tokens, op);
    }
  }
  if (const auto range = value.find("ev"); range != value.end()) {
    op.event_range = {range->at(0).get<int64_t>(), range->at(1).get<int64_t>()};
  }
  op.hit = value.value("hit", int64_t{0});
  op.replay = value.value("replay", int64_t{0});
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
  probe.replay = value.value("replay", int64_t{0});
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
