// SPDX-License-Identifier: Apache-2.0
#include "src/engine/pool_events.h"

#include <utility>

namespace kvcast::engine {
namespace {

std::vector<std::optional<ExtraKeys>> ExtraKeysOfBlocks(const StoredSpan& span) {
  std::vector<std::optional<ExtraKeys>> keys(span.block_begins.size());
  const HashInputs& inputs = span.request.hash_inputs;
  if (inputs.empty()) return keys;
  for (size_t i = 0; i < keys.size(); ++i) {
    const int64_t begin = span.block_begins[i];
    ExtraKeys extra = ExtraKeysFor(inputs, begin, begin + span.block_size);
    if (!extra.empty()) keys[i] = std::move(extra);
  }
  return keys;
}

}  // namespace

void PoolEvents::AddStored(const StoredSpan& span) {
  if (!enabled_) return;
  const CacheRequest& request = span.request;
  BlockStored event;
  event.block_hashes.reserve(span.digests.size());
  for (const Digest* digest : span.digests) {
    event.block_hashes.push_back(ToEventHash(*digest, form_));
  }
  if (span.parent != nullptr) event.parent_block_hash = ToEventHash(*span.parent, form_);
  const auto tokens = request.tokens.begin();
  event.token_ids.emplace(tokens + span.begin_token, tokens + span.end_token);
  event.block_size = span.block_size;
  event.lora_id = request.lora_id;
  event.medium = medium_;
  if (!request.hash_inputs.lora_name.empty()) event.lora_name = request.hash_inputs.lora_name;
  if (!span.digests.empty()) event.extra_keys = ExtraKeysOfBlocks(span);
  event.group_idx = span.group.value;
  event.session_id = request.session_id;
  events_.emplace_back(std::move(event));
}

void PoolEvents::AddRemoved(const BlockKey& key) {
  if (!enabled_) return;
  BlockRemoved event;
  event.block_hashes.push_back(ToEventHash(key.digest, form_));
  event.medium = medium_;
  event.group_idx = key.group.value;
  events_.emplace_back(std::move(event));
}

void PoolEvents::AddCleared() {
  if (enabled_) events_.emplace_back(AllBlocksCleared{});
}

std::vector<Event> PoolEvents::Take() { return std::exchange(events_, {}); }

}  // namespace kvcast::engine
