// LruPolicy: evicts the chunk whose last use, or the end of it, is longest ago.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/offload/eviction_policy.h"

namespace kvcast::offload {

class LruPolicy final : public EvictionPolicy {
 public:
  explicit LruPolicy(ChunkTable& table) : table_(table), idle_(table) {}

  void OnReserved(uint32_t) override {}
  void OnIdle(uint32_t chunk) override { idle_.MoveToNewest(chunk); }
  void OnLoading(uint32_t chunk) override { ChunkList::Remove(table_, chunk); }
  void OnStoreFailed(uint32_t) override {}
  // Chunks in use become the newest when that ends.
  void OnTouch(uint32_t chunk) override {
    if (idle_.Contains(chunk)) idle_.MoveToNewest(chunk);
  }
  bool ChooseVictims(int64_t slots, uint64_t mark, std::vector<uint32_t>& victims) const override;
  void OnEvicted(std::span<const uint32_t> victims, std::vector<uint32_t>& forgotten) override;
  void Clear() override { idle_.Clear(); }
  void Inspect(const Describe& describe, OffloadManager::State& state) const override;

 private:
  ChunkTable& table_;
  ChunkList idle_;
};

}  // namespace kvcast::offload
