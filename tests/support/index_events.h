// Short builders of events and chains for the tests of the index.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/router/prefix_index.h"

namespace kvcast::testing {

inline constexpr WorkerId kWorker{7};

// Hashes first, first + 1, ...
inline std::vector<BlockHash> Hashes(uint64_t first, int64_t count) {
  std::vector<BlockHash> hashes;
  for (int64_t i = 0; i < count; ++i) {
    hashes.push_back(BlockHash::FromUnsigned(first + static_cast<uint64_t>(i)));
  }
  return hashes;
}

inline BlockStored Store(std::vector<BlockHash> hashes, std::optional<int64_t> group = 0) {
  BlockStored event;
  event.block_hashes = std::move(hashes);
  event.block_size = 16;
  event.medium = kMediumGpu;
  event.group_idx = group;
  return event;
}

// [0.0, [["Event", ...]], nil], written by hand, because no encoder of this project writes this
// form.
inline std::vector<uint8_t> BatchOfOneArray(const std::string& tag, uint8_t argument) {
  std::vector<uint8_t> payload = {0x93, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0x91, 0x92};
  payload.push_back(static_cast<uint8_t>(0xa0 + tag.size()));
  payload.insert(payload.end(), tag.begin(), tag.end());
  payload.insert(payload.end(), {argument, 0xc0});
  return payload;
}

inline BlockStored StoreIn(std::string medium, std::vector<BlockHash> hashes) {
  BlockStored event = Store(std::move(hashes));
  event.medium = std::move(medium);
  return event;
}

inline BlockStored StoreFull(std::vector<BlockHash> hashes, int64_t group,
                             int64_t block_size = 16) {
  BlockStored event = Store(std::move(hashes), group);
  event.kv_cache_spec_kind = "full_attention";
  event.block_size = block_size;
  return event;
}

inline BlockStored StoreWindow(std::vector<BlockHash> hashes, int64_t group, int64_t window,
                               int64_t block_size = 16) {
  BlockStored event = Store(std::move(hashes), group);
  event.kv_cache_spec_kind = "sliding_window";
  event.kv_cache_spec_sliding_window = window;
  event.block_size = block_size;
  return event;
}

inline BlockRemoved Remove(std::vector<BlockHash> hashes, std::optional<int64_t> group = 0) {
  BlockRemoved event;
  event.block_hashes = std::move(hashes);
  event.medium = kMediumGpu;
  event.group_idx = group;
  return event;
}

inline BlockRemoved RemoveFrom(std::string medium, std::vector<BlockHash> hashes) {
  BlockRemoved event = Remove(std::move(hashes));
  event.medium = std::move(medium);
  return event;
}

template <typename... Events>
EventBatch Batch(Events... events) {
  EventBatch batch;
  (batch.events.emplace_back(std::move(events)), ...);
  return batch;
}

inline GroupSpec Full(int64_t block_size = 16) { return {.block_size = block_size}; }
inline GroupSpec Window(int64_t window, int64_t block_size = 16) {
  return {.kind = SpecKind::kSlidingWindow, .block_size = block_size, .sliding_window = window};
}
inline GroupSpec Chunked(int64_t chunk, int64_t block_size = 16) {
  return {.kind = SpecKind::kChunkedLocalAttention, .block_size = block_size, .chunk_size = chunk};
}
inline GroupSpec Mamba(int64_t block_size) {
  return {.kind = SpecKind::kMamba, .block_size = block_size, .mamba_mode = MambaMode::kAlign};
}

inline WorkerConfig Registered(std::vector<GroupSpec> groups, int64_t hash_block_size = 0) {
  WorkerConfig config;
  config.name = "worker";
  config.groups = std::move(groups);
  config.hash_block_size = hash_block_size;
  return config;
}

// An index with one worker.
struct OneWorker {
  explicit OneWorker(const WorkerConfig& config = Registered({})) {
    added = index.AddWorker(kWorker, config);
  }
  void Apply(const EventBatch& batch) { index.Apply(kWorker, batch); }
  // Returns the reusable tokens of a prompt of `tokens` tokens; -1: the answer does not contain the
  // worker.
  int64_t Match(const std::vector<BlockHash>& chain, int64_t tokens, int64_t hash_block_size = 16,
                MatchPolicy policy = MatchPolicy::kExact) const {
    const auto matches = index.Match(chain, hash_block_size, tokens, {}, policy);
    return matches.empty() ? -1 : matches[0].gpu_tokens;
  }
  IndexCounters counters() const { return index.counters(kWorker); }

  PrefixIndex index;
  Status added;
};

}  // namespace kvcast::testing
