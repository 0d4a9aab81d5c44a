// PublisherState: the data of a publisher for KVX1 answers (see src/residency/extension.h): the
// epoch, the blocks that the engine holds according to the published batches, and the digests of
// these blocks. PublisherState reads the publisher's batches from the ring. The producer's calls do
// not update PublisherState. The thread that calls CatchUp, Status, Snapshot or ChallengeAnswer
// reads the new batches from the ring.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kvcast/stream/published_state.h"
#include "src/base/mutex.h"
#include "src/residency/extension.h"
#include "src/residency/mirror.h"
#include "src/residency/snapshot_writer.h"
#include "src/stream/publish/replay_ring.h"

namespace kvcast::stream {

// The state at one moment. Thread-compatible.
struct StateSnapshot {
  residency::PublisherStatus status;
  // The parts that are written. If the status has no digests, a snapshot has no parts.
  std::vector<Payload> parts;
  std::unique_ptr<residency::SnapshotWriter> writer = nullptr;  // nullptr: all parts are written

  // Does the next step of the writing; see SnapshotWriter::Step. False: all parts are written.
  bool Write();
};

// Thread-safe. The other calls wait while a snapshot copies the blocks. The producer never waits.
class PublisherState {
 public:
  using AnswerChallenge = std::function<EventBatch(uint64_t nonce)>;

  // `ring` must outlive the state. The state must be the only caller of ReplayRing::ReadOn. No
  // batch may have been appended to the ring before. `answer_challenge`, `repeats_are_refreshes`,
  // `max_blocks`: see PublisherConfig.
  PublisherState(const residency::Epoch& epoch, ReplayRing& ring, Dialect dialect,
                 int64_t data_parallel_rank, AnswerChallenge answer_challenge = {},
                 bool repeats_are_refreshes = false, uint64_t max_blocks = 1u << 24);

  // Begins with this state. If the state is too large, PublisherState begins without digests.
  // ReplayRing::StartAt must have been called with status.next_seq. Not ok: a part cannot be
  // decoded, or the digests of the parts are not those of the status. REQUIRES: no function was
  // called before.
  kvcast::Status Restore(const PublishedState& state);
  // Reads the batches that were appended to the ring since the last call.
  void CatchUp();
  // Status and Snapshot first catch up with the ring. After one of these failures, the status has
  // no digests any more: the ring dropped batches before they were read, a batch or one of its
  // events could not be decoded, or the state became too large (PublisherConfig::max_blocks).
  // `buckets`: true if the status must contain the digests of the buckets.
  residency::PublisherStatus Status(bool buckets);
  // `buckets`: the buckets of the snapshot. The caller must write the parts (StateSnapshot::Write).
  StateSnapshot Snapshot(const residency::BucketMask& buckets);
  // False: the publisher answers no challenges.
  bool answers_challenges() const { return answer_challenge_ != nullptr; }
  // The answer to a challenge, as one part; no part if there is no answer yet, or if the answer
  // cannot be encoded. REQUIRES: answers_challenges().
  StateSnapshot ChallengeAnswer(uint64_t nonce);

  // True: the status has no digests, because the state became too large.
  bool too_large();

  const residency::Epoch& epoch() const { return epoch_; }

 private:
  void CatchUpLocked() KV_REQUIRES(mutex_);
  // True: there are too many blocks, or too many copies of blocks (a block that was stored n times
  // has n copies). A snapshot lists each copy.
  bool IsTooLarge() const KV_REQUIRES(mutex_);
  // The status has no digests from now on.
  void DropTooLarge() KV_REQUIRES(mutex_);
  residency::PublisherStatus StatusLocked(bool buckets) const KV_REQUIRES(mutex_);

  const residency::Epoch epoch_;
  ReplayRing& ring_;
  const Dialect dialect_;
  const int64_t data_parallel_rank_;
  const AnswerChallenge answer_challenge_;
  const uint64_t max_blocks_;

  Mutex mutex_;
  residency::Mirror mirror_ KV_GUARDED_BY(mutex_);
  uint64_t next_ KV_GUARDED_BY(mutex_) = 0;
  bool lost_ KV_GUARDED_BY(mutex_) = false;       // the status has no digests
  bool too_large_ KV_GUARDED_BY(mutex_) = false;  // lost_ is then true, too
  double ts_ KV_GUARDED_BY(mutex_) = 0;           // time stamp of the latest batch
  EventBatch batch_ KV_GUARDED_BY(mutex_);
  std::vector<RingEntry> slice_ KV_GUARDED_BY(mutex_);
};

}  // namespace kvcast::stream
