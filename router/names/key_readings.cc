// SPDX-License-Identifier: Apache-2.0
#include "router/names/key_readings.h"

#include <algorithm>
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

// Event layouts without extra_keys do not show salts and items, so their keys are not certain.
std::optional<SentKeys> KeysOf(const BlockStored& event, size_t index) {
  if (event.extra_keys) {
    if (event.extra_keys->size() != event.block_hashes.size()) return std::nullopt;
    return SentKeys{(*event.extra_keys)[index].value_or(ExtraKeys())};
  }
  if (event.lora_name) return SentKeys{{ExtraKey::Text(*event.lora_name)}, false};
  if (event.lora_id) return std::nullopt;
  return SentKeys{{}, false};
}

bool HasTooManyKeys(const BlockStored& event, size_t index) {
  if (!event.extra_keys || index >= event.extra_keys->size()) return false;
  const std::optional<ExtraKeys>& keys = (*event.extra_keys)[index];
  return keys && keys->size() > kMaxTestedKeys;
}

// True if key `index` is the adapter's name: it is the first key, and it equals the event's LoRA
// name.
bool IsAdapter(const BlockStored& event, const ExtraKeys& keys, size_t index) {
  const auto* text = std::get_if<std::string>(&keys[index].value);
  return index == 0 && text != nullptr && event.lora_name && *text == *event.lora_name;
}

// nullopt: the key is of no known kind.
std::optional<KeyKind> KindOfKey(const BlockStored& event, const ExtraKeys& keys, size_t index) {
  if (IsAdapter(event, keys, index)) return KeyKind::kLora;
  if (IsText(keys[index])) return KeyKind::kSalt;
  if (ItemIdentifier(keys[index]) != nullptr) return KeyKind::kImages;
  if (std::holds_alternative<Bytes>(keys[index].value)) return KeyKind::kEmbeddings;
  return std::nullopt;
}

ExtraKey List(std::string_view source, std::vector<ExtraKey> keys) {
  keys.insert(keys.begin(), ExtraKey::Text(std::string(source)));
  return {ExtraKeyList{std::move(keys)}};
}

std::optional<ExtraKey> TagKey(const BlockStored& event, const ExtraKeys& keys, size_t index,
                               const LoraPaths& paths) {
  const std::optional<KeyKind> kind = KindOfKey(event, keys, index);
  if (!kind) return std::nullopt;
  switch (*kind) {
    case KeyKind::kLora: {
      const auto path = paths.find(*event.lora_name);
      if (path == paths.end()) return std::nullopt;
      return List("lora", {keys[index], ExtraKey::Text(path->second)});
    }
    case KeyKind::kSalt:
      return List("cache_salt", {keys[index]});
    case KeyKind::kImages:
      return List("mm", std::get<ExtraKeyList>(keys[index].value).items);
    default:
      return List("prompt_embeds", {keys[index]});
  }
}

// Returns the keys in the form that is hashed; nullopt: the keys cannot have this form.
std::optional<ExtraKeys> InForm(const BlockStored& event, const ExtraKeys& keys,
                                ExtraKeyScheme form, const LoraPaths& paths) {
  if (form == ExtraKeyScheme::kBare) return keys;
  ExtraKeys tagged;
  for (size_t i = 0; i < keys.size(); ++i) {
    std::optional<ExtraKey> key = TagKey(event, keys, i, paths);
    if (!key) return std::nullopt;
    tagged.push_back(*std::move(key));
  }
  return tagged;
}

// Returns tags as if items with equal identifiers had one identifier object. Empty: all identifiers
// differ.
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

// For a request that grew beyond its prompt, the engine hashes only the last item.
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

ExtraKeys AdapterKeys(const BlockStored& event) {
  if (!event.lora_name) return {};
  return {ExtraKey::Text(*event.lora_name)};
}

// True if the keys are the adapter and, in the first block of a prompt, a salt. Such keys determine
// the keys of every unit.
bool AreTexts(const BlockStored& event, const ExtraKeys& keys, bool first_of_prompt) {
  const ExtraKeys adapter = AdapterKeys(event);
  const size_t most = adapter.size() + (first_of_prompt ? 1 : 0);
  return keys.size() >= adapter.size() && keys.size() <= most &&
         std::equal(adapter.begin(), adapter.end(), keys.begin()) &&
         std::all_of(keys.begin(), keys.end(), IsText);
}

// The LoRA name is a key of every unit. The salt is a key of the prompt's first unit. The units of
// items and embeddings are unknown.
KeyReadings OfManyUnits(const BlockStored& event, size_t index, const SentKeys& sent) {
  const bool at_root = index == 0 && !event.parent_block_hash;
  if (!AreTexts(event, sent.keys, at_root)) return {{}, false};
  return {{{sent.keys, AdapterKeys(event), {}}}, sent.certain};
}

bool Convert(const BlockStored& event, ExtraKeyScheme form, const LoraPaths& paths,
             KeyReading& reading) {
  std::optional<ExtraKeys> first = InForm(event, reading.first, form, paths);
  std::optional<ExtraKeys> rest = InForm(event, reading.rest, form, paths);
  if (!first || !rest) return false;
  reading.first = *std::move(first);
  reading.rest = *std::move(rest);
  return true;
}

}  // namespace

KeyKindSet KindsOf(const BlockStored& event, size_t index) {
  KeyKindSet kinds;
  if (event.lookahead) kinds |= SetOf(KeyKind::kLookahead);
  if (event.extra_keys) {
    if (index >= event.extra_keys->size()) return kinds;
    const auto& keys = (*event.extra_keys)[index];
    for (size_t i = 0; keys && i < keys->size(); ++i) {
      if (const auto kind = KindOfKey(event, *keys, i)) kinds |= SetOf(*kind);
    }
  } else if (event.lora_name) {
    kinds |= SetOf(KeyKind::kLora);
  }
  return kinds.none() ? SetOf(KeyKind::kPlain) : kinds;
}

KeyReadings ReadKeys(const BlockStored& event, size_t index, int64_t units, ExtraKeyScheme form,
                     const LoraPaths& paths) {
  if (HasTooManyKeys(event, index)) return {{}, false};
  const std::optional<SentKeys> sent = KeysOf(event, index);
  if (!sent) return {{}, false};
  if (sent->keys.empty() && !event.lora_name) return {{KeyReading{}}, sent->certain};
  KeyReadings read =
      units == 1 ? OfOneUnit(sent->keys, sent->certain) : OfManyUnits(event, index, *sent);
  for (KeyReading& reading : read.readings) {
    if (!Convert(event, form, paths, reading)) return {{}, false};
  }
  return read;
}

std::optional<KeyReading> ReadSpanKeys(const BlockStored& event, ExtraKeyScheme form,
                                       const LoraPaths& paths) {
  KeyReading reading{AdapterKeys(event), AdapterKeys(event), {}};
  for (size_t i = 0; i < event.block_hashes.size(); ++i) {
    const std::optional<SentKeys> sent = KeysOf(event, i);
    // Only the first block of a prompt has the salt as a key. If the store announces that block,
    // the block is the first block of the store.
    const bool may_be_first = i == 0 && !event.parent_block_hash;
    if (!sent || !AreTexts(event, sent->keys, may_be_first)) return std::nullopt;
    if (i == 0) reading.first = sent->keys;
  }
  if (!Convert(event, form, paths, reading)) return std::nullopt;
  return reading;
}

std::optional<std::string> AdapterWithoutPath(const BlockStored& event, const LoraPaths& paths) {
  if (!event.lora_name || paths.contains(*event.lora_name)) return std::nullopt;
  return event.lora_name;
}

}  // namespace kvcast::router
