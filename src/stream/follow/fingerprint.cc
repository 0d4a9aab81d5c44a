// SPDX-License-Identifier: Apache-2.0
#include "src/stream/follow/fingerprint.h"

#include <xxhash.h>

namespace kvcast::stream {

std::array<uint64_t, 2> PayloadHash(Frame payload) {
  const XXH128_hash_t hash = XXH3_128bits(payload.data(), payload.size());
  return {hash.high64, hash.low64};
}

void FingerprintWindow::Add(const Batch& batch) {
  entries_[batch.seq % kBatches] = {true, batch.seq, PayloadHash(batch.payload)};
}

std::vector<BatchFingerprint> FingerprintWindow::All() const {
  std::vector<BatchFingerprint> all;
  for (const Entry& entry : entries_) {
    if (entry.used) all.push_back({entry.seq, entry.hash});
  }
  return all;
}

void FingerprintWindow::Restore(std::span<const BatchFingerprint> fingerprints) {
  Clear();
  for (const BatchFingerprint& known : fingerprints) {
    entries_[known.seq % kBatches] = {true, known.seq, known.hash};
  }
}

FingerprintWindow::Match FingerprintWindow::Compare(const Batch& batch) const {
  const Entry& entry = entries_[batch.seq % kBatches];
  if (!entry.used || entry.seq != batch.seq) return Match::kUnknown;
  return entry.hash == PayloadHash(batch.payload) ? Match::kSame : Match::kOther;
}

}  // namespace kvcast::stream
