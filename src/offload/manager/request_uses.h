// RequestUses: the chunks that each running request has stored or loaded, and the present chunks
// that it has offered for a store. OffloadManager::FinishRequest takes the list of the finished
// request.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <cstdint>
#include <vector>

#include "kvcast/offload/offload_manager.h"

namespace kvcast::offload {

class RequestUses {
 public:
  struct Use {
    OffloadKey key;
    int64_t end = 0;      // tokens
    bool stored = false;  // this request stored the chunk
  };

  // The rank of the chunks that the request stores: one number, assigned at the request's first
  // use.
  uint64_t RankOf(OffloadRequestId request) { return Get(request).rank; }
  // Returns a rank that is greater than all earlier ranks.
  uint64_t NewRank() { return ++last_rank_; }

  // A chunk is recorded once. If the request stored it, `stored` stays true for all later uses.
  void Note(OffloadRequestId request, const Use& use) {
    Request& entry = Get(request);
    const auto [found, added] = entry.places.try_emplace(use.key, entry.uses.size());
    if (added) {
      entry.uses.push_back(use);
    } else {
      entry.uses[found->second].stored |= use.stored;
    }
  }
  // Records that the request is going to store an absent chunk. True: it is the first time for this
  // chunk.
  bool NoteMiss(OffloadRequestId request, const OffloadKey& key) {
    return Get(request).missed.insert(key).second;
  }

  // Returns the chunks that the request used, and drops the request. Chunks of longer prefixes come
  // first. Chunks of equal prefixes are ordered by group.
  std::vector<Use> Take(OffloadRequestId request);
  void Clear() { requests_.clear(); }

 private:
  struct Request {
    uint64_t rank = 0;
    std::vector<Use> uses;
    absl::flat_hash_map<OffloadKey, size_t> places;  // index in uses
    absl::flat_hash_set<OffloadKey> missed;
  };

  Request& Get(OffloadRequestId request) {
    const auto [found, added] = requests_.try_emplace(request);
    if (added) found->second.rank = NewRank();
    return found->second;
  }

  uint64_t last_rank_ = 0;
  absl::flat_hash_map<OffloadRequestId, Request> requests_;
};

}  // namespace kvcast::offload
