// RequestUses: the chunks that each running request has loaded, has found readable, or has offered
// to store. OffloadManager::FinishRequest takes the list of the finished request.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <cstdint>
#include <vector>

#include "kvcast/offload/offload_manager.h"
#include "src/offload/manager/eviction_policy.h"

namespace kvcast::offload {

class RequestUses {
 public:
  struct Use {
    OffloadKey key;
    int64_t end = 0;  // tokens
    ChunkUse use = ChunkUse::kOffered;
  };

  // The rank of the chunks that the request uses: one number, assigned at the first call.
  uint64_t RankOf(OffloadRequestId request) {
    uint64_t& rank = requests_[request].rank;
    if (rank == 0) rank = NewRank();
    return rank;
  }
  // Returns a rank that is greater than all earlier ranks.
  uint64_t NewRank() { return ++last_rank_; }

  // Records a use. A chunk is recorded once: with its first use other than kOffered, or with
  // kOffered if it has no other use. True: the chunk was not recorded before.
  bool Note(OffloadRequestId request, const Use& use) {
    Request& entry = requests_[request];
    const auto [found, added] = entry.places.try_emplace(use.key, entry.uses.size());
    if (added) {
      entry.uses.push_back(use);
    } else if (entry.uses[found->second].use == ChunkUse::kOffered) {
      entry.uses[found->second].use = use.use;
    }
    return added;
  }
  // Records that the request is going to store an absent chunk. True: NoteMiss had not recorded
  // this chunk for the request before.
  bool NoteMiss(OffloadRequestId request, const OffloadKey& key) {
    return requests_[request].missed.insert(key).second;
  }

  // Returns the chunks that the request used, and drops the request. Chunks of longer prefixes come
  // first. Of equal prefixes, the chunk of the last group comes first.
  std::vector<Use> Take(OffloadRequestId request);
  void Clear() { requests_.clear(); }

 private:
  struct Request {
    uint64_t rank = 0;  // 0: not assigned
    std::vector<Use> uses;
    absl::flat_hash_map<OffloadKey, size_t> places;  // index in uses
    absl::flat_hash_set<OffloadKey> missed;
  };

  uint64_t last_rank_ = 0;
  absl::flat_hash_map<OffloadRequestId, Request> requests_;
};

}  // namespace kvcast::offload
