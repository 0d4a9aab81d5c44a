// FoundNames: names of blocks that queries have computed and that the index does not have yet.
//
// A query that computes an engine's hashes has the content that each hash names. The query must not
// wait for the index's writer, so it puts the names into this queue. The thread that applies the
// source's batches gives the names to the index immediately before it applies the next batch. Names
// that do not fit into the queue are dropped, and a later query finds them again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kvcast/core/block_hash_value.h"
#include "kvcast/router/content_key.h"
#include "router/service/ingest/hash_scheme.h"
#include "src/base/mutex.h"

namespace kvcast::router {

// The first `units` hashes of a prompt, and the content that each hash names.
struct FoundNames {
  std::shared_ptr<const std::vector<BlockHash>> hashes;
  std::shared_ptr<const std::vector<ContentKey>> contents;
  size_t units = 0;   // number of hashes
  HashScheme scheme;  // the scheme by which the hashes were computed
};

// The queue of one source. Thread-safe.
class FoundNamesQueue {
 public:
  static constexpr size_t kPrompts = 16;

  void Offer(FoundNames names) {
    MutexLock lock(mutex_);
    if (prompts_.size() == kPrompts) {
      ++dropped_;
    } else {
      prompts_.push_back(std::move(names));
    }
  }
  std::vector<FoundNames> Take() {
    MutexLock lock(mutex_);
    return std::exchange(prompts_, {});
  }
  // Number of prompts that did not fit.
  uint64_t dropped() const {
    MutexLock lock(mutex_);
    return dropped_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<FoundNames> prompts_ KV_GUARDED_BY(mutex_);
  uint64_t dropped_ KV_GUARDED_BY(mutex_) = 0;
};

}  // namespace kvcast::router
