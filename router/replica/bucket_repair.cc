// SPDX-License-Identifier: Apache-2.0
#include "router/replica/bucket_repair.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "src/hash/seeded_hash.h"
#include "src/residency/mirror.h"

namespace kvcast::router {
namespace {

using TierGroup = std::pair<Tier, uint8_t>;

// Copies of one block in a group on a tier.
struct Copies {
  TierGroup tier_group;
  uint32_t count = 0;
  size_t shape = 0;  // index in `shapes` of the store that named the block
};

const char* MediumOf(Tier tier) {
  switch (tier) {
    case Tier::kGpu:
      return kMediumGpu;
    case Tier::kCpu:
      return kMediumCpu;
    case Tier::kStorage:
      break;
  }
  return kMediumStorage;
}

// Returns a copy of the event without its block hashes and its parent.
BlockStored ShapeOf(const BlockStored& event) {
  BlockStored shape = event;
  shape.block_hashes.clear();
  shape.parent_block_hash.reset();
  return shape;
}

const DigestBuckets kEmptyBuckets{};

}  // namespace

ResidencyDigest DigestOfContent(const PrefixIndex& index, WorkerId worker) {
  ResidencyDigest digest;
  index.ForEachResidency(
      worker, [&digest](Tier tier, uint8_t group, const BlockHash& hash, uint32_t copies) {
        digest.Add(tier, group, hash, copies);
      });
  return digest;
}

BucketMask DifferingBuckets(const ResidencyDigest& held, const PublisherStatus& status) {
  std::map<TierGroup, const DigestBuckets*> declared;
  for (const GroupTierStatus& group : status.groups) {
    if (group.buckets) declared[{group.digest.tier, group.digest.group}] = &*group.buckets;
  }
  BucketMask differing;
  for (int tier = 0; tier < kTiers; ++tier) {
    for (int64_t group = 0; group <= residency::kMaxGroup; ++group) {
      const TierGroup tier_group(static_cast<Tier>(tier), static_cast<uint8_t>(group));
      const auto it = declared.find(tier_group);
      const DigestBuckets& theirs = it == declared.end() ? kEmptyBuckets : *it->second;
      const DigestBuckets* ours = held.Buckets(tier_group.first, tier_group.second);
      if (ours == nullptr) ours = &kEmptyBuckets;
      for (size_t i = 0; i < kDigestBuckets; ++i) {
        if ((*ours)[i] != theirs[i]) differing.set(i);
      }
    }
  }
  return differing;
}

struct BucketRepair::Wanted {
  Copies& Find(const BlockHash& hash, const TierGroup& tier_group) {
    auto& by_tier_group = blocks[hash];
    for (Copies& copies : by_tier_group) {
      if (copies.tier_group == tier_group) return copies;
    }
    return by_tier_group.emplace_back(Copies{tier_group});
  }

  // The seed is secret, because the hashes come from the network.
  absl::flat_hash_map<BlockHash, absl::InlinedVector<Copies, 1>, SeededHash> blocks{
      0, SeededHash{ProcessSeed()}};
  std::vector<BlockStored> shapes;
};

BucketRepair::BucketRepair(const BucketMask& buckets)
    : buckets_(buckets), wanted_(std::make_unique<Wanted>()) {}
BucketRepair::~BucketRepair() = default;

bool BucketRepair::Add(const EventBatch& part) {
  for (const Event& event : part.events) {
    const auto& stored = std::get<BlockStored>(event);
    const TierGroup tier_group(TierOf(stored.medium),
                               static_cast<uint8_t>(stored.group_idx.value_or(0)));
    wanted_->shapes.push_back(ShapeOf(stored));
    for (const BlockHash& hash : stored.block_hashes) {
      if (!buckets_.test(DigestBucketOf(hash))) return false;
      Copies& copies = wanted_->Find(hash, tier_group);
      ++copies.count;
      copies.shape = wanted_->shapes.size() - 1;
    }
  }
  return true;
}

EventBatch BucketRepair::TakeChanges(const PrefixIndex& index, WorkerId worker) {
  std::map<TierGroup, BlockRemoved> surplus;
  index.ForEachResidency(worker,
                         [&](Tier tier, uint8_t group, const BlockHash& hash, uint32_t held) {
                           if (!buckets_.test(DigestBucketOf(hash))) return;
                           const TierGroup tier_group(tier, group);
                           Copies& wanted = wanted_->Find(hash, tier_group);
                           const uint32_t kept = std::min(held, wanted.count);
                           wanted.count -= kept;
                           for (; held > kept; --held) {
                             surplus[tier_group].block_hashes.push_back(hash);
                           }
                         });
  std::vector<BlockStored> missing = std::move(wanted_->shapes);
  for (const auto& [hash, by_tier_group] : wanted_->blocks) {
    for (const Copies& copies : by_tier_group) {
      for (uint32_t i = 0; i < copies.count; ++i) {
        missing[copies.shape].block_hashes.push_back(hash);
      }
    }
  }
  *wanted_ = Wanted();
  EventBatch changes;
  for (auto& [tier_group, removed] : surplus) {
    removed.medium = MediumOf(tier_group.first);
    removed.group_idx = tier_group.second;
    changes.events.emplace_back(std::move(removed));
  }
  for (BlockStored& stored : missing) {
    if (!stored.block_hashes.empty()) changes.events.emplace_back(std::move(stored));
  }
  return changes;
}

}  // namespace kvcast::router
