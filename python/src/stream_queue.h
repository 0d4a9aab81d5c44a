// StreamQueue: the batches and resets between the subscriber's thread and Python's threads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvcast/stream/replica_sink.h"
#include "src/base/mutex.h"

namespace kvcast::python {

// One element of a stream: a batch, or a reset.
struct StreamItem {
  std::shared_ptr<const std::string> source;
  std::optional<ResetReason> reset;  // nullopt: a batch
  uint64_t seq = 0;
  std::vector<uint8_t> payload;
};

// Bounded, thread-safe, many writers and readers. If a batch does not fit, or too many resets are
// queued, all queued batches are dropped, and at most two resets of each source remain: its last
// kRestart, then its last reset after that. The second reset is kLostBatches if a batch after the
// kRestart was dropped. So no reader keeps a state with a gap. Writers never wait.
class StreamQueue {
 public:
  // `max_bytes`: of payloads. The limits do not count resets; there are at most `max_batches`
  // resets, or four for each source. REQUIRES: both limits are above 0.
  StreamQueue(size_t max_batches, size_t max_bytes);
  ~StreamQueue();
  StreamQueue(const StreamQueue&) = delete;
  StreamQueue& operator=(const StreamQueue&) = delete;

  void Push(StreamItem item);
  // Waits at most `timeout_us`. nullopt: there is no item.
  std::optional<StreamItem> Pop(int64_t timeout_us);
  // Items that are queued can still be taken. Later pushes have no effect.
  void Close();
  bool closed() const;
  // True: closed, and no item is left.
  bool ended() const;
  uint64_t dropped() const;  // number of dropped batches
  // A file descriptor that is readable while an item is queued, and after Close. -1: the process
  // has no free descriptor.
  int fd() const { return fd_; }

 private:
  void DropAll() KV_REQUIRES(mutex_);
  void Signal() KV_REQUIRES(mutex_);

  const size_t max_batches_;
  const size_t max_bytes_;
  const int fd_;
  mutable Mutex mutex_;
  CondVar arrived_;
  std::deque<StreamItem> items_ KV_GUARDED_BY(mutex_);
  size_t batches_ KV_GUARDED_BY(mutex_) = 0;  // the other items are resets
  size_t bytes_ KV_GUARDED_BY(mutex_) = 0;
  size_t max_resets_ KV_GUARDED_BY(mutex_);
  uint64_t dropped_ KV_GUARDED_BY(mutex_) = 0;
  bool closed_ KV_GUARDED_BY(mutex_) = false;
};

}  // namespace kvcast::python
