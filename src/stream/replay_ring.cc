// SPDX-License-Identifier: Apache-2.0
#include "src/stream/replay_ring.h"

#include <algorithm>
#include <utility>

#include "src/base/check.h"

namespace kvcast::stream {

ReplayRing::ReplayRing(size_t max_batches, size_t max_bytes)
    : max_batches_(max_batches), max_bytes_(max_bytes) {
  KV_CHECK(max_batches > 0);
}

bool ReplayRing::over_bounds() const {
  return payloads_.size() > max_batches_ || (held_bytes_ > max_bytes_ && payloads_.size() > 1);
}

uint64_t ReplayRing::Append(Payload payload) {
  // Freed after the lock: mostly one, but a large batch may push out many.
  Payload dropped;
  std::vector<Payload> more_dropped;
  bool wake = false;
  uint64_t seq = 0;
  {
    MutexLock lock(mutex_);
    KV_CHECK(!closed_);
    seq = next_seq_++;
    held_bytes_ += payload->size();
    total_bytes_ += payload->size();
    payloads_.push_back(std::move(payload));
    while (over_bounds()) {
      held_bytes_ -= payloads_.front()->size();
      KeepUnread(first_seq(), payloads_.front());
      if (dropped != nullptr) more_dropped.push_back(std::move(dropped));
      dropped = std::move(payloads_.front());
      payloads_.pop_front();
    }
    if (next_unsent_ < first_seq()) {
      unsent_dropped_ += first_seq() - next_unsent_;
      next_unsent_ = first_seq();
    }
    wake = std::exchange(waiting_, false);
  }
  if (wake) unsent_.NotifyOne();
  return seq;
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
  MutexLock lock(mutex_);
  for (; limit > 0 && !left_unread_.empty(); --limit) {
    left_unread_bytes_ -= left_unread_.front().payload->size();
    next_unread_ = left_unread_.front().seq + 1;
    out.push_back(std::move(left_unread_.front()));
    left_unread_.pop_front();
  }
  const size_t before = out.size();
  CopyFrom(next_unread_, next_seq_, limit, out);
  if (out.size() > before) next_unread_ = out.back().seq + 1;
}

void ReplayRing::CopyFrom(uint64_t start, uint64_t end, size_t limit,
                          std::vector<RingEntry>& out) const {
  uint64_t seq = std::max(start, first_seq());
  end = std::min(end, next_seq_);
  for (; seq < end && limit > 0; ++seq, --limit) {
    out.push_back({seq, payloads_[seq - first_seq()]});
  }
}

void ReplayRing::Read(uint64_t start, uint64_t end, size_t limit,
                      std::vector<RingEntry>& out) const {
  MutexLock lock(mutex_);
  CopyFrom(start, end, limit, out);
}

bool ReplayRing::TakeUnsent(size_t limit, std::vector<RingEntry>& out) {
  MutexLock lock(mutex_);
  while (next_unsent_ == next_seq_) {
    if (closed_) return false;
    waiting_ = true;
    unsent_.Wait(mutex_);
  }
  CopyFrom(next_unsent_, next_seq_, limit, out);
  next_unsent_ = out.back().seq + 1;
  return true;
}

void ReplayRing::Close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  unsent_.NotifyOne();
}

uint64_t ReplayRing::next_seq() const {
  MutexLock lock(mutex_);
  return next_seq_;
}

uint64_t ReplayRing::first_held() const {
  MutexLock lock(mutex_);
  return first_seq();
}

RingCounters ReplayRing::counters() const {
  MutexLock lock(mutex_);
  return {next_seq_, total_bytes_, unsent_dropped_};
}

}  // namespace kvcast::stream
