// Mirror: the blocks that an engine holds, according to its publisher's batches. Snapshots are
// written from the mirror.
//
// The mirror keeps hashes, parents, block sizes and copies. It does not keep token ids, adapters
// and extra keys.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/residency/residency_digest.h"

namespace kvcast::residency {

// Groups above this number are not mirrored, because no index holds them.
inline constexpr int64_t kMaxGroup = 63;

struct MirrorEntry {
  uint32_t copies = 0;
  uint32_t block_size = 0;
  bool at_root = true;
  BlockHash parent;  // valid unless at_root
};

using BucketMask = std::bitset<kDigestBuckets>;

// The blocks of a mirror at one moment. They do not change when the mirror changes. Each block
// takes 96 bytes.
struct MirrorCopy {
  struct Block {
    BlockHash hash;
    MirrorEntry entry;
  };
  // A group on a tier.
  struct GroupTier {
    // A store event without blocks. It has the medium, group, block size, kind and window of the
    // latest store event of that group on that tier.
    BlockStored shape;
    std::vector<Block> blocks;  // in no particular order
  };
  // The groups that have blocks in the mirror, sorted by tier, then group.
  std::vector<GroupTier> group_tiers;
};

// The part of a batch that Mirror::Apply reads. Other parts of the batch do not affect the mirror.
EventBatch MirroredPart(const EventBatch& batch);

// Thread-compatible.
class Mirror {
 public:
  // `repeats_are_refreshes`: see PublisherConfig.
  explicit Mirror(bool repeats_are_refreshes = false);
  ~Mirror();

  void Apply(const EventBatch& batch);
  // Drops all entries.
  void Clear();

  const ResidencyDigest& digest() const { return digest_; }
  uint64_t blocks() const;  // number of distinct (tier, group, hash)
  // The number of removed hashes that the mirror did not hold.
  uint64_t unknown_removes() const { return unknown_removes_; }

  // Copies the blocks of these buckets. Takes about 0.1 s for a million blocks.
  MirrorCopy Copy(const BucketMask& buckets) const;

 private:
  struct GroupTiers;

  void Store(const BlockStored& event);
  void Remove(const BlockRemoved& event);

  const bool repeats_are_refreshes_;
  std::unique_ptr<GroupTiers> group_tiers_;
  ResidencyDigest digest_;
  uint64_t unknown_removes_ = 0;
};

}  // namespace kvcast::residency
