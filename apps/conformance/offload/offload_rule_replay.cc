// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/offload/offload_rule_replay.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "apps/conformance/offload/offload_layout_json.h"
#include "apps/conformance/scenario/scenario_event.h"
#include "apps/support/or_null.h"
#include "kvcast/offload/offload_manager.h"
#include "kvcast/offload/offload_params.h"

namespace kvcast::tools {

using Json = nlohmann::json;

namespace {

std::optional<int64_t> OptionalInt(const Json& value) {
  if (value.is_null()) return std::nullopt;
  return value.get<int64_t>();
}

Json StoreReachableResult(const Json& record) {
  OffloadGroup group;
  group.window_chunks = OptionalInt(record.at("window_chunks"));
  group.alignment_chunks = OptionalInt(record.at("alignment_chunks"));
  group.eagle = record.at("eagle");
  return StoreReachable(group, record.at("chunk"), record.at("storable"));
}

// The layout requires chunks of whole blocks, but the recorded chunk size may be any number. So the
// group gets blocks of the size of a chunk.
Json WindowChunks(const Json& record) {
  GroupSpec spec = ParseOffloadGroup(record.at("group"));
  spec.block_size = record.at("tokens_per_chunk");
  const auto layout = OffloadLayout::Derive({.groups = {spec}, .tokens_per_hash = 1});
  if (!layout.ok()) throw std::runtime_error(layout.status().ToString());
  return OrNull(layout->groups[0].window_chunks);
}

StoreLimits ParseLimits(const Json& record) {
  return {.num_tokens = record.at("num_tokens"),
          .prompt_tokens = record.at("num_prompt_tokens"),
          .prompt_only = record.at("prompt_only"),
          .max_offload_tokens = OptionalInt(record.at("max_offload_tokens"))};
}

Json Storable(const Json& record, int64_t offloadable) {
  const int64_t per_chunk = record.at("blocks_per_chunk");
  OffloadGroup group;
  group.tokens_per_block = record.at("tokens_per_block");
  group.tokens_per_chunk = group.tokens_per_block * per_chunk;
  group.eagle = record.at("eagle");
  return StorableChunks(group, per_chunk, offloadable, record.at("num_prompt_tokens"),
                        record.at("allocated_blocks"));
}

OffloadParams Parse(const char* name, const Json& raw) {
  const auto params = ParseOffloadParams(Json{{name, raw}}.dump());
  if (!params.ok()) throw std::runtime_error(params.status().ToString());
  return *params;
}

std::optional<std::string_view> NameOrNone(std::string_view name) {
  if (name == "None") return std::nullopt;
  return name;
}

Json Allowed(const TierFilter& filter, const Json& recorded) {
  Json allows = Json::object();
  for (const auto& [tier, allowed] : recorded.items()) {
    const size_t slash = tier.find('/');
    const std::string_view name = tier;
    allows[tier] =
        filter.Allows(NameOrNone(name.substr(0, slash)), NameOrNone(name.substr(slash + 1)));
  }
  return allows;
}

bool IsKey(const Json& record) {
  const std::string hash = HexToBytes(record.at("hash"));
  OffloadKey key;
  key.digest.size = static_cast<uint8_t>(hash.size());
  std::memcpy(key.digest.data.data(), hash.data(), hash.size());
  key.group = GroupIdx(record.at("group").get<uint32_t>());
  const OffloadKeyBytes bytes = ToBytes(key);
  return HexToBytes(record.at("key")) ==
         std::string_view(reinterpret_cast<const char*>(bytes.data.data()), bytes.size);
}

}  // namespace

LookupResult ParseAnswer(char letter) {
  switch (letter) {
    case 'M':
      return LookupResult::kMiss;
    case 'H':
      return LookupResult::kHit;
    case 'P':
      return LookupResult::kPending;
    case 'R':
      return LookupResult::kRetry;
    default:
      throw std::runtime_error(std::string("unknown answer ") + letter);
  }
}

void RunOffloadRule(const Json& record, OffloadChecks& checks) {
  const std::string rule = record.at("rule");
  if (rule == "store_reachable") {
    checks.Expect(StoreReachableResult(record), record.at("result"), rule);
  } else if (rule == "window_chunks") {
    checks.Expect(WindowChunks(record), record.at("result"), rule);
  } else if (rule == "storable_chunks") {
    const int64_t tokens = OffloadableTokens(ParseLimits(record), record.at("tokens_after_step"));
    checks.Expect(tokens, record.at("offloadable_tokens"), "offloadable_tokens");
    checks.Expect(Storable(record, tokens), record.at("result"), rule);
  } else if (rule == "max_offload_tokens") {
    const OffloadParams params = Parse("max_offload_tokens", record.at("raw"));
    checks.Expect(OrNull(params.max_offload_tokens), record.at("result"), rule);
  } else if (rule == "kv_load_tiers") {
    const TierFilter filter = Parse("kv_load_tiers", record.at("raw")).load_tiers;
    checks.Expect(filter.allows_all(), record.at("is_all"), rule);
    checks.Expect(Allowed(filter, record.at("allows")), record.at("allows"), rule);
  } else if (rule == "offload_key") {
    checks.Check(IsKey(record), rule + " differs");
  } else if (rule == "derived_config") {
    const auto layout = OffloadLayout::Derive(AsInVllm(ParseLayoutConfig(record)));
    checks.Expect(layout.ok() ? LayoutJson(*layout) : Json(layout.status().ToString()),
                  record.at("derived"), rule);
  } else {
    checks.Unsupported();
  }
}

void RunOffloadScan(const Json& record, OffloadChecks& checks) {
  const std::string answers = record.at("answers");
  Json calls = Json::array();
  const ChunkAnswer answer = [&](int64_t chunk) {
    calls.push_back(chunk);
    return ParseAnswer(answers.at(static_cast<size_t>(chunk)));
  };
  const int64_t chunks = std::ssize(answers);
  const std::string scan = record.at("scan");
  const auto result = scan == "prefix" ? ScanPrefix(chunks, answer)
                                       : ScanWindow(chunks, record.at("required"), answer);
  checks.Expect(OrNull(result), record.at("result"), scan);
  checks.Expect(calls, record.at("calls"), scan + ": calls");
}

}  // namespace kvcast::tools
