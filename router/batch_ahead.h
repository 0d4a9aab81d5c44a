// BatchAhead: loads the table lines of a batch's hashes ahead of their use, and what leads to them
// ahead of that.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <variant>

#include "kvcast/event.h"
#include "router/residency_map.h"

namespace kvcast::router {

// The hashes of a batch, one after the other.
class HashesOfBatch {
 public:
  explicit HashesOfBatch(std::span<const Event> events) : events_(events) {}

  // nullptr: that was all.
  const BlockHash* Next() {
    while (at_ == hashes_.size()) {
      if (event_ == events_.size()) return nullptr;
      hashes_ = HashesOf(events_[event_++]);
      at_ = 0;
    }
    return &hashes_[at_++];
  }

 private:
  static std::span<const BlockHash> HashesOf(const Event& event) {
    if (const auto* stored = std::get_if<BlockStored>(&event)) return stored->block_hashes;
    if (const auto* removed = std::get_if<BlockRemoved>(&event)) return removed->block_hashes;
    return {};
  }

  std::span<const Event> events_;
  size_t event_ = 0;
  std::span<const BlockHash> hashes_;
  size_t at_ = 0;
};

// The map and the events outlive it.
class BatchAhead {
 public:
  BatchAhead(const ResidencyMap& map, std::span<const Event> events) : map_(map), hashes_(events) {
    for (int i = 0; i < 3; ++i) Advance();
  }

  // Call it once for each hash, in order.
  void Step() {
    if (++steps_ % kGroup == 0) Advance();
  }

 private:
  // Hashes that are asked for at once, so that their walks of the page table overlap. Each takes
  // two lines, and beyond some 20 under way processors drop prefetches without a word.
  static constexpr size_t kGroup = 8;

  void Advance() {
    for (size_t i = 0; i < size_; ++i) map_.Prefetch(*group_[i]);
    for (size_ = 0; size_ < kGroup; ++size_) {
      const BlockHash* const hash = hashes_.Next();
      if (hash == nullptr) break;
      group_[size_] = hash;
      map_.PrefetchPath(*hash);
    }
  }

  const ResidencyMap& map_;
  HashesOfBatch hashes_;
  std::array<const BlockHash*, kGroup> group_{};
  size_t size_ = 0;
  size_t steps_ = 0;
};

}  // namespace kvcast::router
