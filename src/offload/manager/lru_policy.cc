// SPDX-License-Identifier: Apache-2.0
#include "src/offload/manager/lru_policy.h"

#include <utility>

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

RankedLruPolicy::Place RankedLruPolicy::PlaceOf(uint32_t chunk) const {
  const ChunkEntry& entry = table_[chunk];
  return {entry.rank, -entry.end, entry.key.group.value, chunk};
}

void RankedLruPolicy::OnIdle(uint32_t chunk) {
  idle_.MoveToNewest(chunk);
  order_.insert(PlaceOf(chunk));
}

void RankedLruPolicy::OnLoading(uint32_t chunk) {
  order_.erase(PlaceOf(chunk));
  ChunkList::Remove(table_, chunk);
}

void RankedLruPolicy::OnAccess(uint32_t chunk, uint64_t rank, int64_t end) {
  const ChunkEntry& entry = table_[chunk];
  if (!by_access_ || std::pair(entry.rank, -entry.end) >= std::pair(rank, -end)) return;
  SetRank(chunk, rank, end);
}

void RankedLruPolicy::OnRequestFinished(uint32_t chunk, ChunkUse /*use*/, uint64_t rank) {
  SetRank(chunk, rank, 0);
}

void RankedLruPolicy::SetRank(uint32_t chunk, uint64_t rank, int64_t end) {
  const bool idle = idle_.Contains(chunk);
  if (idle) order_.erase(PlaceOf(chunk));
  table_[chunk].rank = rank;
  table_[chunk].end = end;
  if (idle) order_.insert(PlaceOf(chunk));
}

bool RankedLruPolicy::ChooseVictims(int64_t slots, uint64_t mark,
                                    std::vector<uint32_t>& victims) const {
  for (auto place = order_.begin(); slots > 0; ++place) {
    if (place == order_.end()) return false;
    const uint32_t chunk = std::get<3>(*place);
    if (table_[chunk].mark == mark) continue;
    victims.push_back(chunk);
    slots -= table_[chunk].num_slots;
  }
  return true;
}

void RankedLruPolicy::OnEvicted(std::span<const uint32_t> victims,
                                std::vector<uint32_t>& forgotten) {
  for (const uint32_t chunk : victims) {
    OnLoading(chunk);
    forgotten.push_back(chunk);
  }
}

void RankedLruPolicy::Clear() {
  idle_.Clear();
  order_.clear();
}

void RankedLruPolicy::Inspect(const Describe& describe, OffloadManager::State& state) const {
  for (const Place& place : order_) state.chunks.push_back(describe(table_[std::get<3>(place)]));
}

}  // namespace kvcast::offload
