// FingerprintWindow: remembers the payloads of the last batches by hash, so that a number seen
// again can be told apart: the same batch, or another one of a restarted publisher.
//
// Payloads carry a float time, so equal bytes mean the same batch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "src/stream/net/frames.h"

namespace kvcast::stream {

class FingerprintWindow {
 public:
  static constexpr size_t kBatches = 64;
  enum class Match : uint8_t { kSame, kOther, kUnknown };

  void Add(const Batch& batch);
  // kUnknown: the window does not hold this number.
  Match Compare(const Batch& batch) const;
  void Clear() { entries_.fill({}); }

 private:
  struct Entry {
    bool used = false;
    uint64_t seq = 0;
    std::array<uint64_t, 2> hash{};  // XXH3, 128 bits
  };
  std::array<Entry, kBatches> entries_;  // at seq % kBatches
};

}  // namespace kvcast::stream
