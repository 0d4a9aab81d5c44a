// HoldBack: batches that came before their turn, by sequence number. Bounded by count and bytes;
// when full, the ones nearest to their turn stay.
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

  // Copies the payload. False: full of lower numbers. A number that is held already stays as it is,
  // but for one that is held without proof. `unproven`: it came in an answer whose end, with the
  // publisher's epoch, is not here yet.
  bool Add(const Batch& batch, bool unproven = false);
  // What is held without proof is of the epoch of the rest.
  void Prove();
  // Forgets what is held without proof: it may be of another epoch than the rest.
  void DropUnproven();
  // Borrowed until the next call that changes anything.
  std::optional<Frame> Find(uint64_t seq) const;
  // The lowest held number.
  std::optional<uint64_t> first_seq() const;
  // Takes the batch of this number, and forgets all before it.
  std::optional<Held> Take(uint64_t seq);
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
  size_t unproven_ = 0;  // of held_
};

}  // namespace kvcast::stream
