// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/growth/reclaim_pause.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <utility>

#include "apps/bench/growth/conversations.h"
#include "apps/support/samples.h"
#include "kvcast/core/event.h"

namespace kvcast::bench {
namespace {

// Two batches: a store of one block, and its removal.
std::array<EventBatch, 2> StoreAndRemove() {
  const BlockHash hash(Conversations::UnheldHash(0));
  std::array<EventBatch, 2> batches;
  BlockStored stored;
  stored.block_hashes = {hash};
  stored.token_ids.emplace(static_cast<size_t>(kBlockTokens));
  stored.block_size = kBlockTokens;
  stored.medium = kMediumGpu;
  stored.group_idx = 0;
  stored.kv_cache_spec_kind = "full_attention";
  batches[0].events.emplace_back(std::move(stored));
  BlockRemoved removed;
  removed.block_hashes = {hash};
  removed.medium = kMediumGpu;
  removed.group_idx = 0;
  batches[1].events.emplace_back(std::move(removed));
  return batches;
}

}  // namespace

ReclaimPause MeasureReclaim(PrefixIndex& index, WorkerId leaver, WorkerId prober) {
  ReclaimPause pause;
  std::atomic<bool> is_ready = false;
  std::atomic<bool> is_done = false;
  std::thread thread([&] {
    const std::array<EventBatch, 2> batches = StoreAndRemove();
    // The first batches create the tables of the worker.
    for (const EventBatch& batch : batches) index.Apply(prober, batch);
    is_ready = true;
    do {
      for (const EventBatch& batch : batches) {
        const auto start = Clock::now();
        index.Apply(prober, batch);
        pause.longest_batch_ns = std::max(pause.longest_batch_ns, NanosecondsSince(start));
      }
    } while (!is_done);
  });
  while (!is_ready) std::this_thread::yield();
  index.RemoveWorker(leaver);
  const auto start = Clock::now();
  while (index.Reclaim()) {
  }
  pause.total_ns = NanosecondsSince(start);
  is_done = true;
  thread.join();
  return pause;
}

}  // namespace kvcast::bench
