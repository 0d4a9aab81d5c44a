// SPDX-License-Identifier: Apache-2.0
#include "router/key_ledger.h"

#include <algorithm>
#include <limits>

#include "router/group_catalogue.h"

namespace kvcast::router {
namespace {

using State = TokenRecord::State;

// More ambiguous contents than this, and nothing new of the source is believed.
constexpr size_t kMaxAmbiguousKeys = 65536;
// Block sizes under which contents are checked to have one hash only; engines use a handful.
constexpr size_t kMaxBlockSizes = 64;

uint64_t NameKey(ContentState key, int64_t block_size) {
  return key ^ (static_cast<uint64_t>(block_size) * 0x9E3779B97F4A7C15);
}

BlockHash WireKey(const TokenRecord& record) { return BlockHash::FromUnsigned(record.key); }

}  // namespace

BlockStored PlaceOf(const BlockStored& event) {
  BlockStored place;
  place.block_size = event.block_size;
  place.medium = event.medium;
  place.group_idx = event.group_idx;
  place.kv_cache_spec_kind = event.kv_cache_spec_kind;
  place.kv_cache_spec_sliding_window = event.kv_cache_spec_sliding_window;
  place.locality = event.locality;
  place.ownership = event.ownership;
  place.session_id = event.session_id;
  return place;
}

std::optional<uint8_t> HoldableGroup(const std::optional<int64_t>& group_idx) {
  const int64_t group = group_idx.value_or(0);
  if (group < 0 || group >= kMaxGroups) return std::nullopt;
  return static_cast<uint8_t>(group);
}

KeyLedger::KeyLedger(const TokenKeysConfig& config)
    : repeats_are_refreshes_(config.repeats_are_refreshes),
      records_(std::max<size_t>(config.hashes_max, 1), config.idle_hashes_max,
               [this](const TokenRecord& record) { ForgetNames(record); }) {}

bool KeyLedger::Resolve(RecordId id, ContentState key, int64_t position, int64_t block_size) {
  if (ambiguous_.contains(key) || ambiguous_.size() >= kMaxAmbiguousKeys) {
    Hide(id, Unresolved::kConflict);
    return false;
  }
  SetState(id, State::kResolved, Unresolved::kNoTokens);
  TokenRecord& record = records_.at(id);
  record.key = key;
  record.position = position;
  changed_.push_back(id);
  // First of all, because giving up takes back what was announced.
  Announce(record);
  if (!Name(id, block_size)) return false;
  ++resolved_;
  if (!record.held.empty()) ++resolved_late_;
  return true;
}

bool KeyLedger::Confirm(RecordId id, ContentState key, int64_t block_size) {
  if (records_.at(id).key == key) return Name(id, block_size);
  Refute(id);
  return false;
}

// The record becomes the only hash of its content. False: there is another, and both are given up.
bool KeyLedger::Name(RecordId id, int64_t block_size) {
  if (std::find(block_sizes_.begin(), block_sizes_.end(), block_size) == block_sizes_.end()) {
    if (block_sizes_.size() >= kMaxBlockSizes) return true;
    block_sizes_.push_back(block_size);
  }
  const ContentState key = records_.at(id).key;
  const auto [it, added] = names_.try_emplace(NameKey(key, block_size), id);
  if (added || it->second == id) return true;
  const RecordId other = it->second;
  ambiguous_.insert(key);
  GiveUp(other);
  GiveUp(id);
  return false;
}

void KeyLedger::Hide(RecordId id, Unresolved reason) {
  SetState(id, State::kHidden, reason);
  changed_.push_back(id);
}

void KeyLedger::SetReason(RecordId id, Unresolved reason) {
  SetState(id, State::kUnresolved, reason);
}

void KeyLedger::SetState(RecordId id, State state, Unresolved reason) {
  TokenRecord& record = records_.at(id);
  for (const HeldCopies& held : record.held) CountHeld(record, held, false);
  record.state = state;
  record.reason = reason;
  for (const HeldCopies& held : record.held) CountHeld(record, held, true);
}

// An entry of `held` comes or goes.
void KeyLedger::CountHeld(const TokenRecord& record, const HeldCopies& held, bool more) {
  const uint64_t one = more ? 1 : ~uint64_t{0};
  held_in_[static_cast<size_t>(held.tier)] += one;
  if (record.resolved()) return;
  held_.unresolved_held[static_cast<size_t>(record.reason)] += one;
  if (held.tier == Tier::kGpu) held_.unresolved_gpu += one;
}

void KeyLedger::Refute(RecordId id) { GiveUp(id); }

void KeyLedger::RefuteRule() {
  records_.ForEach([this](RecordId id, const TokenRecord& record) {
    if (record.by_rule && record.resolved()) GiveUp(id);
  });
}

std::optional<RecordId> KeyLedger::NextChanged() {
  if (changed_.empty()) return std::nullopt;
  const RecordId id = changed_.front();
  changed_.pop_front();
  return id;
}

// With all that was learned from it.
void KeyLedger::GiveUp(RecordId id) {
  std::vector<RecordId> left = {id};
  while (!left.empty()) {
    const RecordId next = left.back();
    left.pop_back();
    GiveUpOne(next);
    records_.ForEachChild(next, [&](RecordId child) {
      if (records_.at(child).resolved()) left.push_back(child);
    });
  }
}

void KeyLedger::GiveUpOne(RecordId id) {
  const TokenRecord& record = records_.at(id);
  if (record.resolved()) {
    Withdraw(record);
    ForgetNames(record);
  }
  if (record.state != State::kHidden || record.reason != Unresolved::kConflict) ++conflicts_;
  Hide(id, Unresolved::kConflict);
}

void KeyLedger::Hold(const BlockStored& event, std::span<const RecordId> hashes) {
  const Tier tier = TierOf(event.medium);
  const uint8_t group = *HoldableGroup(event.group_idx);
  BlockStored stored = PlaceOf(event);
  places_[{tier, group}] = stored;
  for (const RecordId id : hashes) {
    TokenRecord& record = records_.at(id);
    HeldCopies* held = record.FindHeld(tier, group);
    if (held == nullptr) {
      held = &record.held.emplace_back(HeldCopies{0, tier, group});
      CountHeld(record, *held, true);
    } else if (repeats_are_refreshes_) {
      continue;
    }
    if (held->copies < std::numeric_limits<uint32_t>::max()) ++held->copies;
    if (record.resolved()) stored.block_hashes.push_back(WireKey(record));
  }
  if (tier == Tier::kGpu && !event.parent_block_hash) NoteRootStore(event, hashes, stored);
  out_.emplace_back(std::move(stored));
}

// The index tells a report of a hit from a store by its tokens. What is not all known is no report.
void KeyLedger::NoteRootStore(const BlockStored& event, std::span<const RecordId> hashes,
                              BlockStored& stored) {
  if (stored.block_hashes.empty() || stored.block_hashes.size() != hashes.size()) return;
  stored.token_ids = event.token_ids;
  stored.tokens_per_position = event.tokens_per_position;
  RootStore& noted = root_stores_[out_.size()];
  noted.group = *HoldableGroup(event.group_idx);
  for (const RecordId id : hashes) noted.hashes.push_back(records_.RefTo(id));
}

void KeyLedger::Unhold(std::span<const size_t> positions) {
  for (const size_t position : positions) {
    const auto sent = sent_root_stores_.find(position);
    if (sent == sent_root_stores_.end()) continue;
    for (const RecordRef& hash : sent->second.hashes) {
      if (records_.Get(hash) == nullptr) continue;
      HeldCopies* held = records_.at(hash.id).FindHeld(Tier::kGpu, sent->second.group);
      if (held != nullptr) LetGo(hash.id, held);
    }
    sent_root_stores_.erase(sent);
  }
}

void KeyLedger::LetGo(RecordId id, HeldCopies* held) {
  if (--held->copies > 0) return;
  CountHeld(records_.at(id), *held, false);
  records_.at(id).held.erase(held);
  records_.Settle(id);
}

std::vector<Event> KeyLedger::TakeOutput() {
  sent_root_stores_ = std::exchange(root_stores_, {});
  return std::exchange(out_, {});
}

void KeyLedger::Remove(const BlockRemoved& event) {
  BlockRemoved removed = event;
  removed.block_hashes.clear();
  const Tier tier = TierOf(event.medium);
  const std::optional<uint8_t> group = HoldableGroup(event.group_idx);
  for (const BlockHash& hash : event.block_hashes) {
    const RecordId id = group ? records_.Find(hash) : kNoRecord;
    HeldCopies* held = id == kNoRecord ? nullptr : records_.at(id).FindHeld(tier, *group);
    if (held == nullptr) {
      ++unknown_removes_;
      continue;
    }
    const TokenRecord& record = records_.at(id);
    if (record.resolved()) removed.block_hashes.push_back(WireKey(record));
    LetGo(id, held);
  }
  // An event of a group out of range is for the index to count.
  if (!group || !removed.block_hashes.empty()) out_.emplace_back(std::move(removed));
}

void KeyLedger::Clear(const AllBlocksCleared& event) {
  const Tier tier = TierOf(event.medium);
  out_.emplace_back(event);
  if (held_in_[static_cast<size_t>(tier)] == 0) return;
  records_.ForEach([&](RecordId id, TokenRecord& record) {
    for (const HeldCopies& held : record.held) {
      if (held.tier == tier) CountHeld(record, held, false);
    }
    const auto cleared = [tier](const HeldCopies& held) { return held.tier == tier; };
    record.held.erase(std::remove_if(record.held.begin(), record.held.end(), cleared),
                      record.held.end());
    records_.Settle(id);
  });
}

void KeyLedger::Announce(const TokenRecord& record) {
  for (const HeldCopies& held : record.held) {
    BlockStored stored = places_[{held.tier, held.group}];
    stored.block_hashes.assign(held.copies, WireKey(record));
    out_.emplace_back(std::move(stored));
  }
}

std::vector<Event> KeyLedger::AnnounceAll() {
  records_.ForEach([this](RecordId, const TokenRecord& record) {
    if (record.resolved()) Announce(record);
  });
  return std::exchange(out_, {});
}

void KeyLedger::Withdraw(const TokenRecord& record) {
  for (const HeldCopies& held : record.held) {
    const BlockStored& place = places_[{held.tier, held.group}];
    BlockRemoved removed;
    removed.block_hashes.assign(held.copies, WireKey(record));
    removed.medium = place.medium;
    removed.group_idx = place.group_idx;
    out_.emplace_back(std::move(removed));
  }
}

void KeyLedger::ForgetNames(const TokenRecord& record) {
  if (!record.resolved()) return;
  for (const int64_t size : block_sizes_) {
    const auto it = names_.find(NameKey(record.key, size));
    if (it != names_.end() && &records_.at(it->second) == &record) names_.erase(it);
  }
}

void KeyLedger::AddTo(TokenKeysCounters& counters) const {
  counters.hashes = records_.size();
  counters.resolved += resolved_;
  counters.resolved_late += resolved_late_;
  counters.conflicts += conflicts_;
  counters.unknown_removes += unknown_removes_;
  counters.forgotten_hashes += records_.forgotten();
  counters.unresolved_held = held_.unresolved_held;
  counters.unresolved_gpu = held_.unresolved_gpu;
}

}  // namespace kvcast::router
