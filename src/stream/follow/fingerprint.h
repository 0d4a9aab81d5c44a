// FingerprintWindow: the payload hashes of the latest batches. If a sequence number arrives again,
// the hashes show whether the batch is the same batch, or a batch of a restarted publisher.
//
// A payload contains the time of its batch as a float, so batches with equal bytes count as the
// same batch. Exception: a repeated sequence number 0 (see Source::OnLiveStepBack).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kvcast/stream/saved_position.h"
#include "src/stream/net/frames.h"

namespace kvcast::stream {

// The hash of BatchFingerprint.
std::array<uint64_t, 2> PayloadHash(Frame payload);

class FingerprintWindow {
 public:
  static constexpr size_t kBatches = 64;
  enum class Match : uint8_t { kSame, kOther, kUnknown };

  void Add(const Batch& batch);
  // kUnknown: the window does not hold this number.
  Match Compare(const Batch& batch) const;
  void Clear() { entries_.fill({}); }
  // The fingerprints in the window.
  std::vector<BatchFingerprint> All() const;
  // Replaces the window. If two fingerprints have the same seq % kBatches, the later one stays.
  void Restore(std::span<const BatchFingerprint> fingerprints);

 private:
  struct Entry {
    bool used = false;
    uint64_t seq = 0;
    std::array<uint64_t, 2> hash{};  // XXH3, 128 bits
  };
  std::array<Entry, kBatches> entries_;  // at seq % kBatches
};

}  // namespace kvcast::stream
