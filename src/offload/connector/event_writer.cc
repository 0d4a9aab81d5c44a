// SPDX-License-Identifier: Apache-2.0
#include "src/offload/connector/event_writer.h"

#include <algorithm>
#include <utility>

namespace kvcast::offload {

BlockStored EventWriter::Stored(const OffloadKey& key) const {
  BlockStored event;
  event.group_idx = key.group.value;
  event.token_ids.emplace();
  const auto found = records_.find(key);
  if (found == records_.end()) {
    event.block_hashes.push_back(Hash(key.digest));
    return event;
  }
  const ChunkRecord& record = found->second;
  for (const Digest& digest : record.hashes) event.block_hashes.push_back(Hash(digest));
  if (record.parent) event.parent_block_hash = Hash(*record.parent);
  *event.token_ids = record.tokens;
  event.block_size = record.block_size;
  event.lora_id = record.lora_id;
  if (!record.lora_name.empty()) event.lora_name = record.lora_name;
  event.extra_keys = record.extra_keys;
  if (key.group.value < groups_.size()) {
    const GroupSpec& spec = groups_[key.group.value];
    event.kv_cache_spec_kind = SpecKindName(spec.kind);
    if (IsWindowKind(spec.kind)) event.kv_cache_spec_sliding_window = spec.sliding_window;
  }
  return event;
}

void EventWriter::AddRemoved(const OffloadKey& key, BlockRemoved& event) const {
  const auto found = records_.find(key);
  if (found == records_.end()) {
    event.block_hashes.push_back(Hash(key.digest));
    return;
  }
  for (const Digest& digest : found->second.hashes) event.block_hashes.push_back(Hash(digest));
}

void EventWriter::TranslateUngrouped(const OffloadEvent& event, std::vector<Event>& out) const {
  std::vector<BlockHash> hashes;
  for (const OffloadKey& key : event.keys) {
    hashes.push_back(ToEventHash(key.digest, EventHashForm::kBytes));
  }
  if (event.kind == OffloadEvent::Kind::kStored) {
    BlockStored stored;
    stored.block_hashes = std::move(hashes);
    stored.token_ids.emplace();
    stored.medium = medium_;
    out.emplace_back(std::move(stored));
  } else {
    BlockRemoved removed;
    removed.block_hashes = std::move(hashes);
    removed.medium = medium_;
    out.emplace_back(std::move(removed));
  }
}

void EventWriter::Clear() {
  records_.clear();
  residencies_.clear();
  removed_.clear();
}

void EventWriter::EndBatch() {
  for (const OffloadKey& key : std::exchange(removed_, {})) {
    if (!residencies_.contains(key)) records_.erase(key);
  }
}

void EventWriter::NoteStored(const OffloadKey& key, const EventTier& tier) {
  if (!keep_until_last_) return;
  std::vector<Residency>& residencies = residencies_[key];
  const Residency residency{tier.medium, tier.ownership};
  if (std::find(residencies.begin(), residencies.end(), residency) == residencies.end())
    residencies.push_back(residency);
}

void EventWriter::NoteRemoved(const OffloadKey& key, const EventTier& tier) {
  if (!keep_until_last_) {
    if (tier.medium == medium_) records_.erase(key);
    return;
  }
  if (const auto found = residencies_.find(key); found != residencies_.end()) {
    std::erase(found->second, Residency{tier.medium, tier.ownership});
    if (!found->second.empty()) return;
    residencies_.erase(found);
  }
  removed_.insert(key);
}

void EventWriter::NoteCleared(const EventTier& tier) {
  if (!keep_until_last_) {
    if (tier.medium == medium_) records_.clear();
    return;
  }
  std::vector<OffloadKey> keys;
  for (const auto& [key, residencies] : residencies_) keys.push_back(key);
  for (const OffloadKey& key : keys) NoteRemoved(key, tier);
}

void EventWriter::Translate(const OffloadEvent& event, const EventTier& tier,
                            std::vector<Event>& out) {
  if (event.kind == OffloadEvent::Kind::kCleared) {
    AllBlocksCleared cleared;
    cleared.medium = tier.medium;
    out.emplace_back(std::move(cleared));
    NoteCleared(tier);
    return;
  }
  if (form_ == OffloadEventForm::k2026May) return TranslateUngrouped(event, out);
  if (event.kind == OffloadEvent::Kind::kStored) {
    for (const OffloadKey& key : event.keys) {
      BlockStored stored = Stored(key);
      stored.medium = tier.medium;
      stored.locality = tier.locality;
      stored.ownership = tier.ownership;
      NoteStored(key, tier);
      out.emplace_back(std::move(stored));
    }
    return;
  }
  std::vector<BlockRemoved> by_group;  // in order of first appearance
  for (const OffloadKey& key : event.keys) {
    const int64_t group = key.group.value;
    auto removed = std::find_if(by_group.begin(), by_group.end(),
                                [&](const BlockRemoved& r) { return r.group_idx == group; });
    if (removed == by_group.end()) {
      removed = by_group.insert(by_group.end(), BlockRemoved());
      removed->group_idx = group;
      removed->medium = tier.medium;
      removed->locality = tier.locality;
      removed->ownership = tier.ownership;
    }
    AddRemoved(key, *removed);
    NoteRemoved(key, tier);
  }
  for (BlockRemoved& removed : by_group) out.emplace_back(std::move(removed));
}

}  // namespace kvcast::offload
