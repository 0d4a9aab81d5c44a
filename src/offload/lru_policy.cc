// SPDX-License-Identifier: Apache-2.0
#include "src/offload/lru_policy.h"

namespace kvcast::offload {

bool LruPolicy::ChooseVictims(int64_t slots, uint64_t mark, std::vector<uint32_t>& victims) const {
  for (uint32_t chunk = idle_.oldest(); slots > 0; chunk = table_[chunk].next) {
    if (chunk == kNoChunk) return false;
    if (table_[chunk].mark == mark) continue;
    victims.push_back(chunk);
    slots -= table_[chunk].num_slots;
  }
  return true;
}

void LruPolicy::OnEvicted(std::span<const uint32_t> victims, std::vector<uint32_t>& forgotten) {
  for (const uint32_t chunk : victims) {
    ChunkList::Remove(table_, chunk);
    forgotten.push_back(chunk);
  }
}

void LruPolicy::Inspect(const Describe& describe, OffloadManager::State& state) const {
  idle_.ForEach([&](const ChunkEntry& entry) { state.chunks.push_back(describe(entry)); });
}

}  // namespace kvcast::offload
