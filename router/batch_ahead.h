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
    for (size_t i = 0; i < kPathsAhead + kLinesAhead; ++i) Step();
  }

  // Call it once for each hash, in order.
  void Step() {
    const BlockHash*& slot = under_way_[steps_++ % kPathsAhead];
    if (slot != nullptr) map_.Prefetch(*slot);
    slot = hashes_.Next();
    if (slot != nullptr) map_.PrefetchPath(*slot);
  }

 private:
  // Hashes ahead of the one in work, and how much farther ahead what leads to their lines is.
  static constexpr size_t kLinesAhead = 12;
  static constexpr size_t kPathsAhead = 12;

  const ResidencyMap& map_;
  HashesOfBatch hashes_;
  std::array<const BlockHash*, kPathsAhead> under_way_{};
  size_t steps_ = 0;
};

}  // namespace kvcast::router
