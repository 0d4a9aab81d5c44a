// SnapshotReader: checks the parts of a snapshot as they arrive, and at the end checks that all
// parts have arrived.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kvcast/core/event.h"
#include "kvcast/core/status.h"
#include "kvcast/residency/residency_digest.h"
#include "kvcast/wire/wire.h"

namespace kvcast::residency {

struct SnapshotLimits {
  uint64_t max_parts = 1u << 20;
  uint64_t max_copies = 1u << 24;
  WireLimits wire;
};

// Thread-compatible. After a call that is not ok, the reader is unusable until Restart.
class SnapshotReader {
 public:
  explicit SnapshotReader(const SnapshotLimits& limits = {}) : limits_(limits) {}

  // Starts again with an empty snapshot.
  void Restart();
  // Decodes the next part into `batch`. Not ok: the part is not a batch of stores, one of its
  // events cannot be decoded, or a limit is exceeded.
  Status Read(std::span<const uint8_t> payload, EventBatch& batch);
  // `declared`: the publisher's totals of all groups on all tiers, including groups that the caller
  // does not hold. Not ok: the totals differ from the parts that were read.
  Status Finish(const ResidencyTotals& declared) const;

  // The digest of the parts that were read.
  const ResidencyDigest& digest() const { return digest_; }
  uint64_t parts() const { return parts_; }
  uint64_t copies() const { return copies_; }

 private:
  const SnapshotLimits limits_;
  uint64_t parts_ = 0;
  uint64_t copies_ = 0;
  ResidencyDigest digest_;
};

}  // namespace kvcast::residency
