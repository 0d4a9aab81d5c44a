// HoldBack: batches that have arrived but cannot be applied yet, ordered by sequence number. Their
// count and their bytes are bounded. A full HoldBack keeps the batches with the lowest numbers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "src/stream/net/frames.h"

namespace kvcast::stream {

class HoldBack {
 public:
  struct Held {
    uint64_t seq = 0;
    std::vector<uint8_t> payload;
  };

  HoldBack(size_t max_batches, size_t max_bytes)
      : max_batches_(max_batches), max_bytes_(max_bytes) {}

  // Copies the payload. False: the batch does not fit beside the held batches with lower numbers.
  // If a batch of this number is held already, the held batch stays. Exception: a proven batch
  // replaces an unproven batch. `unproven`: the batch belongs to an answer whose end has not
  // arrived yet. The end contains the publisher's epoch.
  bool Add(const Batch& batch, bool unproven = false);
  // Marks the unproven batches as proven: they belong to the epoch of the other batches.
  void Prove();
  // Drops the unproven batches: they may belong to another epoch than the other batches.
  void DropUnproven();
  // The payload of this number. Valid until the next call of a non-const function.
  std::optional<Frame> Find(uint64_t seq) const;
  // The lowest held number.
  std::optional<uint64_t> first_seq() const;
  // Removes and returns the batch of this number. Drops all batches with lower numbers.
  std::optional<Held> Take(uint64_t seq);
  void DropBelow(uint64_t seq) {
    while (!held_.empty() && held_.begin()->first < seq) Extract(held_.begin());
  }
  void Clear();

  size_t batches() const { return held_.size(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Slot {
    std::vector<uint8_t> payload;
    bool unproven = false;
  };
  using Slots = std::map<uint64_t, Slot>;

  Slot Extract(Slots::iterator it);
  bool Fits(size_t bytes) const {
    return held_.size() < max_batches_ && bytes <= max_bytes_ - bytes_;
  }

  const size_t max_batches_;
  const size_t max_bytes_;
  Slots held_;
  size_t bytes_ = 0;
  size_t unproven_ = 0;  // number of unproven batches in held_
};

}  // namespace kvcast::stream
