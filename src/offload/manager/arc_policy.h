// ArcPolicy: adaptive replacement (Megiddo and Modha, 2003) as in vLLM's offloading.
//
// T1 holds the chunks that were used once, T2 the chunks that were used again. B1 and B2 hold the
// keys that were evicted from T1 and T2 (ghosts). A use of a key in B1 means that T1 was too small;
// a use of a key in B2 means that T2 was too small. All sizes are in slots, so that a chunk counts
// by its size.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/offload/manager/eviction_policy.h"

namespace kvcast::offload {

class ArcPolicy final : public EvictionPolicy {
 public:
  // fall_back_to_t1: if T2 has no victim left, chunks of T1 are evicted even if T1 is below its
  // target.
  ArcPolicy(ChunkTable& table, int64_t capacity_slots, bool fall_back_to_t1);

  void OnReserved(uint32_t chunk) override { t1_.MoveToNewest(chunk); }
  void OnIdle(uint32_t) override {}
  void OnLoading(uint32_t) override {}
  void OnStoreFailed(uint32_t chunk) override { ChunkList::Remove(table_, chunk); }
  void OnTouch(uint32_t chunk) override;
  void OnAccess(uint32_t, uint64_t, int64_t) override {}
  void OnRequestFinished(uint32_t chunk, ChunkUse use, uint64_t rank) override;
  void OnStoreMiss(uint32_t chunk) override;
  bool ChooseVictims(int64_t slots, uint64_t mark, std::vector<uint32_t>& victims) const override;
  void OnEvicted(std::span<const uint32_t> victims, std::vector<uint32_t>& forgotten) override;
  void Clear() override;
  void Inspect(const Describe& describe, OffloadManager::State& state) const override;

 private:
  void TouchGhost(uint32_t chunk);
  void Trim(ChunkList& ghosts, std::vector<uint32_t>& forgotten);

  ChunkTable& table_;
  const int64_t capacity_;
  const bool fall_back_to_t1_;
  ChunkList t1_;
  ChunkList t2_;
  ChunkList b1_;
  ChunkList b2_;
  double t1_target_ = 0;
};

}  // namespace kvcast::offload
