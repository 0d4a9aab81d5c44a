// SPDX-License-Identifier: Apache-2.0
#include "router/token_records.h"

#include <memory>
#include <utility>

#include "src/base/check.h"

namespace kvcast::router {

HeldCopies* TokenRecord::FindHeld(Tier tier, uint8_t group) {
  for (HeldCopies& copies : held) {
    if (copies.tier == tier && copies.group == group) return &copies;
  }
  return nullptr;
}

TokenRecords::TokenRecords(size_t max, size_t idle_max,
                           std::function<void(const TokenRecord&)> forget)
    : max_(max),
      idle_max_(idle_max),
      forget_(std::move(forget)),
      index_(0, Hash{&slab_}, Equal{&slab_}) {}

RecordId TokenRecords::Find(const BlockHash& hash) const {
  const auto it = index_.find(hash);
  return it == index_.end() ? kNoRecord : *it;
}

RecordId TokenRecords::Pin(const BlockHash& hash) {
  if (const RecordId id = Find(hash); id != kNoRecord) {
    if (slab_[id].idle) UnlinkIdle(id);
    ++slab_[id].pins;
    return id;
  }
  if (index_.size() >= max_ && !ForgetOldest()) return kNoRecord;
  if (free_.empty()) {
    free_.push_back(static_cast<RecordId>(slab_.size()));
    slab_.emplace_back();
  }
  const RecordId id = free_.back();
  free_.pop_back();
  TokenRecord& record = slab_[id];
  record.hash = hash;
  record.pins = 1;
  record.alive = true;
  index_.insert(id);
  return id;
}

void TokenRecords::Unpin(RecordId id) {
  KV_CHECK(slab_[id].pins > 0);
  --slab_[id].pins;
  Settle(id);
}

void TokenRecords::Settle(RecordId id) {
  const TokenRecord& record = slab_[id];
  if (record.pins > 0 || !record.held.empty() || record.idle) return;
  LinkIdle(id);
  if (idle_ > idle_max_) ForgetOldest();
}

void TokenRecords::SetOrigin(RecordId id, RecordId origin) {
  LeaveOrigin(id);
  TokenRecord& record = slab_[id];
  if (origin == kNoRecord || origin == id) return;
  record.next_child = slab_[origin].first_child;
  if (record.next_child != kNoRecord) slab_[record.next_child].previous_child = id;
  slab_[origin].first_child = id;
  record.origin = origin;
}

void TokenRecords::LeaveOrigin(RecordId id) {
  TokenRecord& record = slab_[id];
  if (record.origin == kNoRecord) return;
  const RecordId previous = record.previous_child;
  (previous == kNoRecord ? slab_[record.origin].first_child : slab_[previous].next_child) =
      record.next_child;
  if (record.next_child != kNoRecord) slab_[record.next_child].previous_child = previous;
  record.origin = record.next_child = record.previous_child = kNoRecord;
}

const TokenRecord* TokenRecords::Get(const RecordRef& ref) const {
  if (ref.id == kNoRecord) return nullptr;
  const TokenRecord& record = slab_[ref.id];
  return record.alive && record.generation == ref.generation ? &record : nullptr;
}

void TokenRecords::LinkIdle(RecordId id) {
  ++idle_;
  slab_[id].idle = true;
  slab_[id].older = newest_;
  slab_[id].newer = kNoRecord;
  (newest_ == kNoRecord ? oldest_ : slab_[newest_].newer) = id;
  newest_ = id;
}

void TokenRecords::UnlinkIdle(RecordId id) {
  TokenRecord& record = slab_[id];
  record.idle = false;
  --idle_;
  (record.older == kNoRecord ? oldest_ : slab_[record.older].newer) = record.newer;
  (record.newer == kNoRecord ? newest_ : slab_[record.newer].older) = record.older;
}

bool TokenRecords::ForgetOldest() {
  const RecordId id = oldest_;
  if (id == kNoRecord) return false;
  UnlinkIdle(id);
  forget_(slab_[id]);
  const RecordId origin = slab_[id].origin;
  while (slab_[id].first_child != kNoRecord) SetOrigin(slab_[id].first_child, origin);
  LeaveOrigin(id);
  index_.erase(slab_[id].hash);
  const uint32_t generation = slab_[id].generation + 1;
  std::destroy_at(&slab_[id]);
  std::construct_at(&slab_[id])->generation = generation;
  free_.push_back(id);
  ++forgotten_;
  return true;
}

}  // namespace kvcast::router
