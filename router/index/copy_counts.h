// CopyCounts: counts the copies of a block that one holder has in addition to the first copy. Such
// copies are rare, so the runs do not count them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "router/index/holder_table.h"
#include "src/hash/seeded_hash.h"

namespace kvcast::router {

// Only the writer may call the methods. The caller, not CopyCounts, counts the first copy of each
// block.
template <typename Key>
class CopyCounts {
 public:
  explicit CopyCounts(uint64_t seed) : extra_(0, HolderKeyHash{{seed}}) {}

  void Add(const Key& key, HolderId holder, uint32_t copies) {
    if (of_holder_.size() <= holder) of_holder_.resize(holder + size_t{1});
    uint32_t& extra = extra_[{holder, key}];
    if (extra == 0) ++of_holder_[holder];
    // The limit leaves room for the first copy, so the count of all copies fits into 32 bits.
    extra += std::min(copies, ~uint32_t{0} - 1 - extra);
  }
  // Removes one copy. False: the holder had no copy beyond the first.
  bool RemoveOne(const Key& key, HolderId holder) {
    if (!HasAny(holder)) return false;
    const auto extra = extra_.find({holder, key});
    if (extra == extra_.end()) return false;
    if (--extra->second == 0) Erase(extra);
    return true;
  }
  // Removes all copies beyond the first. Returns their number.
  uint32_t Take(const Key& key, HolderId holder) {
    if (!HasAny(holder)) return 0;
    const auto extra = extra_.find({holder, key});
    if (extra == extra_.end()) return 0;
    const uint32_t copies = extra->second;
    Erase(extra);
    return copies;
  }
  uint32_t Of(const Key& key, HolderId holder) const {
    if (extra_.empty()) return 0;
    const auto extra = extra_.find({holder, key});
    return extra == extra_.end() ? 0 : extra->second;
  }
  // False: the holder has no copy beyond the first of any block.
  bool HasAny(HolderId holder) const {
    return holder < of_holder_.size() && of_holder_[holder] != 0;
  }
  void DropClosed(const HolderTable& holder_table) {
    absl::erase_if(extra_, [&](const auto& extra) {
      if (holder_table.Read(extra.first.first)) return false;
      --of_holder_[extra.first.first];
      return true;
    });
  }

 private:
  struct HolderKeyHash {
    SeededHash hash;
    size_t operator()(const std::pair<HolderId, Key>& holder_key) const {
      return hash(holder_key.second) ^ hash(uint64_t{holder_key.first});
    }
  };
  using Extra = absl::flat_hash_map<std::pair<HolderId, Key>, uint32_t, HolderKeyHash>;

  void Erase(typename Extra::iterator extra) {
    --of_holder_[extra->first.first];
    extra_.erase(extra);
  }

  Extra extra_;
  std::vector<uint32_t> of_holder_;  // number of entries in extra_, by holder
};

}  // namespace kvcast::router
