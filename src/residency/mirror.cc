// SPDX-License-Identifier: Apache-2.0
#include "src/residency/mirror.h"

#include <xxhash.h>

#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace kvcast::residency {
namespace {

struct HashOfBlock {
  size_t operator()(const BlockHash& hash) const {
    if (!hash.is_bytes()) return XXH3_64bits_withSeed(nullptr, 0, hash.integer());
    return XXH3_64bits(hash.bytes().data(), hash.bytes().size());
  }
};

struct Place {
  BlockStored shape;
  absl::flat_hash_map<BlockHash, MirrorEntry, HashOfBlock> blocks;
};

using PlaceKey = std::pair<Tier, uint8_t>;

std::optional<PlaceKey> KeyOf(const std::optional<std::string>& medium,
                              const std::optional<int64_t>& group_idx) {
  const int64_t group = group_idx.value_or(0);
  if (group < 0 || group > kMaxGroup) return std::nullopt;
  return PlaceKey{TierOf(medium), static_cast<uint8_t>(group)};
}

BlockStored ShapeOf(const BlockStored& event) {
  BlockStored shape;
  shape.block_size = event.block_size;
  shape.medium = event.medium;
  shape.group_idx = event.group_idx;
  shape.kv_cache_spec_kind = event.kv_cache_spec_kind;
  shape.kv_cache_spec_sliding_window = event.kv_cache_spec_sliding_window;
  return shape;
}

BlockStored PartOf(const BlockStored& event) {
  BlockStored part = ShapeOf(event);
  part.block_hashes = event.block_hashes;
  part.parent_block_hash = event.parent_block_hash;
  return part;
}

BlockRemoved PartOf(const BlockRemoved& event) {
  return {.block_hashes = event.block_hashes, .medium = event.medium, .group_idx = event.group_idx};
}

AllBlocksCleared PartOf(const AllBlocksCleared& event) { return {.medium = event.medium}; }

}  // namespace

EventBatch MirroredPart(const EventBatch& batch) {
  EventBatch part{.ts = batch.ts, .events = {}, .data_parallel_rank = batch.data_parallel_rank};
  part.events.reserve(batch.events.size());
  for (const Event& event : batch.events) {
    part.events.push_back(std::visit([](const auto& e) { return Event(PartOf(e)); }, event));
  }
  return part;
}

struct Mirror::Places {
  std::map<PlaceKey, Place> by_key;
};

Mirror::Mirror() : places_(std::make_unique<Places>()) {}
Mirror::~Mirror() = default;

void Mirror::Apply(const EventBatch& batch) {
  for (const Event& event : batch.events) {
    if (const auto* stored = std::get_if<BlockStored>(&event)) {
      Store(*stored);
    } else if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
      Remove(*removed);
    } else {
      const Tier tier = TierOf(std::get<AllBlocksCleared>(event).medium);
      std::erase_if(places_->by_key,
                    [tier](const auto& place) { return place.first.first == tier; });
      digest_.Clear(tier);
    }
  }
}

void Mirror::Store(const BlockStored& event) {
  const std::optional<PlaceKey> key = KeyOf(event.medium, event.group_idx);
  if (!key || event.block_hashes.empty()) return;
  Place& place = places_->by_key[*key];
  place.shape = ShapeOf(event);
  const BlockHash* parent = event.parent_block_hash ? &*event.parent_block_hash : nullptr;
  for (const BlockHash& hash : event.block_hashes) {
    MirrorEntry& entry = place.blocks[hash];
    if (entry.copies < std::numeric_limits<uint32_t>::max()) ++entry.copies;
    entry.block_size = static_cast<uint32_t>(event.block_size);
    entry.at_root = parent == nullptr;
    if (parent != nullptr) entry.parent = *parent;
    parent = &hash;
    digest_.Add(key->first, key->second, hash);
  }
}

void Mirror::Remove(const BlockRemoved& event) {
  const std::optional<PlaceKey> key = KeyOf(event.medium, event.group_idx);
  const auto place = key ? places_->by_key.find(*key) : places_->by_key.end();
  if (place == places_->by_key.end()) {
    unknown_removes_ += event.block_hashes.size();
    return;
  }
  for (const BlockHash& hash : event.block_hashes) {
    const auto entry = place->second.blocks.find(hash);
    if (entry == place->second.blocks.end()) {
      ++unknown_removes_;
      continue;
    }
    digest_.Remove(key->first, key->second, hash);
    if (--entry->second.copies == 0) place->second.blocks.erase(entry);
  }
}

void Mirror::Clear() {
  places_->by_key.clear();
  digest_ = ResidencyDigest();
}

uint64_t Mirror::blocks() const {
  uint64_t blocks = 0;
  for (const auto& [key, place] : places_->by_key) blocks += place.blocks.size();
  return blocks;
}

void Mirror::ForEachPlace(const std::function<void(const BlockStored&)>& visit) const {
  for (const auto& [key, place] : places_->by_key) {
    if (!place.blocks.empty()) visit(place.shape);
  }
}

void Mirror::ForEachBlock(
    const BlockStored& shape,
    const std::function<void(const BlockHash&, const MirrorEntry&)>& visit) const {
  const auto place = places_->by_key.find(*KeyOf(shape.medium, shape.group_idx));
  if (place == places_->by_key.end()) return;
  for (const auto& [hash, entry] : place->second.blocks) visit(hash, entry);
}

const MirrorEntry* Mirror::Find(const BlockStored& shape, const BlockHash& hash) const {
  const auto place = places_->by_key.find(*KeyOf(shape.medium, shape.group_idx));
  if (place == places_->by_key.end()) return nullptr;
  const auto entry = place->second.blocks.find(hash);
  return entry == place->second.blocks.end() ? nullptr : &entry->second;
}

}  // namespace kvcast::residency
