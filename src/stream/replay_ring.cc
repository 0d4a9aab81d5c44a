// SPDX-License-Identifier: Apache-2.0
#include "src/stream/replay_ring.h"

#include <algorithm>
#include <utility>

#include "src/base/check.h"

namespace kvcast::stream {

ReplayRing::ReplayRing(size_t max_batches, size_t max_bytes, Dialect dialect)
    : max_batches_(max_batches), max_bytes_(max_bytes), dialect_(dialect) {
  KV_CHECK(max_batches > 0);
}

bool ReplayRing::over_bounds() const {
  return payloads_.size() > max_batches_ || (held_bytes_ > max_bytes_ && payloads_.size() > 1);
}

uint64_t ReplayRing::Append(EventBatch batch) {
  while (true) {
    {
      MutexLock lock(mutex_);
      if (!waiting_.full()) {
        waiting_.Push(std::move(batch));
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
    Hold(std::move(payload));
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
  EventBatch batch;
  {
    MutexLock lock(mutex_);
    if (waiting_.empty()) return false;
    batch = waiting_.Pop();
  }
  std::vector<uint8_t> payload;
  payload.reserve(payload_size_hint_);
  KV_CHECK(EncodeBatch(batch, dialect_, payload).ok());
  payload_size_hint_ = payload.size();
  auto shared = std::make_shared<const std::vector<uint8_t>>(std::move(payload));
  {
    MutexLock lock(mutex_);
    Hold(std::move(shared));
  }
  dropped_.clear();
  return true;
}

void ReplayRing::Hold(Payload payload) {
  held_bytes_ += payload->size();
  total_bytes_ += payload->size();
  payloads_.push_back(std::move(payload));
  ++end_seq_;
  while (over_bounds()) {
    held_bytes_ -= payloads_.front()->size();
    KeepUnread(first_seq(), payloads_.front());
    dropped_.push_back(std::move(payloads_.front()));
    payloads_.pop_front();
  }
  if (next_unsent_ < first_seq()) {
    unsent_dropped_ += first_seq() - next_unsent_;
    next_unsent_ = first_seq();
  }
}

void ReplayRing::KeepUnread(uint64_t seq, const Payload& payload) {
  if (!has_reader_ || seq < next_unread_) return;
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
  const size_t before = out.size();
  CopyFrom(next_unread_, end_seq_, limit, out);
  if (out.size() > before) next_unread_ = out.back().seq + 1;
}

void ReplayRing::CopyFrom(uint64_t start, uint64_t end, size_t limit,
                          std::vector<RingEntry>& out) const {
  uint64_t seq = std::max(start, first_seq());
  end = std::min(end, end_seq_);
  for (; seq < end && limit > 0; ++seq, --limit) {
    out.push_back({seq, payloads_[seq - first_seq()]});
  }
}

void ReplayRing::Read(uint64_t start, uint64_t end, size_t limit, std::vector<RingEntry>& out) {
  EncodeWaiting();
  MutexLock lock(mutex_);
  CopyFrom(start, end, limit, out);
}

bool ReplayRing::TakeUnsent(size_t limit, std::vector<RingEntry>& out) {
  while (true) {
    {
      MutexLock lock(mutex_);
      if (next_unsent_ == next_seq_) return false;
      if (next_unsent_ < end_seq_) {
        CopyFrom(next_unsent_, end_seq_, limit, out);
        next_unsent_ = out.back().seq + 1;
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
