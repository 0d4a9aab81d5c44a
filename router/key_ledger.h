// KeyLedger: which content key each engine hash stands for, where it is held, and what the index
// must be told when either changes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kvcast/event.h"
#include "kvcast/token_keys.h"
#include "router/token_records.h"

namespace kvcast::router {

// What of a store the index reads, without its hashes.
BlockStored PlaceOf(const BlockStored& event);
// nullopt: no group that the index could hold.
std::optional<uint8_t> HoldableGroup(const std::optional<int64_t>& group_idx);

// Hashes and contents are one to one. What breaks that, a hash of two contents or a content of two
// hashes, is given up with all that was learned from it. Thread-compatible.
class KeyLedger {
 public:
  explicit KeyLedger(const TokenKeysConfig& config);

  TokenRecords& records() { return records_; }
  const TokenRecords& records() const { return records_; }

  // The prefix of `position` tokens that the record's hash names. `block_size`: of the store that
  // told it. False: this proves something ambiguous; the record is given up, and maybe others.
  bool Resolve(RecordId id, ContentState key, int64_t position, int64_t block_size);
  // A store of this block size names a resolved record again, with this content. False: as above.
  bool Confirm(RecordId id, ContentState key, int64_t block_size);
  // The record's content cannot be told.
  void Hide(RecordId id, Unresolved reason);
  // Why the record is not resolved yet. REQUIRES: it is not, nor hidden.
  void SetReason(RecordId id, Unresolved reason);
  // The record is not to be believed, nor what was learned from it.
  void Refute(RecordId id);
  // As Refute, for all that was placed by the sparse rule alone.
  void RefuteRule();
  // A record whose state changed; each change is told once.
  std::optional<RecordId> NextChanged();

  // The hashes of a store are held. REQUIRES: its group is holdable.
  void Hold(const BlockStored& event, std::span<const RecordId> hashes);
  // The index left out these events of the last output, by position: no copies came with them.
  void Unhold(std::span<const size_t> positions);
  void Remove(const BlockRemoved& event);
  void Clear(const AllBlocksCleared& event);
  // Passes on a store of which nothing is held.
  void PassEmpty(const BlockStored& event) { out_.emplace_back(PlaceOf(event)); }

  // What the index is to apply, in order.
  std::vector<Event> TakeOutput();
  // What brings an empty index to where it would be now. REQUIRES: the output is taken.
  std::vector<Event> AnnounceAll();
  void AddTo(TokenKeysCounters& counters) const;

 private:
  struct RootStore {
    uint8_t group = 0;
    std::vector<RecordRef> hashes;
  };

  bool Name(RecordId id, int64_t block_size);
  void GiveUp(RecordId id);
  void GiveUpOne(RecordId id);
  void NoteRootStore(const BlockStored& event, std::span<const RecordId> hashes,
                     BlockStored& stored);
  void LetGo(RecordId id, HeldCopies* held);
  void SetState(RecordId id, TokenRecord::State state, Unresolved reason);
  void CountHeld(const TokenRecord& record, const HeldCopies& held, bool more);
  void Announce(const TokenRecord& record);
  void Withdraw(const TokenRecord& record);
  void ForgetNames(const TokenRecord& record);

  const bool repeats_are_refreshes_;
  TokenRecords records_;
  // The one hash of a content, by block size: engines before 2026-06 name a prefix anew for each.
  absl::flat_hash_map<uint64_t, RecordId> names_;
  std::vector<int64_t> block_sizes_;
  std::unordered_set<ContentState> ambiguous_;
  std::map<std::pair<Tier, uint8_t>, BlockStored> places_;  // the latest store's
  std::deque<RecordId> changed_;
  std::vector<Event> out_;
  // Stores of the output that the index might take for reports of hits, by their position in it.
  std::map<size_t, RootStore> root_stores_;
  std::map<size_t, RootStore> sent_root_stores_;
  TokenKeysCounters held_;                  // unresolved_held and unresolved_gpu alone
  std::array<uint64_t, kTiers> held_in_{};  // entries, by tier
  uint64_t resolved_ = 0;
  uint64_t resolved_late_ = 0;
  uint64_t conflicts_ = 0;
  uint64_t unknown_removes_ = 0;
};

}  // namespace kvcast::router
