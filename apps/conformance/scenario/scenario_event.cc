// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/scenario/scenario_event.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace kvcast::tools {
namespace {

using Json = nlohmann::json;

template <typename T>
std::optional<T> Optional(const Json& object, const char* field) {
  const auto it = object.find(field);
  if (it == object.end() || it->is_null()) return std::nullopt;
  return it->get<T>();
}

ExtraKey ScenarioExtraKey(const Json& value) {
  if (value.is_string()) return ExtraKey::Text(value.get<std::string>());
  if (value.is_number_integer()) return ExtraKey::Int(value.get<int64_t>());
  if (value.is_object()) return ExtraKey::Binary(HexToBytes(value.at("bytes")));
  ExtraKeyList list;
  for (const Json& item : value) list.items.push_back(ScenarioExtraKey(item));
  return {std::move(list)};
}

std::vector<std::optional<ExtraKeys>> ScenarioExtraKeys(const Json& value) {
  std::vector<std::optional<ExtraKeys>> blocks;
  for (const Json& block : value) {
    blocks.emplace_back();
    if (block.is_null()) continue;
    ExtraKeys keys;
    for (const Json& key : block) keys.push_back(ScenarioExtraKey(key));
    blocks.back() = std::move(keys);
  }
  return blocks;
}

LookaheadTokens ScenarioLookahead(const Json& value) {
  LookaheadTokens lookahead;
  for (const Json& tokens : value) {
    lookahead.width = static_cast<int64_t>(tokens.size());
    for (const Json& token : tokens) lookahead.token_ids.push_back(token.get<TokenId>());
  }
  return lookahead;
}

BlockStored ScenarioStored(const Json& value) {
  BlockStored event;
  for (const Json& hash : value.at("block_hashes"))
    event.block_hashes.push_back(ScenarioHash(hash));
  const Json& parent = value.at("parent_block_hash");
  if (!parent.is_null()) event.parent_block_hash = ScenarioHash(parent);
  event.token_ids = value.at("token_ids").get<std::vector<TokenId>>();
  event.block_size = value.at("block_size");
  event.lora_id = Optional<int64_t>(value, "lora_id");
  event.medium = Optional<std::string>(value, "medium");
  event.lora_name = Optional<std::string>(value, "lora_name");
  const auto extra_keys = value.find("extra_keys");
  if (extra_keys != value.end() && !extra_keys->is_null()) {
    event.extra_keys = ScenarioExtraKeys(*extra_keys);
  }
  event.group_idx = Optional<int64_t>(value, "group_idx");
  event.kv_cache_spec_kind = Optional<std::string>(value, "kv_cache_spec_kind");
  event.kv_cache_spec_sliding_window = Optional<int64_t>(value, "kv_cache_spec_sliding_window");
  event.session_id = Optional<std::string>(value, "session_id");
  const auto lookahead = value.find("lookahead_token_ids");
  if (lookahead != value.end() && !lookahead->is_null()) {
    event.lookahead = ScenarioLookahead(*lookahead);
  }
  return event;
}

BlockRemoved ScenarioRemoved(const Json& value) {
  BlockRemoved event;
  for (const Json& hash : value.at("block_hashes"))
    event.block_hashes.push_back(ScenarioHash(hash));
  event.medium = Optional<std::string>(value, "medium");
  event.group_idx = Optional<int64_t>(value, "group_idx");
  return event;
}

}  // namespace

std::string HexToBytes(const std::string& hex) {
  std::string bytes;
  for (size_t at = 0; at < hex.size(); at += 2) {
    const char* const pair = hex.data() + at;
    uint8_t byte = 0;
    if (at + 2 > hex.size() || std::from_chars(pair, pair + 2, byte, 16).ptr != pair + 2) {
      throw std::invalid_argument("not hex: " + hex);
    }
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

BlockHash ScenarioHash(const Json& value) {
  if (value.is_number_unsigned()) return BlockHash::FromUnsigned(value.get<uint64_t>());
  if (value.is_number_integer()) return BlockHash::FromSigned(value.get<int64_t>());
  const std::string bytes = HexToBytes(value.get<std::string>());
  return BlockHash::FromBytes({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

Event ScenarioEvent(const Json& value) {
  const std::string type = value.at("type");
  if (type == "BlockStored") return ScenarioStored(value);
  if (type == "BlockRemoved") return ScenarioRemoved(value);
  return AllBlocksCleared{};
}

}  // namespace kvcast::tools
