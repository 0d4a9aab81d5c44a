// SPDX-License-Identifier: Apache-2.0
#include "src/residency/snapshot_reader.h"

#include "src/residency/mirror.h"

namespace kvcast::residency {

Status SnapshotReader::Read(std::span<const uint8_t> payload, EventBatch& batch) {
  if (++parts_ > limits_.max_parts) return {StatusCode::kLimit, "snapshot: too many parts"};
  DecodeCounts counts;
  if (Status status = DecodeBatch(payload, limits_.wire, batch, counts); !status.ok()) {
    return status;
  }
  if (counts.rejected_total() > 0) {
    return {StatusCode::kMalformed, "snapshot: an event cannot be decoded"};
  }
  for (const Event& event : batch.events) {
    const auto* stored = std::get_if<BlockStored>(&event);
    const int64_t group = stored ? stored->group_idx.value_or(0) : -1;
    if (group < 0 || group > kMaxGroup) {
      return {StatusCode::kMalformed, "snapshot: an event is not a store of a group in 0..63"};
    }
    copies_ += stored->block_hashes.size();
    if (copies_ > limits_.max_copies) return {StatusCode::kLimit, "snapshot: too many blocks"};
    const Tier tier = TierOf(stored->medium);
    for (const BlockHash& hash : stored->block_hashes) {
      digest_.Add(tier, static_cast<uint8_t>(group), hash);
    }
  }
  return Status();
}

void SnapshotReader::Restart() {
  parts_ = copies_ = 0;
  digest_ = ResidencyDigest();
}

Status SnapshotReader::Finish(const ResidencyTotals& declared) const {
  if (digest_.Totals() == declared) return Status();
  return {StatusCode::kMalformed, "snapshot: the digests differ from the digests of the status"};
}

}  // namespace kvcast::residency
