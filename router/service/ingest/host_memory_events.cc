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

// The clear event of SGLang names no tier. It empties the host memory of SGLang (HiCache) too.
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

// The content that vLLM's connector sends for host memory does not contain salts and images. With
// it, the index would name the blocks as if they had none. If no block has any, the content is
// correct.
void HostMemoryEvents::LeaveContentOfConnector(EventBatch& batch) {
  if (!may_be_connector_) return;
  for (Event& event : batch.events) {
    auto* stored = std::get_if<BlockStored>(&event);
    if (stored == nullptr) continue;
    has_keys_ = has_keys_ || HasKeys(*stored);
    if (!has_keys_ || stored->extra_keys || !stored->group_idx) continue;
    if (stored->medium != kMediumCpu || !stored->token_ids || stored->token_ids->empty()) continue;
    stored->token_ids->clear();
    stored->parent_block_hash.reset();
    stored->block_size = 0;
  }
}

}  // namespace kvcast::router
