// ReuseFilter: counts the requests for every key, so that only keys with repeated requests are
// stored. It counts either the lookups of a key, or the offers of a key for storing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kvcast/offload/offload_manager.h"

namespace kvcast::offload {

class ReuseFilter {
 public:
  // If the threshold is below 2, every key passes and nothing is counted. once_per_request: a
  // request counts at most once for each key.
  ReuseFilter(int64_t threshold, int64_t max_keys, bool once_per_request);

  bool active() const { return threshold_ >= 2; }
  void Count(const OffloadKey& key, OffloadRequestId request);
  // Counts all keys of an offer: first the keys that have a count, then the new keys. To make room,
  // the call drops the oldest key that the offer does not contain. If there is no such key, the new
  // key is not counted.
  void CountOffer(std::span<const OffloadKey> keys, OffloadRequestId request);
  bool Passes(const OffloadKey& key) const;
  void FinishRequest(OffloadRequestId request) { counted_.erase(request); }

  // The keys and their counts, ordered by the time of the latest count, the oldest first.
  std::vector<std::pair<OffloadKey, int64_t>> List() const;

 private:
  static constexpr uint32_t kEnd = 0;  // begin and end of the ring of nodes_
  struct Node {
    OffloadKey key;
    int64_t count = 0;
    uint32_t prev = kEnd;
    uint32_t next = kEnd;
  };

  using Keys = absl::flat_hash_set<OffloadKey>;
  // True: the key counts for this request.
  bool MayCount(const OffloadKey& key, OffloadRequestId request);
  // False: the key has no count yet.
  bool Raise(const OffloadKey& key);
  void Add(const OffloadKey& key, const Keys& kept);
  // kEnd: only the nodes of `kept` are left.
  uint32_t NewNode(const Keys& kept);
  void Unlink(uint32_t node);
  void LinkNewest(uint32_t node);

  int64_t threshold_;
  size_t max_keys_;
  bool once_per_request_;
  std::vector<Node> nodes_;
  absl::flat_hash_map<OffloadKey, uint32_t> by_key_;
  absl::flat_hash_map<OffloadRequestId, absl::flat_hash_set<OffloadKey>> counted_;
};

}  // namespace kvcast::offload
