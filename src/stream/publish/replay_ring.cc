// SPDX-License-Identifier: Apache-2.0
#include "src/stream/publish/replay_ring.h"

#include <algorithm>
#include <utility>

#include "src/base/check.h"

namespace kvcast::stream {

ReplayRing::ReplayRing(size_t max_batches, size_t max_bytes, Dialect dialect)
    : max_batches_(max_batches), max_bytes_(max_bytes), dialect_(dialect) {
  KV_CHECK(max_batches > 0);
}

void ReplayRing::StartAt(uint64_t seq) {
  MutexLock lock(mutex_);
  KV_CHECK(next_seq_ == 0);
  next_seq_ = end_seq_ = next_unsent_ = next_unread_ = seq;
}

bool ReplayRing::over_bounds() const {
  return held_.size() > max_batches_ || (held_bytes_ > max_bytes_ && held_.size() > 1);
}

uint64_t ReplayRing::Append(EventBatch batch) {
  return Append(NumberedBatch{.batch = std::move(batch)});
}

uint64_t ReplayRing::AppendRefused(std::optional<EventBatch> known) {
  const bool is_known = known.has_value();
  return Append(NumberedBatch{
      .batch = std::move(known).value_or(EventBatch()), .refused = true, .known = is_known});
}

uint64_t ReplayRing::Append(NumberedBatch numbered) {
  while (true) {
    {
      MutexLock lock(mutex_);
      if (!waiting_.full()) {
        waiting_.Push(std::move(numbered));
        return next_seq_++;
      }
    }
    EncodeOldest();
  }
}

uint64_t ReplayRing::Append(Payload payload) {
  MutexLock encoding(encoding_);
  uint64_t seq = 0;
  for (bool held = false; !held;) {
    while (EncodeOldestLocked()) {
    }
    MutexLock lock(mutex_);
    if (!waiting_.empty()) continue;
    seq = next_seq_++;
    Hold({std::move(payload)});
    held = true;
  }
  dropped_.clear();
  return seq;
}

void ReplayRing::EncodeWaiting() {
  const uint64_t end = next_seq();
  while (end_seq() < end) EncodeOldest();
}

uint64_t ReplayRing::end_seq() const {
  MutexLock lock(mutex_);
  return end_seq_;
}

bool ReplayRing::EncodeOldest() {
  MutexLock encoding(encoding_);
  return EncodeOldestLocked();
}

bool ReplayRing::EncodeOldestLocked() {
  NumberedBatch numbered;
  {
    MutexLock lock(mutex_);
    if (waiting_.empty()) return false;
    numbered = waiting_.Pop();
  }
  Held held{.payload = nullptr, .refused = numbered.refused};
  if (numbered.known) {
    std::vector<uint8_t> payload;
    payload.reserve(payload_size_hint_);
    KV_CHECK(EncodeBatch(numbered.batch, dialect_, payload).ok());
    payload_size_hint_ = payload.size();
    held.payload = std::make_shared<const std::vector<uint8_t>>(std::move(payload));
  }
  {
    MutexLock lock(mutex_);
    Hold(std::move(held));
  }
  dropped_.clear();
  return true;
}

void ReplayRing::Hold(Held held) {
  held_bytes_ += held.bytes();
  if (!held.refused) total_bytes_ += held.bytes();
  held_.push_back(std::move(held));
  ++end_seq_;
  while (over_bounds()) DropOldest();
}

void ReplayRing::DropOldest() {
  const uint64_t seq = first_seq();
  Held& oldest = held_.front();
  held_bytes_ -= oldest.bytes();
  KeepUnread(seq, oldest.payload);
  if (next_unsent_ == seq) {
    unsent_dropped_ += oldest.refused ? 0 : 1;
    ++next_unsent_;
  }
  dropped_.push_back(std::move(oldest.payload));
  held_.pop_front();
}

void ReplayRing::KeepUnread(uint64_t seq, const Payload& payload) {
  if (!has_reader_ || payload == nullptr || seq < next_unread_) return;
  left_unread_.push_back({seq, payload});
  left_unread_bytes_ += payload->size();
  if (left_unread_bytes_ <= max_bytes_) return;
  left_unread_.clear();
  left_unread_bytes_ = 0;
}

void ReplayRing::KeepForReader() {
  MutexLock lock(mutex_);
  has_reader_ = true;
  next_unread_ = next_seq_;
}

void ReplayRing::ReadOn(size_t limit, std::vector<RingEntry>& out) {
  EncodeWaiting();
  MutexLock lock(mutex_);
  for (; limit > 0 && !left_unread_.empty(); --limit) {
    left_unread_bytes_ -= left_unread_.front().payload->size();
    next_unread_ = left_unread_.front().seq + 1;
    out.push_back(std::move(left_unread_.front()));
    left_unread_.pop_front();
  }
  next_unread_ = CopyFrom(next_unread_, end_seq_, limit, /*with_refused=*/true, out);
}

uint64_t ReplayRing::CopyFrom(uint64_t start, uint64_t end, size_t limit, bool with_refused,
                              std::vector<RingEntry>& out) const {
  end = std::min(end, end_seq_);
  uint64_t seq = std::max(start, first_seq());
  for (; seq < end && limit > 0; ++seq) {
    const Held& held = held_[seq - first_seq()];
    if (held.payload == nullptr || (held.refused && !with_refused)) continue;
    out.push_back({seq, held.payload});
    --limit;
  }
  return seq;
}

void ReplayRing::Read(uint64_t start, uint64_t end, size_t limit, std::vector<RingEntry>& out) {
  EncodeWaiting();
  MutexLock lock(mutex_);
  CopyFrom(start, end, limit, /*with_refused=*/false, out);
}

bool ReplayRing::TakeUnsent(size_t limit, std::vector<RingEntry>& out) {
  while (true) {
    {
      MutexLock lock(mutex_);
      if (next_unsent_ == next_seq_) return false;
      if (next_unsent_ < end_seq_) {
        next_unsent_ = CopyFrom(next_unsent_, end_seq_, limit, /*with_refused=*/false, out);
        return true;
      }
    }
    EncodeOldest();
  }
}

uint64_t ReplayRing::next_seq() const {
  MutexLock lock(mutex_);
  return next_seq_;
}

uint64_t ReplayRing::first_held() {
  EncodeWaiting();
  MutexLock lock(mutex_);
  return first_seq();
}

RingCounters ReplayRing::counters() {
  EncodeWaiting();
  MutexLock lock(mutex_);
  return {next_seq_, total_bytes_, unsent_dropped_};
}

}  // namespace kvcast::stream
