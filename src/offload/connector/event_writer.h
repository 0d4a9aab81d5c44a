// EventWriter: translates the events of an OffloadManager into the events that routers read. The
// manager's events contain keys.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/hash/block_hash.h"
#include "kvcast/offload/offload_manager.h"
#include "kvcast/spec/cache_spec.h"

namespace kvcast::offload {

// The description of a key: the blocks of a chunk.
struct ChunkRecord {
  std::vector<Digest> hashes;
  std::optional<Digest> parent;
  std::vector<TokenId> tokens;
  int64_t block_size = 0;
  std::optional<int64_t> lora_id;
  std::string lora_name;
  std::optional<std::vector<std::optional<ExtraKeys>>> extra_keys;
};

enum class OffloadEventForm : uint8_t {
  kByGroup,  // one stored event per key, one removal per group, with group_idx
  k2026May,  // older form: one event per call, raw hashes, no group, no description
};

// The tier whose events are written. A residency of a key is the pair (medium, ownership) of a tier
// that holds the key.
struct EventTier {
  std::string medium;
  std::optional<std::string> locality;
  std::optional<std::string> ownership;
};

class EventWriter {
 public:
  // keep_until_last (v0.32): a description is kept until the EndBatch after the last tier has
  // removed the key. Otherwise a description is kept until the tier of `medium` has removed the
  // key.
  EventWriter(std::vector<GroupSpec> groups, EventHashForm hash_form, std::string medium,
              OffloadEventForm form = OffloadEventForm::kByGroup, bool keep_until_last = false)
      : groups_(std::move(groups)),
        hash_form_(hash_form),
        medium_(std::move(medium)),
        form_(form),
        keep_until_last_(keep_until_last) {}

  bool Knows(const OffloadKey& key) const { return records_.contains(key); }
  // The description also serves a later store of a key that was removed in this batch.
  void Describe(const OffloadKey& key, ChunkRecord record) {
    records_.insert_or_assign(key, std::move(record));
    removed_.erase(key);
  }
  // Drops the description of a key whose store failed. With keep_until_last, does nothing if a tier
  // holds the key.
  void Forget(const OffloadKey& key) {
    if (!residencies_.contains(key)) records_.erase(key);
  }
  void Clear();
  // Drops the descriptions that no tier needs. The caller must call EndBatch after the events of
  // each batch.
  void EndBatch();

  // Appends the events. A key without a description is announced only by its hash, with block size
  // 0. `tier`: the tier of the event. Without keep_until_last, only events of the tier `medium`
  // change the descriptions.
  void Translate(const OffloadEvent& event, std::vector<Event>& out) {
    Translate(event, {.medium = medium_}, out);
  }
  void Translate(const OffloadEvent& event, const EventTier& tier, std::vector<Event>& out);

 private:
  BlockHash Hash(const Digest& digest) const { return ToEventHash(digest, hash_form_); }
  BlockStored Stored(const OffloadKey& key) const;
  void AddRemoved(const OffloadKey& key, BlockRemoved& event) const;
  void NoteStored(const OffloadKey& key, const EventTier& tier);
  void NoteRemoved(const OffloadKey& key, const EventTier& tier);
  void NoteCleared(const EventTier& tier);
  void TranslateUngrouped(const OffloadEvent& event, std::vector<Event>& out) const;

  const std::vector<GroupSpec> groups_;
  const EventHashForm hash_form_;
  const std::string medium_;
  const OffloadEventForm form_;
  const bool keep_until_last_;
  absl::flat_hash_map<OffloadKey, ChunkRecord> records_;
  // The following members are used only with keep_until_last.
  using Residency = std::pair<std::string, std::optional<std::string>>;
  absl::flat_hash_map<OffloadKey, std::vector<Residency>> residencies_;
  // Keys that the last tier removed in this batch, and that Describe did not get after the removal.
  absl::flat_hash_set<OffloadKey> removed_;
};

}  // namespace kvcast::offload
