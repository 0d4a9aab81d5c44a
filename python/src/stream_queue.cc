// SPDX-License-Identifier: Apache-2.0
#include "python/src/stream_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "src/base/clock.h"

namespace kvcast::python {

StreamQueue::StreamQueue(size_t max_batches, size_t max_bytes)
    : max_batches_(max_batches),
      max_bytes_(max_bytes),
      fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

StreamQueue::~StreamQueue() {
  if (fd_ >= 0) close(fd_);
}

void StreamQueue::Signal() {
  arrived_.NotifyAll();
  if (fd_ >= 0) (void)eventfd_write(fd_, 1);
}

void StreamQueue::DropAll() {
  std::vector<std::shared_ptr<const std::string>> sources;
  std::deque<StreamItem> kept;
  for (StreamItem& item : items_) {
    if (item.reset) {
      kept.push_back(std::move(item));
      continue;
    }
    ++dropped_;
    if (std::ranges::find(sources, item.source) != sources.end()) continue;
    sources.push_back(item.source);
    kept.push_back({.source = item.source, .reset = ResetReason::kLostBatches});
  }
  items_ = std::move(kept);
  bytes_ = 0;
}

void StreamQueue::Push(StreamItem item) {
  const MutexLock lock(mutex_);
  if (closed_) return;
  const bool fits = items_.size() < max_batches_ && bytes_ + item.payload.size() <= max_bytes_;
  // An empty queue takes a batch of any size; the subscriber limits the size of a frame.
  if (!item.reset && !fits && !items_.empty()) DropAll();
  bytes_ += item.payload.size();
  items_.push_back(std::move(item));
  Signal();
}

std::optional<StreamItem> StreamQueue::Pop(int64_t timeout_us) {
  const int64_t until = SteadyUs() + timeout_us;
  const MutexLock lock(mutex_);
  while (items_.empty() && !closed_) {
    if (timeout_us <= 0 || !arrived_.WaitUntil(mutex_, until)) break;
  }
  if (items_.empty()) return std::nullopt;
  StreamItem item = std::move(items_.front());
  items_.pop_front();
  bytes_ -= item.payload.size();
  eventfd_t ignored;
  if (items_.empty() && !closed_ && fd_ >= 0) (void)eventfd_read(fd_, &ignored);
  return item;
}

void StreamQueue::Close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  Signal();
}

bool StreamQueue::closed() const {
  const MutexLock lock(mutex_);
  return closed_;
}

bool StreamQueue::ended() const {
  const MutexLock lock(mutex_);
  return closed_ && items_.empty();
}

uint64_t StreamQueue::dropped() const {
  const MutexLock lock(mutex_);
  return dropped_;
}

}  // namespace kvcast::python
