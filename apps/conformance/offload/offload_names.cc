// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/offload/offload_names.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "apps/conformance/scenario/scenario_event.h"
#include "apps/support/or_null.h"

namespace kvcast::tools {

using Json = nlohmann::json;

namespace {

constexpr uint8_t kDigestBytes = 32;

std::string Text(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

OffloadKey OffloadKeyOf(const std::string& hex) {
  const std::string bytes = HexToBytes(hex);
  const auto key = ParseOffloadKey({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  if (!key.ok()) throw std::runtime_error(key.status().ToString());
  return *key;
}

void OffloadNames::AddHash(const std::string& hex) {
  Digest digest;
  digest.size = kDigestBytes;
  const int64_t number = num_hashes();
  if (hex.empty()) {
    // Write the number at both ends: hash tables use the first bytes, events contain the last
    // bytes.
    std::memcpy(digest.data.data(), &number, sizeof(number));
    std::memcpy(digest.data.data() + kDigestBytes - sizeof(number), &number, sizeof(number));
  } else {
    const std::string bytes = HexToBytes(hex);
    if (bytes.size() != kDigestBytes) throw std::runtime_error("a hash is not 32 bytes");
    std::memcpy(digest.data.data(), bytes.data(), bytes.size());
  }
  by_bytes_.emplace(Text(digest.bytes()), number);
  digests_.push_back(digest);
}

OffloadRequestId OffloadNames::RequestId(const std::string& name) {
  const auto [found, added] =
      request_ids_.try_emplace(name, OffloadRequestId(request_names_.size()));
  if (added) request_names_.push_back(name);
  return found->second;
}

Json OffloadNames::Key(const OffloadKey& key) const {
  return {by_bytes_.at(Text(key.digest.bytes())), key.group.value};
}

Json OffloadNames::Keys(std::span<const OffloadKey> keys) const {
  Json list = Json::array();
  for (const OffloadKey& key : keys) list.push_back(Key(key));
  return list;
}

Json OffloadNames::Slots(std::span<const SlotId> slots) {
  Json list = Json::array();
  for (const SlotId slot : slots) list.push_back(slot.value);
  return list;
}

Json OffloadNames::Hash(const BlockHash& hash) const {
  return hash.is_bytes() ? Json(by_bytes_.at(Text(hash.bytes()))) : Json(hash.integer());
}

Json OffloadNames::StoredJson(const BlockStored& event, bool literal) const {
  Json hashes = Json::array();
  for (const BlockHash& hash : event.block_hashes) hashes.push_back(Hash(hash));
  Json json = {{"type", "BlockStored"},
               {"block_hashes", hashes},
               {"parent_block_hash", Json()},
               {"block_size", event.block_size},
               {"lora_id", OrNull(event.lora_id)},
               {"lora_name", OrNull(event.lora_name)},
               {"medium", OrNull(event.medium)},
               {"group_idx", OrNull(event.group_idx)},
               {"extra_keys", event.extra_keys ? Json("some") : Json()},
               {"kv_cache_spec_kind", OrNull(event.kv_cache_spec_kind)},
               {"kv_cache_spec_sliding_window", OrNull(event.kv_cache_spec_sliding_window)},
               {"locality", OrNull(event.locality)}};
  if (event.parent_block_hash) json["parent_block_hash"] = Hash(*event.parent_block_hash);
  if (literal) {
    json["token_ids"] = OrNull(event.token_ids);
  } else {
    json["num_tokens"] = event.token_ids ? std::ssize(*event.token_ids) : -1;
  }
  return json;
}

Json OffloadNames::EventJson(const Event& event, bool literal) const {
  if (const auto* stored = std::get_if<BlockStored>(&event)) return StoredJson(*stored, literal);
  if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
    Json hashes = Json::array();
    for (const BlockHash& hash : removed->block_hashes) hashes.push_back(Hash(hash));
    return {{"type", "BlockRemoved"},
            {"block_hashes", hashes},
            {"medium", OrNull(removed->medium)},
            {"group_idx", OrNull(removed->group_idx)},
            {"locality", OrNull(removed->locality)}};
  }
  return {{"type", "AllBlocksCleared"}};
}

}  // namespace kvcast::tools
