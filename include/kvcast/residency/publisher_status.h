// PublisherStatus: what a publisher that speaks KVX1 says of itself; see schemas/README.md.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kvcast/residency/residency_digest.h"

namespace kvcast {

// One life of a publisher, or of the history that a relay carries on; random.
struct Epoch {
  uint64_t high = 0;
  uint64_t low = 0;
  friend bool operator==(const Epoch&, const Epoch&) = default;
};

struct PlaceStatus {
  PlaceDigest digest;
  std::optional<DigestBuckets> buckets;
  friend bool operator==(const PlaceStatus&, const PlaceStatus&) = default;
};

// The digests are those of the state before `next_seq`.
struct PublisherStatus {
  Epoch epoch;
  uint64_t first_held = 0;  // oldest number that a replay can give; next_seq: none
  uint64_t next_seq = 0;
  // false: the publisher does not know its own state; no places then.
  bool has_digests = false;
  std::vector<PlaceStatus> places;  // by tier, then group

  ResidencyTotals Totals() const;
  friend bool operator==(const PublisherStatus&, const PublisherStatus&) = default;
};

// What a comparison of a status with the state after status.next_seq batches gave.
enum class DigestVerdict : uint8_t {
  kEqual,
  kDiffers,
  kUnknown,  // the state of that moment is not known any more, or the status has no digests
};

}  // namespace kvcast
