// Replica: the index's copy of what one publisher holds, batch by batch, as a source wants it.
//
// Remembers the digest after each of the last batches, so that a publisher's status of a moment ago
// can be compared, and builds snapshots in the worker's hidden generation. A repair of some buckets
// is collected, and applied as one batch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "kvcast/core/event.h"
#include "kvcast/router/prefix_index.h"
#include "router/replica/bucket_repair.h"
#include "src/residency/extension.h"
#include "src/residency/snapshot_reader.h"

namespace kvcast::router {

// Thread-compatible. The worker is registered with digests, or nothing can be compared and every
// snapshot is refused.
class Replica {
 public:
  static constexpr size_t kRemembered = 64;  // batches

  // `index` must outlive it.
  Replica(WorkerId worker, PrefixIndex& index) : worker_(worker), index_(index) {}

  // The result of PrefixIndex::Apply, without its digests: the replica keeps them.
  ApplyResult Apply(uint64_t seq, const EventBatch& batch);
  // The batch brought nothing that can be applied.
  void Skip(uint64_t seq) { Remember(seq + 1); }
  // Forgets what the worker holds, and with `restart` its groups.
  void Reset(bool restart);

  // A group that holds more on the GPU than the engine has blocks: removes were missed. 0: not
  // known, nothing is checked.
  bool Exceeds(int64_t gpu_blocks) const;

  // kUnknown: the status is of a state that is not remembered, or has no digests; or the index has
  // left out stores that only repeat what is there, which the publisher counts.
  DigestVerdict Compare(const residency::PublisherStatus& status) const;

  // As the mask of a SNAPSHOT has them; of the state now. The status has all buckets.
  uint64_t DifferingBuckets(const residency::PublisherStatus& status) const;

  void BeginSnapshot();
  // Of these buckets alone; the rest of the state stays.
  void BeginRepair(uint64_t buckets);
  // False: the part is no good.
  bool AddToSnapshot(std::span<const uint8_t> payload);
  // Takes over if what was added, and of a repair what is there besides, is what the status
  // declares. False: nothing changed; or, which takes an index that would not have what was
  // declared, the repaired buckets did.
  bool CommitSnapshot(const residency::PublisherStatus& status);
  void DropSnapshot();

 private:
  struct Remembered {
    bool known = false;
    uint64_t next_seq = 0;
    ResidencyTotals totals;
  };
  bool CommitRepair(const residency::PublisherStatus& status);
  void Remember(uint64_t next_seq) { Remember(next_seq, index_.Digests(worker_)); }
  void Remember(uint64_t next_seq, ResidencyTotals totals);
  void Forget() {
    remembered_.fill({});
    left_out_ = false;
  }

  const WorkerId worker_;
  PrefixIndex& index_;
  bool left_out_ = false;                           // stores, since the state began
  uint64_t last_ = 0;                               // next_seq of the newest remembered
  std::array<Remembered, kRemembered> remembered_;  // at next_seq % kRemembered
  residency::SnapshotReader reader_;
  std::unique_ptr<BucketRepair> repair_;  // unless a whole snapshot is being built
  EventBatch part_;
};

}  // namespace kvcast::router
