// SPDX-License-Identifier: Apache-2.0
#include "src/stream_sim/oracle.h"

#include <variant>

#include "src/stream_sim/random.h"

namespace kvcast::sim {
namespace {

// The events of a simulation contain only the media "GPU" and "CPU".
int TierNumber(const std::optional<std::string>& medium) {
  return medium && *medium == kMediumCpu ? 1 : 0;
}

// The result is linear in the sum of the digest, so that the oracle can update it copy by copy.
unsigned __int128 Weigh(int tier, int group, const DigestSum& digest) {
  const uint64_t group_tier =
      Mix(static_cast<uint64_t>(tier) * 1000 + static_cast<uint64_t>(group));
  const auto sum = static_cast<unsigned __int128>(digest.high) << 64 | digest.low;
  return sum * (group_tier | 1);
}

}  // namespace

HoldingsSum SumOf(const ResidencyTotals& totals) {
  HoldingsSum sum;
  for (const GroupTierDigest& digest : totals) {
    sum.mixed += Weigh(static_cast<int>(digest.tier), digest.group, digest.total);
    sum.copies += digest.total.copies;
  }
  return sum;
}

void Oracle::Add(const EventBatch& batch) {
  sums_.push_back(sums_.back());
  for (const Event& event : batch.events) {
    if (const auto* stored = std::get_if<BlockStored>(&event)) {
      for (const BlockHash& hash : stored->block_hashes) {
        Change(TierNumber(stored->medium), static_cast<int>(stored->group_idx.value_or(0)),
               hash.integer(), true);
      }
    } else if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
      for (const BlockHash& hash : removed->block_hashes) {
        Change(TierNumber(removed->medium), static_cast<int>(removed->group_idx.value_or(0)),
               hash.integer(), false);
      }
    } else {
      while (!holdings_.empty() && std::get<0>(holdings_.begin()->first) == 0) {
        const auto [tier, group, hash] = holdings_.begin()->first;
        Change(tier, group, hash, false);
      }
    }
  }
}

void Oracle::Change(int tier, int group, uint64_t hash, bool store) {
  const auto weight = Weigh(tier, group, CopyDigestOf(BlockHash::FromUnsigned(hash)));
  const auto key = std::tuple(tier, group, hash);
  HoldingsSum& sum = sums_.back();
  if (store) {
    ++holdings_[key];
    sum.mixed += weight;
    ++sum.copies;
    return;
  }
  const auto it = holdings_.find(key);
  if (it == holdings_.end()) return;
  if (--it->second == 0) holdings_.erase(it);
  sum.mixed -= weight;
  --sum.copies;
}

}  // namespace kvcast::sim
