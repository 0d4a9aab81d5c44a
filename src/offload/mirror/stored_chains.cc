// SPDX-License-Identifier: Apache-2.0
#include "src/offload/mirror/stored_chains.h"

#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <utility>

namespace kvcast::offload {
namespace {

constexpr size_t kNone = SIZE_MAX;

// A block's group, and a part of the block's hash. Different blocks rarely have the same place.
using Place = std::pair<int64_t, uint64_t>;
Place PlaceOf(const BlockStored& event, const BlockHash& hash) {
  uint64_t word = 0;
  if (hash.is_bytes()) {
    std::memcpy(&word, hash.bytes().data(), std::min(sizeof(word), hash.bytes().size()));
  } else {
    word = hash.integer();
  }
  return {event.group_idx.value_or(-1), word};
}

bool IsContinuedBy(const BlockStored& event, const BlockStored& next) {
  return event.block_hashes.back() == next.parent_block_hash && event.block_size > 0 &&
         event.block_size == next.block_size && event.token_offset &&
         next.token_offset == *event.token_offset + std::ssize(*event.token_ids) &&
         event.lora_id == next.lora_id && event.lora_name == next.lora_name &&
         event.session_id == next.session_id &&
         event.extra_keys.has_value() == next.extra_keys.has_value();
}

template <typename T>
void Append(std::vector<T>& list, std::vector<T>&& more) {
  std::move(more.begin(), more.end(), std::back_inserter(list));
}

void Join(BlockStored& event, BlockStored&& next) {
  Append(event.block_hashes, std::move(next.block_hashes));
  Append(*event.token_ids, std::move(*next.token_ids));
  if (event.extra_keys) Append(*event.extra_keys, std::move(*next.extra_keys));
}

}  // namespace

std::vector<BlockStored> JoinChains(std::vector<BlockStored> events) {
  absl::flat_hash_map<Place, size_t> ends;
  for (size_t i = 0; i < events.size(); ++i) {
    ends.emplace(PlaceOf(events[i], events[i].block_hashes.back()), i);
  }
  std::vector<size_t> before(events.size(), kNone);
  std::vector<size_t> after(events.size(), kNone);
  for (size_t i = 0; i < events.size(); ++i) {
    if (!events[i].parent_block_hash) continue;
    const auto found = ends.find(PlaceOf(events[i], *events[i].parent_block_hash));
    if (found == ends.end() || after[found->second] != kNone) continue;
    if (!IsContinuedBy(events[found->second], events[i])) continue;
    before[i] = found->second;
    after[found->second] = i;
  }
  std::vector<BlockStored> joined;
  for (size_t i = 0; i < events.size(); ++i) {
    if (after[i] != kNone) continue;
    size_t first = i;
    while (before[first] != kNone) first = before[first];
    BlockStored& event = joined.emplace_back(std::move(events[first]));
    for (size_t at = after[first]; at != kNone; at = after[at]) Join(event, std::move(events[at]));
  }
  return joined;
}

}  // namespace kvcast::offload
