// SPDX-License-Identifier: Apache-2.0
#include "apps/support/event_json.h"

#include <nlohmann/json.hpp>
#include <span>

namespace kvcast::tools {
namespace {

using nlohmann::json;

std::string Hex(std::span<const uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const uint8_t byte : bytes) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

json HashToJson(const BlockHash& hash) {
  switch (hash.form()) {
    case BlockHash::Form::kUnsigned:
      return hash.integer();
    case BlockHash::Form::kNegative:
      return static_cast<int64_t>(hash.integer());
    case BlockHash::Form::kBytes:
      return {{"bytes", Hex(hash.bytes())}};
  }
  return nullptr;
}

json HashesToJson(const std::vector<BlockHash>& hashes) {
  json list = json::array();
  for (const BlockHash& hash : hashes) list.push_back(HashToJson(hash));
  return list;
}

json KeyToJson(const ExtraKey& key);

struct KeyVisitor {
  json operator()(std::monostate) const { return nullptr; }
  json operator()(const Bytes& bytes) const {
    return {
        {"bytes", Hex({reinterpret_cast<const uint8_t*>(bytes.data.data()), bytes.data.size()})}};
  }
  json operator()(const ExtraKeyList& list) const {
    json items = json::array();
    for (const ExtraKey& item : list.items) items.push_back(KeyToJson(item));
    return items;
  }
  template <typename T>
  json operator()(const T& value) const {
    return value;
  }
};

json KeyToJson(const ExtraKey& key) { return std::visit(KeyVisitor{}, key.value); }

json ExtraKeysToJson(const std::vector<std::optional<ExtraKeys>>& all) {
  json list = json::array();
  for (const auto& keys : all) {
    if (!keys) {
      list.push_back(nullptr);
      continue;
    }
    json items = json::array();
    for (const ExtraKey& key : *keys) items.push_back(KeyToJson(key));
    list.push_back(std::move(items));
  }
  return list;
}

template <typename T>
void PutIfSent(json& object, const char* key, const std::optional<T>& value) {
  if (value) object[key] = *value;
}

json TokensToJson(const BlockStored& event) {
  if (event.tokens_per_position == 1) return *event.token_ids;
  json pairs = json::array();
  for (size_t i = 0; i + 1 < event.token_ids->size(); i += 2) {
    pairs.push_back({(*event.token_ids)[i], (*event.token_ids)[i + 1]});
  }
  return pairs;
}

json LookaheadToJson(const LookaheadTokens& lookahead, size_t blocks) {
  json lists = json::array();
  auto next = lookahead.token_ids.begin();
  for (size_t i = 0; i < blocks; ++i, next += lookahead.width) {
    lists.push_back(std::vector<TokenId>(next, next + lookahead.width));
  }
  return lists;
}

json ToJson(const BlockStored& event) {
  json object = {{"type", "BlockStored"},
                 {"block_hashes", HashesToJson(event.block_hashes)},
                 {"block_size", event.block_size}};
  object["parent_block_hash"] =
      event.parent_block_hash ? HashToJson(*event.parent_block_hash) : json();
  if (event.token_ids) object["token_ids"] = TokensToJson(event);
  PutIfSent(object, "lora_id", event.lora_id);
  PutIfSent(object, "medium", event.medium);
  PutIfSent(object, "lora_name", event.lora_name);
  if (event.extra_keys) object["extra_keys"] = ExtraKeysToJson(*event.extra_keys);
  PutIfSent(object, "group_idx", event.group_idx);
  PutIfSent(object, "kv_cache_spec_kind", event.kv_cache_spec_kind);
  PutIfSent(object, "kv_cache_spec_sliding_window", event.kv_cache_spec_sliding_window);
  PutIfSent(object, "locality", event.locality);
  PutIfSent(object, "ownership", event.ownership);
  PutIfSent(object, "session_id", event.session_id);
  if (event.lookahead) {
    object["lookahead_token_ids"] = LookaheadToJson(*event.lookahead, event.block_hashes.size());
  }
  PutIfSent(object, "cache_salt", event.cache_salt);
  PutIfSent(object, "token_offset", event.token_offset);
  if (event.metadata) {
    for (const auto& [key, value] : *event.metadata) object["metadata"][key] = KeyToJson(value);
  }
  return object;
}

json ToJson(const BlockRemoved& event) {
  json object = {{"type", "BlockRemoved"}, {"block_hashes", HashesToJson(event.block_hashes)}};
  PutIfSent(object, "medium", event.medium);
  PutIfSent(object, "group_idx", event.group_idx);
  PutIfSent(object, "locality", event.locality);
  PutIfSent(object, "ownership", event.ownership);
  return object;
}

json ToJson(const AllBlocksCleared& event) {
  json object = {{"type", "AllBlocksCleared"}};
  PutIfSent(object, "medium", event.medium);
  return object;
}

std::string HashText(const BlockHash& hash) {
  const json value = HashToJson(hash);
  return value.is_object() ? value["bytes"].get<std::string>() : value.dump();
}

std::string GroupText(const std::optional<int64_t>& group) {
  return group ? "group " + std::to_string(*group) : "no group";
}

std::string Describe(const BlockStored& event) {
  std::string text = "stored   " + GroupText(event.group_idx);
  if (event.kv_cache_spec_kind) text += " " + *event.kv_cache_spec_kind;
  if (event.kv_cache_spec_sliding_window) {
    text += "/" + std::to_string(*event.kv_cache_spec_sliding_window);
  }
  text += " " + event.medium.value_or("-") + ", " + std::to_string(event.block_hashes.size()) +
          " blocks of " + std::to_string(event.block_size);
  if (event.token_ids) text += ", " + std::to_string(event.token_ids->size()) + " tokens";
  if (event.lookahead) text += ", lookahead " + std::to_string(event.lookahead->width);
  if (!event.block_hashes.empty()) text += ", first " + HashText(event.block_hashes.front());
  return text + ", parent " + (event.parent_block_hash ? HashText(*event.parent_block_hash) : "-");
}

std::string Describe(const BlockRemoved& event) {
  std::string text = "removed  " + GroupText(event.group_idx) + " " + event.medium.value_or("-");
  for (const BlockHash& hash : event.block_hashes) text += " " + HashText(hash);
  return text;
}

std::string Describe(const AllBlocksCleared& event) {
  return event.medium ? "cleared  " + *event.medium : "cleared";
}

}  // namespace

json BatchToJson(const EventBatch& batch) {
  json events = json::array();
  for (const Event& event : batch.events) {
    events.push_back(std::visit([](const auto& e) { return ToJson(e); }, event));
  }
  json object = {{"ts", batch.ts}, {"events", std::move(events)}};
  object["data_parallel_rank"] =
      batch.data_parallel_rank ? json(*batch.data_parallel_rank) : json();
  return object;
}

std::string DescribeEvent(const Event& event) {
  return std::visit([](const auto& e) { return Describe(e); }, event);
}

}  // namespace kvcast::tools
