// LoadingKeys: the keys that running loads copy to the GPU.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <span>

#include "kvcast/offload/offload_manager.h"

namespace kvcast::offload {

// A load is late if its request does not wait for the load any more.
class LoadingKeys {
 public:
  using Keys = std::span<const OffloadKey>;

  void Add(Keys keys) {
    for (const OffloadKey& key : keys) ++in_time_[key];
  }
  // Makes the keys late, including keys that were not added.
  void BecomeLate(Keys keys) {
    for (const OffloadKey& key : keys) {
      CountDown(in_time_, key);
      ++late_[key];
    }
  }
  void Remove(Keys keys, bool late) {
    for (const OffloadKey& key : keys) CountDown(late ? late_ : in_time_, key);
  }
  void Clear() {
    in_time_.clear();
    late_.clear();
  }

  // True if a load that is not late has the key.
  bool IsInTime(const OffloadKey& key) const { return in_time_.contains(key); }
  bool HasInTime() const { return !in_time_.empty(); }
  // True if a late load has the key.
  bool IsLate(const OffloadKey& key) const { return late_.contains(key); }

 private:
  using Counts = absl::flat_hash_map<OffloadKey, int64_t>;  // number of loads

  static void CountDown(Counts& counts, const OffloadKey& key) {
    const auto found = counts.find(key);
    if (found != counts.end() && --found->second == 0) counts.erase(found);
  }

  Counts in_time_;
  Counts late_;
};

}  // namespace kvcast::offload
