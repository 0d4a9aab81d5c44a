// SPDX-License-Identifier: Apache-2.0
#include "router/index/holder_table.h"

#include <algorithm>
#include <utility>

#include "src/base/check.h"

namespace kvcast::router {

HolderTable::~HolderTable() {
  reclaim_.Collect();  // returns the retired numbers to free_
  delete[] words_.load(std::memory_order_relaxed);
}

void HolderTable::Grow() {
  Word* const old = words_.load(std::memory_order_relaxed);
  const size_t capacity = std::max<size_t>(8, 2 * capacity_);
  Word* const grown = new Word[capacity];
  for (size_t i = 0; i < capacity; ++i) {
    // No reader sees the new array before the release store below (I8).
    grown[i].store(i < used_ ? old[i].load(std::memory_order_relaxed) : kClosed,
                   std::memory_order_relaxed);
  }
  words_.store(grown, std::memory_order_release);  // I8
  capacity_ = capacity;
  if (old == nullptr) return;
  reclaim_.Retire([](void*, uintptr_t words) { delete[] reinterpret_cast<Word*>(words); }, nullptr,
                  reinterpret_cast<uintptr_t>(old));
}

HolderId HolderTable::Open(const Holder& holder) {
  if (free_.empty()) {
    if (used_ == capacity_) Grow();
    free_.push_back(static_cast<HolderId>(used_++));
    condemned_.push_back(false);
  }
  const HolderId id = free_.back();
  free_.pop_back();
  const uint64_t word = uint64_t{holder.slot} << 16 | uint64_t{holder.group} << 8 |
                        static_cast<uint64_t>(holder.tier);
  // I8: no run has a bit of a holder with this number.
  words_.load(std::memory_order_relaxed)[id].store(word, std::memory_order_release);
  return id;
}

void HolderTable::Condemn(HolderId id) { condemned_[id] = true; }

void HolderTable::Close(HolderId id) {
  condemned_[id] = false;
  // I1, I8: the caller has made the worker's version odd.
  words_.load(std::memory_order_relaxed)[id].store(kClosed, std::memory_order_release);
  closed_.push_back(id);
}

void HolderTable::SetVersion(WorkerSlot slot, std::atomic<uint64_t>* version) {
  if (slot >= versions_.size()) versions_.resize(slot + size_t{1}, nullptr);
  versions_[slot] = version;
}

void HolderTable::BeginMove(HolderId id) {
  const std::optional<Holder> holder = Read(id);
  KV_CHECK(holder && holder->slot < versions_.size() && versions_[holder->slot] != nullptr);
  std::atomic<uint64_t>& version = *versions_[holder->slot];
  const uint64_t before = version.load(std::memory_order_relaxed);  // I0
  // The version is odd already if the worker has another holder of the blocks.
  if (before % 2 != 0) return;
  changes_.Begin(holder->slot);
  version.store(before + 1, std::memory_order_release);  // I1
  moving_.push_back(&version);
}

void HolderTable::EndMove() {
  for (std::atomic<uint64_t>* const version : moving_) {
    version->store(version->load(std::memory_order_relaxed) + 1, std::memory_order_release);  // I1
  }
  moving_.clear();
  changes_.End();
}

bool HolderTable::BeginSweep() {
  swept_.swap(closed_);
  return !swept_.empty();
}

void HolderTable::EndSweep() {
  // I8: a reader may have loaded bits of the holder before the sweep removed them, and may load the
  // word of the holder only now.
  for (const HolderId id : swept_) {
    reclaim_.Retire(
        [](void* table, uintptr_t number) {
          static_cast<HolderTable*>(table)->free_.push_back(static_cast<HolderId>(number));
        },
        this, id);
  }
  swept_.clear();
}

void OwnHolders::Add(Tier tier, uint8_t group, HolderId id) {
  std::vector<HolderId>& of_tier = by_tier_[static_cast<size_t>(tier)];
  if (of_tier.size() <= group) of_tier.resize(group + size_t{1}, kNoHolderId);
  of_tier[group] = id;
  all_.push_back(id);
}

void OwnHolders::Clear(Tier tier) {
  by_tier_[static_cast<size_t>(tier)].clear();
  all_.clear();
  for (const std::vector<HolderId>& of_tier : by_tier_) {
    for (const HolderId id : of_tier) {
      if (id != kNoHolderId) all_.push_back(id);
    }
  }
}

}  // namespace kvcast::router
