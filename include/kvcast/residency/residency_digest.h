// Digests of what a worker holds: two parties that have them equal hold the same.
//
// The digest of a place (tier, group) is the sum over its block hashes of copies x H128(hash),
// modulo 2^128, and the count of copies: it needs no order, a copy more or less is one addition,
// and digests of parts add up. It is kept in 256 buckets by hash, so that a difference can be
// narrowed down. It finds faults, not liars. schemas/README.md has H128.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "kvcast/core/block_hash_value.h"
#include "kvcast/core/tier.h"

namespace kvcast {

// Digest of a multiset of block hashes. Zero: the empty one.
struct DigestSum {
  uint64_t high = 0;  // of the 128-bit sum
  uint64_t low = 0;
  uint64_t copies = 0;

  void Add(const DigestSum& other);
  void Subtract(const DigestSum& other);
  friend bool operator==(const DigestSum&, const DigestSum&) = default;
};

inline constexpr size_t kDigestBuckets = 256;
using DigestBuckets = std::array<DigestSum, kDigestBuckets>;

// One copy of the hash.
DigestSum CopyDigestOf(const BlockHash& hash);
// The bucket that the hash counts in.
size_t DigestBucketOf(const BlockHash& hash);

// What one place holds.
struct PlaceDigest {
  Tier tier = Tier::kGpu;
  uint8_t group = 0;
  DigestSum total;

  friend bool operator==(const PlaceDigest&, const PlaceDigest&) = default;
};
// By tier, then group; without empty places, so that equal holdings are equal values.
using ResidencyTotals = std::vector<PlaceDigest>;

// Digests of all places of one worker, kept up to date. Thread-compatible; 6 KiB a place.
class ResidencyDigest {
 public:
  void Add(Tier tier, uint8_t group, const BlockHash& hash);
  // REQUIRES: a copy of it was added.
  void Remove(Tier tier, uint8_t group, const BlockHash& hash);
  void Clear(Tier tier);

  ResidencyTotals Totals() const;
  // nullptr: the place is empty. Borrowed until the next change.
  const DigestBuckets* Buckets(Tier tier, uint8_t group) const;

 private:
  struct Place {
    DigestSum total;
    DigestBuckets buckets{};
  };
  std::array<std::vector<std::unique_ptr<Place>>, kTiers> places_;  // by tier and group
};

}  // namespace kvcast
