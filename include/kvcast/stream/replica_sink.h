// ReplicaSink: holds the state that the batches of one followed source define.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include "kvcast/core/ids.h"
#include "kvcast/residency/publisher_status.h"

namespace kvcast {

// The result of applying one batch.
enum class BatchResult : uint8_t {
  kApplied,
  // Applied, except events that could not be decoded.
  kDoubtful,
  // No part of the batch could be decoded.
  kUndecodable,
  // Applied, but the batch contradicts the state before it. Example: it removes a block that the
  // state does not have.
  kImpossible,
  // Applied; the batch proves that the state is wrong.
  kRefuted,
  // Applied; after this batch, no data is missing from the state, even if earlier batches were
  // lost.
  kComplete,
  // Applied; as kComplete, and the state has no wrong data, even if earlier events could not be
  // decoded. Example: the engine has cleared its cache.
  kEmptied,
  // Applied; the batch shows that earlier batches or events are missing from the state.
  kIncomplete,
  // The batch has no events of this source. It shows nothing about earlier batches. Only sources
  // whose events arrive over HTTP give this result.
  kNoEvents,
  // Applied; the state is larger than the sink allows. The subscriber resets and quarantines the
  // source.
  kTooLarge,
};

// The reason why the sink must delete the state of a source.
enum class ResetReason : uint8_t {
  kRestart,      // a new run of the publisher began, or may have begun
  kLostBatches,  // a gap that could not be filled
  kDoubt,        // the state is wrong, may be wrong, or is too large
};
std::string_view ResetReasonName(ResetReason reason);

// The subscriber's threads call all functions, one call at a time for each source. Exception: the
// thread that calls Subscriber::Add calls TakesSnapshots. The functions must not block for a long
// time, and must not throw. A payload is valid only during the call.
class ReplicaSink {
 public:
  virtual ~ReplicaSink() = default;

  // The subscriber passes each batch of an epoch at most once, in the order of sequence numbers.
  virtual BatchResult Apply(Seq seq, std::span<const uint8_t> payload) = 0;
  // The sink must delete its state. The state may already be empty: after a restart of the
  // publisher, the subscriber also calls Reset if it passed no batch before the restart, but has
  // noted missing batches or has sent a challenge.
  virtual void Reset(ResetReason reason) = 0;

  // Number of times that the sink has dropped or replaced its state, or has begun to do so. The
  // sink must count before it changes the state. See SourceStatus::replacements. A sink whose state
  // no other thread reads need not count.
  virtual uint64_t replacements() const { return 0; }

  // True: the sink implements the five functions below. The subscriber then requests epochs,
  // digests and snapshots from publishers with KVX1. The value must not change.
  virtual bool TakesSnapshots() const { return false; }
  // A snapshot is built in a hidden state. BeginSnapshot starts an empty hidden state, and drops an
  // unfinished hidden state. AddToSnapshot adds a batch of stores to the hidden state. At the end,
  // CommitSnapshot replaces the state with the hidden state, or DropSnapshot drops the hidden
  // state.
  virtual void BeginSnapshot() {}
  // False: the payload is invalid.
  virtual bool AddToSnapshot(std::span<const uint8_t> /*payload*/) { return false; }
  // Compares the hidden state with the status. True: they are equal, and the hidden state has
  // replaced the state. False: they differ. The subscriber then calls DropSnapshot.
  virtual bool CommitSnapshot(const PublisherStatus& /*status*/) { return false; }
  virtual void DropSnapshot() {}
  // Compares the status with the state after status.next_seq batches. If status.next_seq is below
  // the next sequence number of the sink, the compared state is a recent earlier state.
  virtual DigestVerdict Compare(const PublisherStatus& /*status*/) {
    return DigestVerdict::kUnknown;
  }

  // True: the sink implements the two functions below. Otherwise a state that differs from the
  // publisher's is replaced completely. The value must not change.
  virtual bool Repairs() const { return false; }
  // Compares the status with the current state, which is the state after status.next_seq batches.
  // Every group of the status has buckets. Bit i of the result is set if one of the buckets 4i to
  // 4i + 3 differs in any group on any tier. 0: no difference can be located.
  virtual uint64_t DifferingBuckets(const PublisherStatus& /*status*/) { return 0; }
  // As BeginSnapshot, but CommitSnapshot replaces only the buckets of this mask, in all groups on
  // all tiers. If this commit returns false, the state may have changed.
  virtual void BeginRepair(uint64_t /*buckets*/) {}

  // True: the subscriber should send a challenge, if the publisher answers challenges. A challenge
  // shows the hash scheme of the engine; see kvcast/hash/chain_challenge.h. While the result is
  // true, the subscriber sends a challenge after each status, and one in each probe interval,
  // because the publisher may not know the scheme yet.
  virtual bool WantsChallenge() const { return false; }
  // Returns the nonce of a new challenge.
  virtual uint64_t BeginChallenge() { return 0; }
  // Takes the answer to the latest challenge.
  virtual void OnChallengeAnswer(std::span<const uint8_t> /*payload*/) {}
};

// A sink that calls two functions. For a reader that has no state to compare with digests.
class BatchSink final : public ReplicaSink {
 public:
  using OnBatch = std::function<void(Seq, std::span<const uint8_t> payload)>;
  using OnReset = std::function<void(ResetReason)>;

  // Both functions may be empty.
  explicit BatchSink(OnBatch on_batch, OnReset on_reset = {})
      : on_batch_(std::move(on_batch)), on_reset_(std::move(on_reset)) {}
  BatchResult Apply(Seq seq, std::span<const uint8_t> payload) override {
    if (on_batch_) on_batch_(seq, payload);
    return BatchResult::kApplied;
  }
  void Reset(ResetReason reason) override {
    if (on_reset_) on_reset_(reason);
  }

 private:
  const OnBatch on_batch_;
  const OnReset on_reset_;
};

}  // namespace kvcast
