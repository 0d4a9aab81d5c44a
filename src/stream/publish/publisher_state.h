// PublisherState: what a publisher knows of itself beside its ring: its epoch, and by reading its
// own batches what its engine holds, with digests. It is never behind the producer's call: whoever
// asks, or a thread for that, lets it catch up with the ring.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/mutex.h"
#include "src/residency/extension.h"
#include "src/residency/mirror.h"
#include "src/stream/publish/replay_ring.h"

namespace kvcast::stream {

struct StateSnapshot {
  residency::PublisherStatus status;  // of the moment of the snapshot
  std::vector<Payload> parts;         // none if it has no digests
};

// Thread-safe. A snapshot holds up those who want to catch up, never the producer.
class PublisherState {
 public:
  // `ring` must outlive it, and is read by nobody else; nothing was appended to it yet.
  PublisherState(const residency::Epoch& epoch, ReplayRing& ring, Dialect dialect,
                 int64_t data_parallel_rank);

  // Reads what the ring has got since.
  void CatchUp();
  // After catching up. A state that was overrun by the ring, or met a batch that it cannot read,
  // has no digests from then on.
  residency::PublisherStatus Status(bool buckets);
  StateSnapshot Snapshot(const residency::BucketMask& buckets);

  const residency::Epoch& epoch() const { return epoch_; }

 private:
  void CatchUpLocked() KV_REQUIRES(mutex_);
  residency::PublisherStatus StatusLocked(bool buckets) const KV_REQUIRES(mutex_);

  const residency::Epoch epoch_;
  ReplayRing& ring_;
  const Dialect dialect_;
  const int64_t data_parallel_rank_;

  Mutex mutex_;
  residency::Mirror mirror_ KV_GUARDED_BY(mutex_);
  uint64_t next_ KV_GUARDED_BY(mutex_) = 0;
  bool lost_ KV_GUARDED_BY(mutex_) = false;
  double ts_ KV_GUARDED_BY(mutex_) = 0;  // of the latest batch
  EventBatch batch_ KV_GUARDED_BY(mutex_);
  std::vector<RingEntry> slice_ KV_GUARDED_BY(mutex_);
};

}  // namespace kvcast::stream
