// EncodeQueue: batches that have a sequence number but are not encoded yet, in the order of the
// numbers. Refused batches are included.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "kvcast/core/event.h"

namespace kvcast::stream {

// A batch that uses a sequence number.
struct NumberedBatch {
  EventBatch batch;
  // True: the batch was refused. Only the publisher's own reader (ReplayRing::ReadOn) gets the
  // batch.
  bool refused = false;
  // For a refused batch: true if `batch` contains its events.
  bool known = true;
};

// The constructor allocates all slots. Push moves the batch and allocates no memory.
// Thread-compatible.
class EncodeQueue {
 public:
  static constexpr size_t kMaxBatches = 256;
  // Limit for the number of events, hashes and tokens. The queue is full when the limit is
  // exceeded, so a single batch may be larger than the limit.
  static constexpr size_t kMaxItems = 1 << 20;

  EncodeQueue() : slots_(kMaxBatches) {}

  bool empty() const { return size_ == 0; }
  bool full() const { return size_ == kMaxBatches || items_ > kMaxItems; }
  // REQUIRES: !full().
  void Push(NumberedBatch numbered);
  // Removes and returns the oldest batch. REQUIRES: !empty().
  NumberedBatch Pop();

 private:
  struct Slot {
    NumberedBatch numbered;
    size_t items = 0;
  };

  std::vector<Slot> slots_;
  size_t first_ = 0;
  size_t size_ = 0;
  size_t items_ = 0;
};

}  // namespace kvcast::stream
