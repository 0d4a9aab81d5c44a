// EventWriter: turns what a manager reports, keys, into the events that routers read.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <absl/container/flat_hash_map.h>

#include <optional>
#include <string>
#include <vector>

#include "kvcast/block_hash.h"
#include "kvcast/cache_spec.h"
#include "kvcast/event.h"
#include "kvcast/offload_manager.h"

namespace kvcast::offload {

// What a key stands for: the blocks of a chunk.
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
  kByGroup,  // one stored event a key, one removal a group, with group_idx
  k2026May,  // before: one event a call, raw hashes, no group, no description
};

class EventWriter {
 public:
  EventWriter(std::vector<GroupSpec> groups, EventHashForm hash_form, std::string medium,
              OffloadEventForm form = OffloadEventForm::kByGroup)
      : groups_(std::move(groups)),
        hash_form_(hash_form),
        medium_(std::move(medium)),
        form_(form) {}

  bool Knows(const OffloadKey& key) const { return records_.contains(key); }
  // Kept until the key is removed from the medium of this writer.
  void Describe(const OffloadKey& key, ChunkRecord record) {
    records_.insert_or_assign(key, std::move(record));
  }
  void Forget(const OffloadKey& key) { records_.erase(key); }
  void Clear() { records_.clear(); }

  // Appends the events. A key that was not described is announced by its hash alone, with block
  // size 0. `medium`: of another tier; its events change nothing here.
  void Translate(const OffloadEvent& event, std::vector<Event>& out) {
    Translate(event, medium_, std::nullopt, out);
  }
  void Translate(const OffloadEvent& event, const std::string& medium,
                 const std::optional<std::string>& locality, std::vector<Event>& out);

 private:
  BlockHash Hash(const Digest& digest) const { return ToEventHash(digest, hash_form_); }
  BlockStored Stored(const OffloadKey& key) const;
  void AddRemoved(const OffloadKey& key, BlockRemoved& event) const;
  void TranslateUngrouped(const OffloadEvent& event, std::vector<Event>& out) const;

  const std::vector<GroupSpec> groups_;
  const EventHashForm hash_form_;
  const std::string medium_;
  const OffloadEventForm form_;
  absl::flat_hash_map<OffloadKey, ChunkRecord> records_;
};

}  // namespace kvcast::offload
