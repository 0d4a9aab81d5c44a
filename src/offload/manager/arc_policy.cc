// SPDX-License-Identifier: Apache-2.0
#include "src/offload/manager/arc_policy.h"

#include <algorithm>
#include <cmath>

namespace kvcast::offload {
namespace {

// Visits the victims of one list, the oldest first. Visits each chunk at most once.
class VictimScan {
 public:
  VictimScan(const ChunkTable& table, const ChunkList& list, uint64_t mark)
      : table_(table), mark_(mark), next_(list.oldest()) {}

  // kNoChunk: there are no more victims.
  uint32_t Next() {
    while (next_ != kNoChunk && !IsVictim(table_[next_])) next_ = table_[next_].next;
    const uint32_t found = next_;
    if (found != kNoChunk) next_ = table_[found].next;
    return found;
  }

 private:
  bool IsVictim(const ChunkEntry& entry) const { return entry.readers == 0 && entry.mark != mark_; }

  const ChunkTable& table_;
  const uint64_t mark_;
  uint32_t next_;
};

}  // namespace

ArcPolicy::ArcPolicy(ChunkTable& table, int64_t capacity_slots, bool fall_back_to_t1)
    : table_(table),
      capacity_(capacity_slots),
      fall_back_to_t1_(fall_back_to_t1),
      t1_(table),
      t2_(table),
      b1_(table),
      b2_(table) {}

void ArcPolicy::OnTouch(uint32_t chunk) {
  if (t1_.Contains(chunk)) {
    const bool stored = table_[chunk].readers >= 0;
    (stored ? t2_ : t1_).MoveToNewest(chunk);
  } else if (t2_.Contains(chunk)) {
    t2_.MoveToNewest(chunk);
  } else {
    TouchGhost(chunk);
  }
}

void ArcPolicy::OnRequestFinished(uint32_t chunk, ChunkUse use, uint64_t /*rank*/) {
  if (use == ChunkUse::kOffered) return;
  const bool in_t2 = use == ChunkUse::kReused || t2_.Contains(chunk);
  (in_t2 ? t2_ : t1_).MoveToNewest(chunk);
}

void ArcPolicy::OnStoreMiss(uint32_t chunk) {
  if (b1_.Contains(chunk) || b2_.Contains(chunk)) TouchGhost(chunk);
}

void ArcPolicy::TouchGhost(uint32_t chunk) {
  const bool from_t1 = b1_.Contains(chunk);
  ChunkList& own = from_t1 ? b1_ : b2_;
  const ChunkList& other = from_t1 ? b2_ : b1_;
  const double ratio = static_cast<double>(other.slots()) / static_cast<double>(own.slots());
  const double step = std::max(1.0, ratio) * table_[chunk].num_slots;
  t1_target_ =
      std::clamp(t1_target_ + (from_t1 ? step : -step), 0.0, static_cast<double>(capacity_));
  own.MoveToNewest(chunk);
}

bool ArcPolicy::ChooseVictims(int64_t slots, uint64_t mark, std::vector<uint32_t>& victims) const {
  VictimScan t1(table_, t1_, mark);
  VictimScan t2(table_, t2_, mark);
  const auto target = static_cast<int64_t>(std::floor(t1_target_));
  int64_t t1_left = t1_.slots();
  while (slots > 0) {
    bool from_t1 = t1_left >= target;
    uint32_t chunk = from_t1 ? t1.Next() : t2.Next();
    if (chunk == kNoChunk && (from_t1 || fall_back_to_t1_)) {
      from_t1 = !from_t1;
      chunk = from_t1 ? t1.Next() : t2.Next();
    }
    if (chunk == kNoChunk) return false;
    victims.push_back(chunk);
    slots -= table_[chunk].num_slots;
    if (from_t1) t1_left -= table_[chunk].num_slots;
  }
  return true;
}

void ArcPolicy::OnEvicted(std::span<const uint32_t> victims, std::vector<uint32_t>& forgotten) {
  for (const uint32_t chunk : victims) (t1_.Contains(chunk) ? b1_ : b2_).MoveToNewest(chunk);
  Trim(b1_, forgotten);
  Trim(b2_, forgotten);
}

void ArcPolicy::Trim(ChunkList& ghosts, std::vector<uint32_t>& forgotten) {
  while (ghosts.slots() > capacity_) {
    const uint32_t chunk = ghosts.oldest();
    ChunkList::Remove(table_, chunk);
    forgotten.push_back(chunk);
  }
}

void ArcPolicy::Clear() {
  for (ChunkList* list : {&t1_, &t2_, &b1_, &b2_}) list->Clear();
  t1_target_ = 0;
}

void ArcPolicy::Inspect(const Describe& describe, OffloadManager::State& state) const {
  for (const ChunkList* list : {&t1_, &t2_}) {
    list->ForEach([&](const ChunkEntry& entry) { state.chunks.push_back(describe(entry)); });
  }
  b1_.ForEach([&](const ChunkEntry& entry) { state.ghosts_t1.push_back(entry.key); });
  b2_.ForEach([&](const ChunkEntry& entry) { state.ghosts_t2.push_back(entry.key); });
  state.t1_chunks = t1_.size();
  state.t1_target = t1_target_;
}

}  // namespace kvcast::offload
