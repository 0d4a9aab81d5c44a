// PublisherStatus: the status message of a publisher with the KVX1 extension; see
// schemas/README.md.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kvcast/residency/residency_digest.h"

namespace kvcast {

// Identifier of one run of a publisher; every run has a new value. By default it is random.
struct Epoch {
  uint64_t high = 0;
  uint64_t low = 0;
  friend bool operator==(const Epoch&, const Epoch&) = default;
};

// Digest of a group on a tier, and its buckets. nullopt: the publisher did not send the buckets.
struct GroupTierStatus {
  GroupTierDigest digest;
  std::optional<DigestBuckets> buckets;
  friend bool operator==(const GroupTierStatus&, const GroupTierStatus&) = default;
};

// Status of a publisher. The digests describe the state before batch `next_seq`.
struct PublisherStatus {
  Epoch epoch;
  // The oldest sequence number that a replay can return. Equal to next_seq: a replay returns no
  // batch.
  uint64_t first_held = 0;
  uint64_t next_seq = 0;
  // False: the publisher has no digests of its state, and `groups` is empty.
  bool has_digests = false;
  bool answers_challenges = false;      // the publisher answers CHALLENGE requests
  std::vector<GroupTierStatus> groups;  // on all tiers, sorted by tier, then group

  ResidencyTotals Totals() const;
  friend bool operator==(const PublisherStatus&, const PublisherStatus&) = default;
};

// Result of the comparison of a status with the local state before batch status.next_seq.
enum class DigestVerdict : uint8_t {
  kEqual,
  kDiffers,
  // The local state before this batch is not available, or the status has no digests.
  kUnknown,
};

}  // namespace kvcast
