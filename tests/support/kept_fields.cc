// SPDX-License-Identifier: Apache-2.0
#include "tests/support/kept_fields.h"

#include <bit>
#include <cmath>
#include <span>
#include <variant>

#include "src/wire/layout.h"

namespace kvcast::wire {
namespace {

BlockStored Kept(const BlockStored& event, std::span<const Field> fields) {
  const FieldSet in(fields);
  BlockStored kept = event;
  if (!in.Contains(Field::kLoraId)) kept.lora_id.reset();
  if (!in.Contains(Field::kMedium)) kept.medium.reset();
  if (!in.Contains(Field::kLoraName)) kept.lora_name.reset();
  if (!in.Contains(Field::kExtraKeys)) kept.extra_keys.reset();
  if (!in.Contains(Field::kGroupIdx)) kept.group_idx.reset();
  if (!in.Contains(Field::kSpecKind)) kept.kv_cache_spec_kind.reset();
  if (!in.Contains(Field::kSlidingWindow)) kept.kv_cache_spec_sliding_window.reset();
  if (!in.Contains(Field::kLocality)) kept.locality.reset();
  if (!in.Contains(Field::kOwnership)) kept.ownership.reset();
  if (!in.Contains(Field::kSessionId)) kept.session_id.reset();
  if (!in.Contains(Field::kLookaheadTokenIds)) kept.lookahead.reset();
  if (!in.Contains(Field::kCacheSalt)) kept.cache_salt.reset();
  if (!in.Contains(Field::kMetadata)) kept.metadata.reset();
  if (!in.Contains(Field::kTokenOffset)) kept.token_offset.reset();
  return kept;
}

BlockRemoved Kept(const BlockRemoved& event, std::span<const Field> fields) {
  const FieldSet in(fields);
  BlockRemoved kept = event;
  if (!in.Contains(Field::kMedium)) kept.medium.reset();
  if (!in.Contains(Field::kGroupIdx)) kept.group_idx.reset();
  if (!in.Contains(Field::kLocality)) kept.locality.reset();
  if (!in.Contains(Field::kOwnership)) kept.ownership.reset();
  return kept;
}

AllBlocksCleared Kept(const AllBlocksCleared& event, std::span<const Field> fields) {
  const FieldSet in(fields);
  AllBlocksCleared kept = event;
  if (!in.Contains(Field::kMedium)) kept.medium.reset();
  return kept;
}

// Replaces each NaN by its bits, because NaN does not equal itself.
void ReplaceNan(ExtraKey& key) {
  if (auto* list = std::get_if<ExtraKeyList>(&key.value)) {
    for (ExtraKey& item : list->items) ReplaceNan(item);
  } else if (const auto* number = std::get_if<double>(&key.value)) {
    if (std::isnan(*number)) key.value = std::bit_cast<uint64_t>(*number);
  }
}

void ReplaceNan(BlockStored& event) {
  if (event.metadata) {
    for (auto& [key, value] : *event.metadata) ReplaceNan(value);
  }
  if (!event.extra_keys) return;
  for (std::optional<ExtraKeys>& entry : *event.extra_keys) {
    if (!entry) continue;
    for (ExtraKey& key : *entry) ReplaceNan(key);
  }
}

std::vector<Event> WithoutNan(std::vector<Event> events) {
  for (Event& event : events) {
    if (auto* stored = std::get_if<BlockStored>(&event)) ReplaceNan(*stored);
  }
  return events;
}

}  // namespace

EventBatch KeptFields(const EventBatch& batch, Dialect dialect) {
  const Layout& layout = LayoutOf(dialect);
  EventBatch kept = batch;
  if (!layout.rank) kept.data_parallel_rank.reset();
  for (Event& event : kept.events) {
    if (const auto* stored = std::get_if<BlockStored>(&event)) {
      event = Kept(*stored, layout.stored.fields);
    } else if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
      event = Kept(*removed, layout.removed.fields);
    } else if (const auto* cleared = std::get_if<AllBlocksCleared>(&event)) {
      event = Kept(*cleared, layout.cleared.fields);
    }
  }
  return kept;
}

bool SameBatch(const EventBatch& a, const EventBatch& b) {
  return std::bit_cast<uint64_t>(a.ts) == std::bit_cast<uint64_t>(b.ts) &&
         a.data_parallel_rank == b.data_parallel_rank &&
         (a.events == b.events || WithoutNan(a.events) == WithoutNan(b.events));
}

}  // namespace kvcast::wire
