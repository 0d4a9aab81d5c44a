// Replica: the index's copy of one publisher's residency, changed batch by batch.
//
// It remembers the digest after each of the last kRemembered batches, so that a status of the
// publisher can be compared with the state at the same sequence number. It builds snapshots in the
// worker's hidden generation. It collects a repair of some buckets and applies the repair as one
// batch.
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

// Thread-compatible. The worker must be registered with digests. Without digests nothing is
// compared, and every snapshot is refused.
class Replica {
 public:
  static constexpr size_t kRemembered = 64;  // batches

  // `index` must outlive the replica.
  Replica(WorkerId worker, PrefixIndex& index, const residency::SnapshotLimits& limits = {})
      : worker_(worker), index_(index), reader_(limits) {}

  // Returns the result of PrefixIndex::Apply, without the digests. The replica keeps the digests.
  ApplyResult Apply(uint64_t seq, const EventBatch& batch);
  // Must be called after the index has restored the worker's blocks. The restored blocks are the
  // state before batch `next_seq`. `left_out`: the value of left_out() when the blocks were saved.
  void Resume(uint64_t next_seq, bool left_out) {
    Remember(next_seq);
    left_out_ = left_out;
  }
  // True: the index has left out stores that only repeat residency.
  bool left_out() const { return left_out_; }
  // Forgets the worker's blocks. If `restart` is true, also forgets the worker's groups.
  void Reset(bool restart);

  // True if a group holds more blocks on the GPU than the engine has. The index then missed
  // removes. `gpu_blocks`: number of the engine's GPU blocks. 0: this number is not known, and the
  // result is false.
  bool Exceeds(int64_t gpu_blocks) const;

  // A block has several copies if several blocks of the engine have its content. A repair lists
  // each copy. True: a repair would need much more memory than the blocks. `residencies`: the
  // worker's number of (tier, group, hash) entries.
  bool HasTooManyCopies(uint64_t residencies) const;

  // Returns kUnknown in three cases: the state of the status is not remembered; the status has no
  // digests; the index has left out stores that only repeat residency, but the publisher counts
  // these stores.
  DigestVerdict Compare(const residency::PublisherStatus& status) const;

  // Returns the buckets in which the worker's current blocks differ from the status, as the mask of
  // a SNAPSHOT request. REQUIRES: the status has all buckets.
  uint64_t DifferingBuckets(const residency::PublisherStatus& status) const;

  void BeginSnapshot();
  // Like BeginSnapshot, for the buckets of this mask only. The other buckets do not change.
  void BeginRepair(uint64_t buckets);
  // False: the part is invalid.
  bool AddToSnapshot(std::span<const uint8_t> payload);
  // Replaces the worker's blocks by the collected blocks. A repair replaces only its buckets. The
  // status must declare exactly the blocks that the worker then has. False: the status declares
  // other blocks, and nothing changed. Exception: if the index did not apply all events of a
  // repair, the repaired buckets have changed.
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
  bool left_out_ = false;                           // stores were left out since the state began
  uint64_t last_ = 0;                               // next_seq of the newest remembered state
  std::array<Remembered, kRemembered> remembered_;  // at next_seq % kRemembered
  residency::SnapshotReader reader_;
  std::unique_ptr<BucketRepair> repair_;  // nullptr: no repair is in progress
  EventBatch part_;
};

}  // namespace kvcast::router
