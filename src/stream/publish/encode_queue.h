// EncodeQueue: batches that have their sequence number and not yet their bytes, in order; refused
// ones among them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "kvcast/core/event.h"

namespace kvcast::stream {

// The use of a sequence number.
struct NumberedBatch {
  EventBatch batch;
  // The publisher alone reads it.
  bool refused = false;
  // Of a refused one: whether `batch` holds its events.
  bool known = true;
};

// Its slots are there from the start: adding a batch moves it and allocates nothing.
// Thread-compatible.
class EncodeQueue {
 public:
  static constexpr size_t kMaxBatches = 256;
  // Events, hashes and tokens: full when passed, so one batch may be larger.
  static constexpr size_t kMaxItems = 1 << 20;

  EncodeQueue() : slots_(kMaxBatches) {}

  bool empty() const { return size_ == 0; }
  bool full() const { return size_ == kMaxBatches || items_ > kMaxItems; }
  // REQUIRES: !full().
  void Push(NumberedBatch numbered);
  // The oldest. REQUIRES: !empty().
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
