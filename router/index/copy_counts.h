// CopyCounts: the copies of blocks beyond the first copy. They are rare, so they are not kept in
// the runs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "router/index/place_table.h"
#include "src/hash/seeded_hash.h"

namespace kvcast::router {

// For the writer only. The caller keeps the first copy of each block.
template <typename Key>
class CopyCounts {
 public:
  explicit CopyCounts(uint64_t seed) : extra_(0, PlaceKeyHash{{seed}}) {}

  void Add(const Key& key, PlaceId place, uint32_t copies) {
    if (of_place_.size() <= place) of_place_.resize(place + size_t{1});
    uint32_t& extra = extra_[{place, key}];
    if (extra == 0) ++of_place_[place];
    // The limit leaves room for the first copy, so the count of all copies fits into 32 bits.
    extra += std::min(copies, ~uint32_t{0} - 1 - extra);
  }
  // Removes one copy. False: the place had no copy beyond the first.
  bool RemoveOne(const Key& key, PlaceId place) {
    if (!HasAny(place)) return false;
    const auto extra = extra_.find({place, key});
    if (extra == extra_.end()) return false;
    if (--extra->second == 0) Erase(extra);
    return true;
  }
  // Removes all copies beyond the first. Returns their number.
  uint32_t Take(const Key& key, PlaceId place) {
    if (!HasAny(place)) return 0;
    const auto extra = extra_.find({place, key});
    if (extra == extra_.end()) return 0;
    const uint32_t copies = extra->second;
    Erase(extra);
    return copies;
  }
  uint32_t Of(const Key& key, PlaceId place) const {
    if (extra_.empty()) return 0;
    const auto extra = extra_.find({place, key});
    return extra == extra_.end() ? 0 : extra->second;
  }
  void DropClosed(const PlaceTable& places) {
    absl::erase_if(extra_, [&](const auto& extra) {
      if (places.Read(extra.first.first)) return false;
      --of_place_[extra.first.first];
      return true;
    });
  }

 private:
  struct PlaceKeyHash {
    SeededHash hash;
    size_t operator()(const std::pair<PlaceId, Key>& place_key) const {
      return hash(place_key.second) ^ hash(uint64_t{place_key.first});
    }
  };
  using Extra = absl::flat_hash_map<std::pair<PlaceId, Key>, uint32_t, PlaceKeyHash>;

  bool HasAny(PlaceId place) const { return place < of_place_.size() && of_place_[place] != 0; }
  void Erase(typename Extra::iterator extra) {
    --of_place_[extra->first.first];
    extra_.erase(extra);
  }

  Extra extra_;
  std::vector<uint32_t> of_place_;  // number of entries in extra_, by place
};

}  // namespace kvcast::router
