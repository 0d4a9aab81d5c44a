// SPDX-License-Identifier: Apache-2.0
#include "src/residency/mirror.h"

#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "src/hash/seeded_hash.h"

namespace kvcast::residency {
namespace {

struct GroupTier {
  // Clients may be able to compute the block hashes of their prompts, and to choose prompts whose
  // hashes would collide in a table without a secret seed.
  using Blocks = absl::flat_hash_map<BlockHash, MirrorEntry, router::SeededHash>;

  BlockStored shape;
  Blocks blocks{0, router::SeededHash{router::ProcessSeed()}};
};

using GroupTierKey = std::pair<Tier, uint8_t>;

std::optional<GroupTierKey> KeyOf(const std::optional<std::string>& medium,
                                  const std::optional<int64_t>& group_idx) {
  const int64_t group = group_idx.value_or(0);
  if (group < 0 || group > kMaxGroup) return std::nullopt;
  return GroupTierKey{TierOf(medium), static_cast<uint8_t>(group)};
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

struct Mirror::GroupTiers {
  std::map<GroupTierKey, GroupTier> by_key;
};

Mirror::Mirror(bool repeats_are_refreshes)
    : repeats_are_refreshes_(repeats_are_refreshes), group_tiers_(std::make_unique<GroupTiers>()) {}
Mirror::~Mirror() = default;

void Mirror::Apply(const EventBatch& batch) {
  for (const Event& event : batch.events) {
    if (const auto* stored = std::get_if<BlockStored>(&event)) {
      Store(*stored);
    } else if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
      Remove(*removed);
    } else {
      const Tier tier = TierOf(std::get<AllBlocksCleared>(event).medium);
      std::erase_if(group_tiers_->by_key,
                    [tier](const auto& group_tier) { return group_tier.first.first == tier; });
      digest_.Clear(tier);
    }
  }
}

void Mirror::Store(const BlockStored& event) {
  const std::optional<GroupTierKey> key = KeyOf(event.medium, event.group_idx);
  if (!key || event.block_hashes.empty()) return;
  GroupTier& group_tier = group_tiers_->by_key[*key];
  group_tier.shape = ShapeOf(event);
  const BlockHash* parent = event.parent_block_hash ? &*event.parent_block_hash : nullptr;
  for (const BlockHash& hash : event.block_hashes) {
    MirrorEntry& entry = group_tier.blocks[hash];
    const bool counts = entry.copies == 0 || !repeats_are_refreshes_;
    if (counts && entry.copies < std::numeric_limits<uint32_t>::max()) ++entry.copies;
    entry.block_size = static_cast<uint32_t>(event.block_size);
    entry.at_root = parent == nullptr;
    if (parent != nullptr) entry.parent = *parent;
    parent = &hash;
    if (counts) digest_.Add(key->first, key->second, hash);
  }
}

void Mirror::Remove(const BlockRemoved& event) {
  const std::optional<GroupTierKey> key = KeyOf(event.medium, event.group_idx);
  const auto group_tier = key ? group_tiers_->by_key.find(*key) : group_tiers_->by_key.end();
  if (group_tier == group_tiers_->by_key.end()) {
    unknown_removes_ += event.block_hashes.size();
    return;
  }
  for (const BlockHash& hash : event.block_hashes) {
    const auto entry = group_tier->second.blocks.find(hash);
    if (entry == group_tier->second.blocks.end()) {
      ++unknown_removes_;
      continue;
    }
    digest_.Remove(key->first, key->second, hash);
    if (--entry->second.copies == 0) group_tier->second.blocks.erase(entry);
  }
}

void Mirror::Clear() {
  group_tiers_->by_key.clear();
  digest_ = ResidencyDigest();
}

uint64_t Mirror::blocks() const {
  uint64_t blocks = 0;
  for (const auto& [key, group_tier] : group_tiers_->by_key) blocks += group_tier.blocks.size();
  return blocks;
}

MirrorCopy Mirror::Copy(const BucketMask& buckets) const {
  MirrorCopy copy;
  const bool all = buckets.all();
  for (const auto& [key, group_tier] : group_tiers_->by_key) {
    if (group_tier.blocks.empty()) continue;
    MirrorCopy::GroupTier& copied = copy.group_tiers.emplace_back();
    copied.shape = group_tier.shape;
    if (all) copied.blocks.reserve(group_tier.blocks.size());
    for (const auto& [hash, entry] : group_tier.blocks) {
      if (all || buckets.test(DigestBucketOf(hash))) copied.blocks.push_back({hash, entry});
    }
  }
  return copy;
}

}  // namespace kvcast::residency
