// ResidencyDigest: digests of the blocks that a worker holds. Two parties with equal digests hold
// the same blocks.
//
// The digest of a group on a tier has two parts: the number of copies, and the sum of copies x
// H128(hash) over its block hashes, modulo 2^128. The digest does not depend on the order of
// changes. Each added or removed copy costs one hash and two additions. If a set of blocks is
// divided into parts, its digest is the sum of the digests of the parts. Each digest is divided
// into 256 buckets by hash, to locate a difference. The digest detects faults; it is not
// collision-resistant against an adversary. schemas/README.md defines H128.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "kvcast/core/block_hash_value.h"
#include "kvcast/core/tier.h"

namespace kvcast {

// Digest of a multiset of block hashes. All members 0: the empty multiset.
struct DigestSum {
  uint64_t high = 0;  // upper 64 bits of the 128-bit sum
  uint64_t low = 0;
  uint64_t copies = 0;

  void Add(const DigestSum& other);
  void Subtract(const DigestSum& other);
  friend bool operator==(const DigestSum&, const DigestSum&) = default;
};

inline constexpr size_t kDigestBuckets = 256;
using DigestBuckets = std::array<DigestSum, kDigestBuckets>;

// The digest of one copy of `hash`.
DigestSum CopyDigestOf(const BlockHash& hash);
// The index of the bucket that contains `hash`.
size_t DigestBucketOf(const BlockHash& hash);

// Total digest of a group on a tier.
struct GroupTierDigest {
  Tier tier = Tier::kGpu;
  uint8_t group = 0;
  DigestSum total;

  friend bool operator==(const GroupTierDigest&, const GroupTierDigest&) = default;
};
// Totals of all non-empty groups on all tiers, sorted by tier, then group. Equal residencies
// therefore give equal values.
using ResidencyTotals = std::vector<GroupTierDigest>;

// Maintains the digests of all groups on all tiers of one worker. Thread-compatible. 6 KiB per
// group and tier.
class ResidencyDigest {
 public:
  void Add(Tier tier, uint8_t group, const BlockHash& hash, uint32_t copies = 1);
  // REQUIRES: a copy of `hash` was added and not removed yet.
  void Remove(Tier tier, uint8_t group, const BlockHash& hash);
  void Clear(Tier tier);

  ResidencyTotals Totals() const;
  // nullptr: no copy of this group was added on this tier since the last Clear(tier). The pointer
  // is valid until the next change.
  const DigestBuckets* Buckets(Tier tier, uint8_t group) const;

 private:
  struct GroupTier {
    DigestSum total;
    DigestBuckets buckets{};
  };
  std::array<std::vector<std::unique_ptr<GroupTier>>, kTiers> by_tier_;  // by tier and group
};

}  // namespace kvcast
