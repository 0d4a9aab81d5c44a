// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/service/hostile_batches.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

namespace kvcast::tools {
namespace {

constexpr int64_t kBlock = 16;  // tokens

std::vector<TokenId> TokensOf(uint64_t seed, int64_t count) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  for (TokenId& token : tokens) {
    seed = seed * 6364136223846793005 + 1442695040888963407;
    token = static_cast<TokenId>(seed >> 40);
  }
  return tokens;
}

// A store of `count` blocks with the hashes first, first + 1, ...
BlockStored Store(uint64_t first, uint64_t count, int64_t block_size = kBlock) {
  BlockStored stored;
  stored.block_size = block_size;
  stored.group_idx = 0;
  stored.kv_cache_spec_kind = "full_attention";
  stored.medium = kMediumGpu;
  for (uint64_t i = 0; i < count; ++i) {
    stored.block_hashes.push_back(BlockHash::FromUnsigned(first + i));
  }
  stored.token_ids = TokensOf(first, static_cast<int64_t>(count) * block_size);
  return stored;
}

// extra-keys: one block has very many extra keys.
EventBatch ExtraKeysOfOneBlock(uint64_t) {
  BlockStored stored = Store(1, 1);
  stored.extra_keys.emplace(1, ExtraKeys());
  for (int i = 0; i < 20'000; ++i) {
    stored.extra_keys->front()->push_back(ExtraKey::Item("i" + std::to_string(i), 0));
  }
  return {.events = {AllBlocksCleared{}, std::move(stored)}};
}

// clears-beside-host: a clear follows each store, and host memory holds many blocks without tokens.
constexpr uint64_t kHostBatches = 64;
EventBatch ClearsBesideHostMemory(uint64_t round) {
  EventBatch batch;
  if (round < kHostBatches) {
    BlockStored stored = Store((round << 32) + 1, 16'384);
    stored.token_ids.reset();
    stored.medium = kMediumCpu;
    batch.events.emplace_back(std::move(stored));
    return batch;
  }
  for (uint64_t i = 0; i < 1000; ++i) {
    BlockStored stored = Store((uint64_t{1} << 60) + i, 1);
    stored.medium = kMediumCpu;
    batch.events.emplace_back(std::move(stored));
    batch.events.emplace_back(AllBlocksCleared{.medium = i % 2 == 0 ? kMediumGpu : kMediumStorage});
  }
  return batch;
}

// waiting-stores: many stores have parents that the router does not know, so the router keeps the
// stores in PendingStores. Each further batch stores and removes one of the parents.
constexpr uint64_t kParkedBatches = 16;
EventBatch StoresThatWait(uint64_t round) {
  constexpr uint64_t kAwaited = uint64_t{1} << 61;
  EventBatch batch;
  if (round < kParkedBatches) {
    for (uint64_t i = 0; i < 1000; ++i) {
      BlockStored stored = Store((round << 40) + (i << 20) + 1, 16);
      stored.parent_block_hash = BlockHash::FromUnsigned(kAwaited + i);
      batch.events.emplace_back(std::move(stored));
    }
    return batch;
  }
  batch.events.emplace_back(Store(kAwaited + round % 1000, 1));
  batch.events.emplace_back(
      BlockRemoved{.block_hashes = {BlockHash::FromUnsigned(kAwaited + round % 1000)},
                   .medium = kMediumGpu,
                   .group_idx = 0});
  return batch;
}

// large-block: one block has very many tokens. After each clear, the router tests the hash of the
// block again.
EventBatch TokensOfOneBlock(uint64_t) {
  return {.events = {AllBlocksCleared{}, Store(1, 1, 720'720)}};
}

// store-clear-pairs: a clear follows each store of one block.
EventBatch StoresAndClears(uint64_t) {
  EventBatch batch;
  for (uint64_t i = 0; i < 30'000; ++i) {
    batch.events.emplace_back(Store(i + 1, 1));
    batch.events.emplace_back(AllBlocksCleared{});
  }
  return batch;
}

// hit-reports: the same complete chain is announced again and again.
EventBatch HitReports(uint64_t round) {
  EventBatch batch;
  const uint64_t copies = round == 0 ? 1 : 64;
  for (uint64_t i = 0; i < copies; ++i) batch.events.emplace_back(Store(1, 256));
  return batch;
}

// many-events: large legal batches with new events.
EventBatch Flood(uint64_t round) {
  EventBatch batch;
  for (uint64_t i = 0; i < 5000; ++i) {
    batch.events.emplace_back(Store((round << 24) + (i << 4) + 1, 4));
    BlockRemoved removed{.medium = kMediumGpu, .group_idx = 0};
    for (uint64_t k = 0; k < 4 && round > 0; ++k) {
      removed.block_hashes.push_back(
          BlockHash::FromUnsigned(((round - 1) << 24) + (i << 4) + 1 + k));
    }
    batch.events.emplace_back(std::move(removed));
  }
  return batch;
}

// never-removed: new blocks, and no block is removed.
EventBatch NeverRemoves(uint64_t round) { return {.events = {Store(round * 16'384 + 1, 16'384)}}; }

// large-batches: the event has more token ids than WireLimits::max_tokens, so the decoder leaves it
// out. The router only receives and skips the bytes of the event.
EventBatch LargeBatches(uint64_t) { return {.events = {Store(1, 1, 4 << 20)}}; }

EventBatch Small(uint64_t round) { return {.events = {Store(round + 1, 1)}}; }

constexpr std::array kAttacks = {
    Attack{.name = "extra-keys",
           .summary = "20,000 extra keys of one block",
           .batch = ExtraKeysOfOneBlock,
           .constant = true},
    Attack{.name = "clears-beside-host",
           .summary = "clears beside a million blocks without tokens in host memory",
           .prepared = kHostBatches,
           .batch = ClearsBesideHostMemory,
           .constant = true},
    Attack{.name = "waiting-stores",
           .summary = "16,000 stores that wait for the names of their parents",
           .prepared = kParkedBatches,
           .batch = StoresThatWait},
    Attack{.name = "large-block",
           .summary = "a block of 720,720 tokens, tested after each clear",
           .batch = TokensOfOneBlock,
           .constant = true},
    Attack{.name = "store-clear-pairs",
           .summary = "30,000 pairs of a store and a clear in a batch",
           .batch = StoresAndClears,
           .constant = true},
    Attack{.name = "hit-reports",
           .summary = "hit reports of one chain",
           .prepared = 1,
           .batch = HitReports,
           .constant = true},
    Attack{.name = "many-events", .summary = "legal batches of 10,000 events", .batch = Flood},
    Attack{.name = "unanswered-names",
           .summary = "32 sources with host names that no name server answers",
           .batch = Small,
           .unanswered_names = true,
           .sources = 32},
    Attack{.name = "slow-replays",
           .summary = "four sources with replays that do not end",
           .batch = Small,
           .slow_replay = true,
           .sources = 4},
    Attack{
        .name = "never-removed", .summary = "blocks that are never removed", .batch = NeverRemoves},
    Attack{.name = "large-batches",
           .summary = "batches of 20 MiB",
           .batch = LargeBatches,
           .constant = true},
};

}  // namespace

std::span<const Attack> Attacks() { return kAttacks; }

const Attack* FindAttack(std::string_view name) {
  const auto* const found = std::ranges::find(kAttacks, name, &Attack::name);
  return found == kAttacks.end() ? nullptr : found;
}

}  // namespace kvcast::tools
