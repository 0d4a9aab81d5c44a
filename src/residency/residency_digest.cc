// SPDX-License-Identifier: Apache-2.0
#include "kvcast/residency/residency_digest.h"

// The hash function is inlined. Nearly all hashes have 8 bytes, and for 8 bytes a call would cost
// more than the work.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "src/base/check.h"

namespace kvcast {
namespace {

using Uint128 = unsigned __int128;

Uint128 ValueOf(const DigestSum& sum) { return Uint128{sum.high} << 64 | sum.low; }

void SetValue(DigestSum& sum, Uint128 value) {
  sum.high = static_cast<uint64_t>(value >> 64);
  sum.low = static_cast<uint64_t>(value);
}

// XXH3-128 with a seed that distinguishes the forms of hashes. Integers are hashed as 8 bytes,
// little-endian.
XXH128_hash_t H128(const BlockHash& hash) {
  const auto seed = static_cast<uint64_t>(hash.form());
  if (hash.is_bytes()) return XXH3_128bits_withSeed(hash.bytes().data(), hash.bytes().size(), seed);
  std::array<uint8_t, 8> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(hash.integer() >> (8 * i));
  }
  return XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
}

size_t BucketOf(const DigestSum& one_copy) { return one_copy.high >> 56; }

}  // namespace

void DigestSum::Add(const DigestSum& other) {
  SetValue(*this, ValueOf(*this) + ValueOf(other));
  copies += other.copies;
}

void DigestSum::Subtract(const DigestSum& other) {
  SetValue(*this, ValueOf(*this) - ValueOf(other));
  copies -= other.copies;
}

DigestSum CopyDigestOf(const BlockHash& hash) {
  const XXH128_hash_t value = H128(hash);
  return {value.high64, value.low64, 1};
}

size_t DigestBucketOf(const BlockHash& hash) { return BucketOf(CopyDigestOf(hash)); }

void ResidencyDigest::Add(Tier tier, uint8_t group, const BlockHash& hash, uint32_t copies) {
  auto& groups = by_tier_[static_cast<size_t>(tier)];
  if (groups.size() <= group) groups.resize(group + size_t{1});
  if (!groups[group]) groups[group] = std::make_unique<GroupTier>();
  DigestSum added = CopyDigestOf(hash);
  const size_t bucket = BucketOf(added);
  SetValue(added, ValueOf(added) * copies);
  added.copies = copies;
  groups[group]->total.Add(added);
  groups[group]->buckets[bucket].Add(added);
}

void ResidencyDigest::Remove(Tier tier, uint8_t group, const BlockHash& hash) {
  auto& groups = by_tier_[static_cast<size_t>(tier)];
  KV_CHECK(group < groups.size() && groups[group]);
  const DigestSum one = CopyDigestOf(hash);
  groups[group]->total.Subtract(one);
  groups[group]->buckets[BucketOf(one)].Subtract(one);
}

void ResidencyDigest::Clear(Tier tier) { by_tier_[static_cast<size_t>(tier)].clear(); }

ResidencyTotals ResidencyDigest::Totals() const {
  ResidencyTotals totals;
  for (int tier = 0; tier < kTiers; ++tier) {
    const auto& groups = by_tier_[static_cast<size_t>(tier)];
    for (size_t group = 0; group < groups.size(); ++group) {
      if (!groups[group] || groups[group]->total == DigestSum{}) continue;
      totals.push_back(
          {static_cast<Tier>(tier), static_cast<uint8_t>(group), groups[group]->total});
    }
  }
  return totals;
}

const DigestBuckets* ResidencyDigest::Buckets(Tier tier, uint8_t group) const {
  const auto& groups = by_tier_[static_cast<size_t>(tier)];
  return group < groups.size() && groups[group] ? &groups[group]->buckets : nullptr;
}

}  // namespace kvcast
