// Snapshot reader: checks the parts of a snapshot as they come, and at the end that all have come.
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
  uint64_t max_copies = 1u << 26;
  WireLimits wire;
};

// Thread-compatible. After a call that is not ok the snapshot is worth nothing.
class SnapshotReader {
 public:
  explicit SnapshotReader(const SnapshotLimits& limits = {}) : limits_(limits) {}

  // Begins anew.
  void Restart();
  // Decodes the next part into `batch`. Not ok: it is no batch of stores, an event of it cannot be
  // decoded, or a limit is passed.
  Status Read(std::span<const uint8_t> payload, EventBatch& batch);
  // The publisher's totals. Not ok: other than what was read. Totals of places that a reader does
  // not hold must not be left out.
  Status Finish(const ResidencyTotals& declared) const;

  // Of what was read.
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
