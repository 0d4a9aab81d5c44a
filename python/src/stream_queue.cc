// SPDX-License-Identifier: Apache-2.0
#include "python/src/stream_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "src/base/clock.h"

namespace kvcast::python {

StreamQueue::StreamQueue(size_t max_batches, size_t max_bytes)
    : max_batches_(max_batches),
      max_bytes_(max_bytes),
      fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      max_resets_(max_batches) {}

StreamQueue::~StreamQueue() {
  if (fd_ >= 0) close(fd_);
}

void StreamQueue::Signal() {
  arrived_.NotifyAll();
  if (fd_ >= 0) (void)eventfd_write(fd_, 1);
}

void StreamQueue::DropAll() {
  struct Resets {
    std::shared_ptr<const std::string> source;
    bool restart = false;
    bool lost = false;                 // a batch after the restart
    std::optional<ResetReason> other;  // after the restart
  };
  std::vector<Resets> sources;
  std::unordered_map<std::string_view, size_t> indices;  // in `sources`, by name
  for (const StreamItem& item : items_) {
    const auto [it, added] = indices.try_emplace(*item.source, sources.size());
    if (added) sources.push_back({.source = item.source, .other = std::nullopt});
    Resets& resets = sources[it->second];
    if (!item.reset) {
      resets.lost = true;
    } else if (*item.reset == ResetReason::kRestart) {
      // A restart makes all earlier items of the source meaningless.
      resets = {.source = resets.source, .restart = true, .other = std::nullopt};
    } else {
      resets.other = item.reset;
    }
  }
  std::deque<StreamItem> kept;
  for (const Resets& resets : sources) {
    if (resets.restart) kept.push_back({.source = resets.source, .reset = ResetReason::kRestart});
    const auto other = resets.lost ? ResetReason::kLostBatches : resets.other;
    if (other) kept.push_back({.source = resets.source, .reset = other});
  }
  items_ = std::move(kept);
  dropped_ += batches_;
  batches_ = 0;
  bytes_ = 0;
  // Without a higher limit, each further reset of many sources would call DropAll again.
  max_resets_ = std::max(max_batches_, 2 * items_.size());
}

void StreamQueue::Push(StreamItem item) {
  const MutexLock lock(mutex_);
  if (closed_) return;
  const bool fits = batches_ < max_batches_ && bytes_ + item.payload.size() <= max_bytes_;
  // A queue without batches takes a batch of any size; the subscriber limits the size of a frame.
  if (!item.reset && !fits && batches_ > 0) DropAll();
  if (!item.reset) ++batches_;
  bytes_ += item.payload.size();
  items_.push_back(std::move(item));
  if (items_.size() - batches_ > max_resets_) DropAll();
  Signal();
}

std::optional<StreamItem> StreamQueue::Pop(int64_t timeout_us) {
  const int64_t deadline_us = SteadyUs() + timeout_us;
  const MutexLock lock(mutex_);
  while (items_.empty() && !closed_) {
    if (timeout_us <= 0 || !arrived_.WaitUntil(mutex_, deadline_us)) break;
  }
  if (items_.empty()) return std::nullopt;
  StreamItem item = std::move(items_.front());
  items_.pop_front();
  if (!item.reset) --batches_;
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
