// SPDX-License-Identifier: Apache-2.0
#include "router/key_readings.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace kvcast::router {
namespace {

bool IsText(const ExtraKey& key) { return std::holds_alternative<std::string>(key.value); }

const std::string* ItemIdentifier(const ExtraKey& key) {
  const auto* pair = std::get_if<ExtraKeyList>(&key.value);
  if (pair == nullptr || pair->items.size() != 2) return nullptr;
  return std::get_if<std::string>(&pair->items[0].value);
}

struct SentKeys {
  ExtraKeys keys;
  bool certain = true;
};

// Layouts before extra_keys say nothing of salts and multimodal items.
std::optional<SentKeys> KeysOf(const BlockStored& event, size_t index) {
  if (event.extra_keys) {
    if (event.extra_keys->size() != event.block_hashes.size()) return std::nullopt;
    return SentKeys{(*event.extra_keys)[index].value_or(ExtraKeys())};
  }
  if (event.lora_name) return SentKeys{{ExtraKey::Text(*event.lora_name)}, false};
  if (event.lora_id) return std::nullopt;
  return SentKeys{{}, false};
}

// Items of one block whose identifier is the same object get the same tag.
std::vector<uint32_t> TagsOfEqualItems(const ExtraKeys& keys) {
  std::vector<uint32_t> tags(keys.size(), 0);
  bool shared = false;
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::string* identifier = ItemIdentifier(keys[i]);
    if (identifier == nullptr) continue;
    tags[i] = static_cast<uint32_t>(i + 1);
    for (size_t j = 0; j < i; ++j) {
      const std::string* earlier = ItemIdentifier(keys[j]);
      if (earlier == nullptr || *earlier != *identifier) continue;
      tags[i] = tags[j];
      shared = true;
      break;
    }
  }
  return shared ? tags : std::vector<uint32_t>();
}

// A request that grew past its prompt takes only its last item into account.
ExtraKeys WithLastItemAlone(const ExtraKeys& keys) {
  ExtraKeys kept;
  for (size_t i = 0; i < keys.size(); ++i) {
    const bool later_item =
        std::any_of(keys.begin() + static_cast<std::ptrdiff_t>(i) + 1, keys.end(), ItemIdentifier);
    if (ItemIdentifier(keys[i]) == nullptr || !later_item) kept.push_back(keys[i]);
  }
  return kept;
}

KeyReadings OfOneUnit(const ExtraKeys& keys, bool certain) {
  const auto items = std::count_if(keys.begin(), keys.end(), ItemIdentifier);
  KeyReadings read{{{keys, {}, {}}}, certain && items < 2};
  if (items < 2) return read;
  if (auto tags = TagsOfEqualItems(keys); !tags.empty()) {
    read.readings.push_back({keys, {}, std::move(tags)});
  }
  read.readings.push_back({WithLastItemAlone(keys), {}, {}});
  return read;
}

// LoRA name: every unit; salt: the first of the prompt. Items and embeddings are not told by unit.
KeyReadings OfManyUnits(const BlockStored& event, size_t index, const SentKeys& sent) {
  const ExtraKeys& keys = sent.keys;
  ExtraKeys lora;
  if (event.lora_name) lora.push_back(ExtraKey::Text(*event.lora_name));
  const bool at_root = index == 0 && !event.parent_block_hash;
  const size_t most = lora.size() + (at_root ? 1 : 0);
  const bool known = keys.size() >= lora.size() && keys.size() <= most &&
                     std::equal(lora.begin(), lora.end(), keys.begin()) &&
                     std::all_of(keys.begin(), keys.end(), IsText);
  if (!known) return {{}, false};
  return {{{keys, std::move(lora), {}}}, sent.certain};
}

}  // namespace

KeyReadings ReadKeys(const BlockStored& event, size_t index, int64_t units) {
  const std::optional<SentKeys> sent = KeysOf(event, index);
  if (!sent) return {{}, false};
  if (sent->keys.empty() && !event.lora_name) return {{KeyReading{}}, sent->certain};
  if (units == 1) return OfOneUnit(sent->keys, sent->certain);
  return OfManyUnits(event, index, *sent);
}

}  // namespace kvcast::router
