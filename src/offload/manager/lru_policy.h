// LruPolicy: evicts the least recently used chunk. The end of a store or load counts as a use.
// RankedLruPolicy: evicts the chunk with the smallest rank (OffloadUse). The end of a store or load
// does not change the rank. The manager sets the rank of a chunk that it reserves.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <absl/container/btree_set.h>

#include <tuple>
#include <vector>

#include "src/offload/manager/eviction_policy.h"

namespace kvcast::offload {

class LruPolicy final : public EvictionPolicy {
 public:
  explicit LruPolicy(ChunkTable& table) : table_(table), idle_(table) {}

  void OnReserved(uint32_t) override {}
  void OnIdle(uint32_t chunk) override { idle_.MoveToNewest(chunk); }
  void OnLoading(uint32_t chunk) override { ChunkList::Remove(table_, chunk); }
  void OnStoreFailed(uint32_t) override {}
  // A chunk that is not idle becomes the newest chunk in OnIdle.
  void OnTouch(uint32_t chunk) override {
    if (idle_.Contains(chunk)) idle_.MoveToNewest(chunk);
  }
  void OnAccess(uint32_t, uint64_t, int64_t) override {}
  void OnRequestFinished(uint32_t chunk, ChunkUse, uint64_t) override { OnTouch(chunk); }
  void OnStoreMiss(uint32_t) override {}
  bool ChooseVictims(int64_t slots, uint64_t mark, std::vector<uint32_t>& victims) const override;
  void OnEvicted(std::span<const uint32_t> victims, std::vector<uint32_t>& forgotten) override;
  void Clear() override { idle_.Clear(); }
  void Inspect(const Describe& describe, OffloadManager::State& state) const override;

 private:
  ChunkTable& table_;
  ChunkList idle_;
};

class RankedLruPolicy final : public EvictionPolicy {
 public:
  // by_access: the first use by a running request raises the rank (v0.33).
  RankedLruPolicy(ChunkTable& table, bool by_access)
      : table_(table), by_access_(by_access), idle_(table) {}

  void OnReserved(uint32_t) override {}
  void OnIdle(uint32_t chunk) override;
  void OnLoading(uint32_t chunk) override;
  void OnStoreFailed(uint32_t) override {}
  void OnTouch(uint32_t) override {}
  void OnAccess(uint32_t chunk, uint64_t rank, int64_t end) override;
  void OnRequestFinished(uint32_t chunk, ChunkUse use, uint64_t rank) override;
  void OnStoreMiss(uint32_t) override {}
  bool ChooseVictims(int64_t slots, uint64_t mark, std::vector<uint32_t>& victims) const override;
  void OnEvicted(std::span<const uint32_t> victims, std::vector<uint32_t>& forgotten) override;
  void Clear() override;
  void Inspect(const Describe& describe, OffloadManager::State& state) const override;

 private:
  // Rank, negated end, group, chunk.
  using Place = std::tuple<uint64_t, int64_t, uint32_t, uint32_t>;
  Place PlaceOf(uint32_t chunk) const;
  void SetRank(uint32_t chunk, uint64_t rank, int64_t end);

  ChunkTable& table_;
  const bool by_access_;
  ChunkList idle_;  // the chunks that are in order_
  absl::btree_set<Place> order_;
};

}  // namespace kvcast::offload
