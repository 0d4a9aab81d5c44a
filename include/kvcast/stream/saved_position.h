// SavedPosition: the position of a reader in the stream of one publisher. A later reader that has
// the same state as the first reader can go on from this position, after a proof that the publisher
// is still the same run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "kvcast/core/ids.h"
#include "kvcast/residency/publisher_status.h"

namespace kvcast {

// Identifies the payload of an applied batch.
struct BatchFingerprint {
  uint64_t seq = 0;
  std::array<uint64_t, 2> hash{};  // XXH3 of the payload, 128 bits: the high half, the low half
  friend bool operator==(const BatchFingerprint&, const BatchFingerprint&) = default;
};

struct SavedPosition {
  // nullopt: the publisher has not named an epoch (it does not support KVX1, or was not asked).
  std::optional<Epoch> epoch;
  uint64_t first_seq = 0;  // see SourceStatus
  uint64_t next_seq = 0;   // the state is the result of the batches below this number
  // False: batches below next_seq are missing from the state.
  bool complete = false;
  // Fingerprints of the latest applied batches, at most 64, in any order. A publisher without an
  // epoch proves with these batches that it is the same run.
  std::vector<BatchFingerprint> fingerprints;

  friend bool operator==(const SavedPosition&, const SavedPosition&) = default;
};

// A followed source whose state can be saved.
struct FollowedPosition {
  WorkerId worker;
  SavedPosition position;
};

}  // namespace kvcast
