// BatchAhead: prefetches, for the hashes of a batch, the cache lines of the tables before the
// writer uses these lines. Before each line, BatchAhead prefetches the pointer to this line.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <variant>

#include "kvcast/core/event.h"
#include "router/index/residency_map.h"
#include "router/names/idle_names.h"
#include "src/hash/seeded_hash.h"

namespace kvcast::router {

// The hashes of a batch, one after the other.
class HashesOfBatch {
 public:
  explicit HashesOfBatch(std::span<const Event> events) : events_(events) {}

  // Returns the next hash; nullptr: there is none.
  const BlockHash* Next() {
    while (next_hash_ == hashes_.size()) {
      if (next_event_ == events_.size()) return nullptr;
      Open(events_[next_event_++]);
    }
    return &hashes_[next_hash_++];
  }
  // True if the last returned hash is the hash of a removed block.
  bool is_removed() const { return is_removed_; }

 private:
  void Open(const Event& event) {
    next_hash_ = 0;
    hashes_ = {};
    is_removed_ = false;
    if (const auto* stored = std::get_if<BlockStored>(&event)) {
      hashes_ = stored->block_hashes;
    } else if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
      hashes_ = removed->block_hashes;
      is_removed_ = true;
    }
  }

  std::span<const Event> events_;
  size_t next_event_ = 0;
  std::span<const BlockHash> hashes_;
  size_t next_hash_ = 0;
  bool is_removed_ = false;
};

// The map, the batch, the idle names and their fingerprint must outlive the object.
class BatchAhead {
 public:
  // The table that keeps the names of removed blocks.
  struct Idle {
    const IdleNames& names;
    const SeededHash& fingerprint;
  };
  BatchAhead(const ResidencyMap& map, HashesOfBatch hashes, const Idle& idle)
      : map_(map), hashes_(hashes), idle_(idle) {
    for (int i = 0; i < 3; ++i) Advance();
  }

  // Must be called once for each hash, in order.
  void Step() {
    if (++steps_ % kGroup == 0) Advance();
  }

 private:
  // Number of hashes that are prefetched together, so that the page-table walks of these prefetches
  // overlap. Each hash takes two lines of the table, which are usually not in a cache. With more
  // than about 20 prefetches from memory in flight, processors silently drop some of these
  // prefetches. Groups of 16 hashes are slower. The pointers to these lines are also prefetched,
  // but the pointers are mostly in a cache.
  static constexpr size_t kGroup = 8;

  void Advance() {
    for (size_t i = 0; i < size_; ++i) map_.Prefetch(*group_[i]);
    for (size_ = 0; size_ < kGroup; ++size_) {
      const BlockHash* const hash = hashes_.Next();
      if (hash == nullptr) break;
      group_[size_] = hash;
      map_.PrefetchPath(*hash);
      if (hashes_.is_removed()) idle_.names.Prefetch(idle_.fingerprint(*hash));
    }
  }

  const ResidencyMap& map_;
  HashesOfBatch hashes_;
  const Idle idle_;
  std::array<const BlockHash*, kGroup> group_{};
  size_t size_ = 0;
  size_t steps_ = 0;
};

}  // namespace kvcast::router
