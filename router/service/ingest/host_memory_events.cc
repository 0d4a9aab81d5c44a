// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/host_memory_events.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "kvcast/core/tier.h"

namespace kvcast::router {
namespace {

bool HasKeys(const BlockStored& stored) {
  return stored.extra_keys && std::ranges::any_of(*stored.extra_keys, [](const auto& keys) {
           return keys && !keys->empty();
         });
}

}  // namespace

// SGLang's clear event names no tier, and SGLang's host memory (HiCache) is cleared with the GPU.
void HostMemoryEvents::ClearHostMemoryToo(EventBatch& batch) {
  constexpr std::string_view kHostMedium = "CPU_PINNED";
  bool cleared = false;
  for (const Event& event : batch.events) {
    const auto* stored = std::get_if<BlockStored>(&event);
    is_hicache_ = is_hicache_ || (stored != nullptr && stored->medium == kHostMedium);
    const auto* clear = std::get_if<AllBlocksCleared>(&event);
    cleared = cleared || (clear != nullptr && !clear->medium);
  }
  if (!cleared || !is_hicache_) return;
  std::vector<Event> events;
  for (Event& event : batch.events) {
    const auto* clear = std::get_if<AllBlocksCleared>(&event);
    const bool names_no_tier = clear != nullptr && !clear->medium;
    events.push_back(std::move(event));
    if (names_no_tier) events.push_back(AllBlocksCleared{.medium = std::string(kHostMedium)});
  }
  batch.events = std::move(events);
}

// vLLM's connector sends the content of blocks in host memory and storage without salts and images.
// From this content the index would name a block as if the block had no salt and no image. Before
// the first store with extra keys, the content is correct and is kept.
void HostMemoryEvents::DropContentOfConnector(EventBatch& batch) {
  if (!may_be_connector_) return;
  for (Event& event : batch.events) {
    auto* stored = std::get_if<BlockStored>(&event);
    if (stored == nullptr) continue;
    has_keys_ = has_keys_ || HasKeys(*stored);
    if (!has_keys_ || stored->extra_keys || !stored->group_idx) continue;
    if (TierOf(stored->medium) == Tier::kGpu) continue;
    if (!stored->token_ids || stored->token_ids->empty()) continue;
    stored->token_ids->clear();
    stored->parent_block_hash.reset();
    stored->block_size = 0;
  }
}

}  // namespace kvcast::router
